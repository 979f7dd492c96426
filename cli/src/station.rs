//! The verbs objects that both measurements need: an opened device, and completion queues that are waited on.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use urxe::{CompChannel, ConnectOptions, Context, Cq, Endpoint, Pd, Qp, Wc};

use crate::error::CliError;

/// A wait without any completion for this long ends with an error. The transport itself gives up on a dead peer
/// within a second or two; this is for a peer that lives and says nothing.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// How often a wait looks whether the peer's process still lives.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Empty polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 64;

/// Called now and then in a wait: an error ends it.
pub(crate) type PeerCheck<'a> = dyn FnMut() -> Result<(), CliError> + 'a;

/// An opened device with a protection domain.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) context: Context,
    pub(crate) pd: Pd,
}

impl Station {
    /// Opens the device that has this address of this host.
    pub(crate) fn open(address: IpAddr) -> Result<Station, CliError> {
        let fail = |error| CliError::context(format!("cannot open a device on {address}"), error);
        let context = Context::open(address).map_err(fail)?;
        let pd = context.alloc_pd().map_err(fail)?;
        Ok(Station { context, pd })
    }

    /// A completion queue for `cqe` completions, to be polled, or to be slept on.
    pub(crate) fn queue(&self, cqe: usize, is_polled: bool) -> Result<Queue, CliError> {
        let fail = |error| CliError::context("cannot create a completion queue", error);
        if is_polled {
            let cq = self.context.create_cq(cqe).map_err(fail)?;
            return Ok(Queue { cq, channel: None });
        }
        let channel = self.context.create_comp_channel().map_err(fail)?;
        let cq = self
            .context
            .create_cq_with_channel(cqe, &channel)
            .map_err(fail)?;
        Ok(Queue {
            cq,
            channel: Some(channel),
        })
    }
}

/// Memory of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemoteMemory {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// Connects to the endpoint that the other side told as text.
pub(crate) fn connect(qp: &Qp, remote: &str, options: &ConnectOptions) -> Result<(), CliError> {
    let endpoint: Endpoint = remote
        .parse()
        .map_err(|error| CliError::context(format!("not an endpoint: {remote:?}"), error))?;
    let connected = qp.connect(&endpoint, options);
    connected.map_err(|error| CliError::context(format!("cannot connect to {remote}"), error))
}

/// A completion queue and the way to wait on it.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) cq: Cq,
    /// The channel to sleep on; without one, waiting is polling.
    channel: Option<CompChannel>,
}

impl Queue {
    /// Waits for at least one completion and takes what is there. A failed completion is an error.
    pub(crate) fn wait(
        &self,
        wcs: &mut [Wc],
        check: &mut PeerCheck<'_>,
    ) -> Result<usize, CliError> {
        let taken = match &self.channel {
            None => self.spin(wcs, check)?,
            Some(channel) => self.sleep(channel, wcs, check)?,
        };
        first_failure(&wcs[..taken])?;
        Ok(taken)
    }

    /// Takes what is there, without waiting.
    pub(crate) fn poll(&self, wcs: &mut [Wc]) -> Result<usize, CliError> {
        let taken = self.cq.poll(wcs);
        let taken = taken.map_err(|error| CliError::context("polling failed", error))?;
        first_failure(&wcs[..taken])?;
        Ok(taken)
    }

    fn spin(&self, wcs: &mut [Wc], check: &mut PeerCheck<'_>) -> Result<usize, CliError> {
        let mut patience: Option<Patience> = None;
        let mut polls = 0;
        loop {
            let taken = self.poll(wcs)?;
            if taken > 0 {
                return Ok(taken);
            }
            polls += 1;
            if polls == POLLS_PER_LOOK {
                polls = 0;
                // So long an answer takes only when the peer does not run: perhaps for want of this CPU.
                thread::yield_now();
                patience.get_or_insert_with(Patience::new).look(check)?;
            }
        }
    }

    /// The race-free way to sleep: arm first, then poll again, because a completion that came before the arming
    /// gives no event; only then wait.
    fn sleep(
        &self,
        channel: &CompChannel,
        wcs: &mut [Wc],
        check: &mut PeerCheck<'_>,
    ) -> Result<usize, CliError> {
        let fail = |error| CliError::context("waiting for an event failed", error);
        let mut patience: Option<Patience> = None;
        loop {
            let taken = self.poll(wcs)?;
            if taken > 0 {
                return Ok(taken);
            }
            self.cq.req_notify(false).map_err(fail)?;
            let taken = self.poll(wcs)?;
            if taken > 0 {
                return Ok(taken);
            }
            match channel.wait_timeout(CHECK_EVERY).map_err(fail)? {
                Some(cq) => cq.ack_events(1),
                None => patience.get_or_insert_with(Patience::new).look(check)?,
            }
        }
    }
}

/// Ends a wait that lasts too long, or for a peer that is gone.
pub(crate) struct Patience {
    started: Instant,
    looked: Instant,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        let now = Instant::now();
        Patience {
            started: now,
            looked: now,
        }
    }

    pub(crate) fn look(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
        if self.looked.elapsed() < CHECK_EVERY {
            return Ok(());
        }
        check()?;
        self.looked = Instant::now();
        if self.started.elapsed() > SILENCE_MAX {
            let text = format!("no completion for {} seconds", SILENCE_MAX.as_secs());
            return Err(CliError::Failed(text));
        }
        Ok(())
    }
}

fn first_failure(wcs: &[Wc]) -> Result<(), CliError> {
    match wcs.iter().find(|wc| !wc.is_success()) {
        None => Ok(()),
        Some(wc) => Err(CliError::Fault(format!("a work request failed: {wc}"))),
    }
}
