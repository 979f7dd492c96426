//! The verbs objects that both measurements need: an opened device, and completion queues that are waited on.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use urxe::{CompChannel, ConnectOptions, Context, Cq, Endpoint, Mr, Pd, Qp, QpBuilder, Rkey, Wc};

use crate::error::{CliError, Context as _};
use crate::wire::Way;

/// A wait without any completion for this long ends with an error. The transport itself gives up on a dead peer
/// within a second or two; this is for a peer that lives and says nothing.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// How often a wait looks whether the peer's process still lives.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Empty polls between two looks at the clock.
const POLLS_PER_LOOK: u32 = 64;

/// Called now and then in a wait: an error ends it.
pub type PeerCheck<'a> = dyn FnMut() -> Result<(), CliError> + 'a;

/// An opened device with a protection domain.
#[derive(Debug)]
pub struct Station {
    pub context: Context,
    pub pd: Pd,
}

impl Station {
    /// Opens the device that has this address of this host.
    pub fn open(address: IpAddr, way: impl Into<Way>) -> Result<Station, CliError> {
        let what = format!("cannot open a device on {address}");
        let mut builder = Context::builder(address);
        let way = way.into();
        if let Some(wire) = way.wire {
            builder = builder.wire(wire.into());
        }
        if way.faults.is_some() {
            builder = builder.faults(way.faults);
        }
        let context = builder.open().context(&what)?;
        let pd = context.alloc_pd().context(&what)?;
        Ok(Station { context, pd })
    }

    /// Bytes of payload in the largest packet that its port can carry.
    pub fn mtu(&self) -> Result<u32, CliError> {
        let port = self.context.query_port(1).context("no port")?;
        Ok(port.active_mtu.bytes())
    }

    /// A completion queue for `cqe` completions, to be polled, or to be slept on.
    pub fn queue(&self, cqe: usize, is_polled: bool) -> Result<Queue, CliError> {
        let create = || {
            if is_polled {
                return Ok((self.context.create_cq(cqe)?, None));
            }
            let channel = self.context.create_comp_channel()?;
            let cq = self.context.create_cq_with_channel(cqe, &channel)?;
            Ok::<_, urxe::Error>((cq, Some(channel)))
        };
        let (cq, channel) = create().context("cannot create a completion queue")?;
        Ok(Queue { cq, channel })
    }

    /// A queue pair to be, with so many places for sends and for receives, each of one part of memory.
    pub fn qp<'a>(
        &self,
        sends: &'a Queue,
        recvs: &'a Queue,
        places: [usize; 2],
        inline: usize,
    ) -> QpBuilder<'a> {
        let qp = self.pd.qp(&sends.cq).recv_cq(&recvs.cq).max_sge(1);
        qp.max_send_wr(places[0] as u32)
            .max_recv_wr(places[1] as u32)
            .max_inline_data(inline as u32)
    }
}

/// Memory of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteMemory {
    pub addr: u64,
    rkey: u32,
}

impl RemoteMemory {
    /// A region of this side from an offset on, for the other.
    pub fn of(mr: &Mr, offset: usize) -> RemoteMemory {
        RemoteMemory {
            addr: mr.addr() + offset as u64,
            rkey: mr.rkey().0,
        }
    }

    pub fn rkey(self) -> Rkey {
        Rkey(self.rkey)
    }
}

/// Connects to the endpoint that the other side told as text.
pub fn connect(qp: &Qp, remote: &str, options: &ConnectOptions) -> Result<(), CliError> {
    let endpoint = remote.parse::<Endpoint>();
    let endpoint = endpoint.context(format_args!("not an endpoint: {remote:?}"))?;
    let connected = qp.connect(&endpoint, options);
    connected.context(format_args!("cannot connect to {remote}"))
}

/// A completion queue and the way to wait on it.
#[derive(Debug)]
pub struct Queue {
    pub cq: Cq,
    /// The channel to sleep on; without one, waiting is polling.
    channel: Option<CompChannel>,
}

impl Queue {
    /// Waits for at least one completion and takes what is there. A failed completion is an error.
    pub fn wait(&self, wcs: &mut [Wc], check: &mut PeerCheck<'_>) -> Result<usize, CliError> {
        let taken = match &self.channel {
            None => self.spin(wcs, check)?,
            Some(channel) => self.sleep(channel, wcs, check)?,
        };
        first_failure(&wcs[..taken])?;
        Ok(taken)
    }

    /// Takes what is there, without waiting.
    pub fn poll(&self, wcs: &mut [Wc]) -> Result<usize, CliError> {
        let taken = self.cq.poll(wcs).context("polling failed")?;
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
                patience.get_or_insert_with(Patience::begin).look(check)?;
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
        const FAILED: &str = "waiting for an event failed";
        let mut patience: Option<Patience> = None;
        loop {
            let taken = self.poll(wcs)?;
            if taken > 0 {
                return Ok(taken);
            }
            self.cq.req_notify(false).context(FAILED)?;
            let taken = self.poll(wcs)?;
            if taken > 0 {
                return Ok(taken);
            }
            match channel.wait_timeout(CHECK_EVERY).context(FAILED)? {
                Some(cq) => cq.ack_events(1),
                None => patience.get_or_insert_with(Patience::begin).look(check)?,
            }
        }
    }
}

/// Ends a wait that lasts too long, or for a peer that is gone.
#[derive(Debug)]
pub struct Patience {
    started: Instant,
    looked: Instant,
}

impl Patience {
    pub fn begin() -> Patience {
        let now = Instant::now();
        Patience {
            started: now,
            looked: now,
        }
    }

    pub fn look(&mut self, check: &mut PeerCheck<'_>) -> Result<(), CliError> {
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
