//! Waiting for the completions of one queue, without a channel of the program's.

use std::sync::Arc;
use std::time::Duration;

use crate::cq::Cq;
use crate::error::{Error, ErrorKind};
#[cfg(feature = "tokio")]
use crate::network::Pause;
use crate::queues::{Armed, Channel, CqChannel};
use crate::wc::Wc;

const HAS_CHANNEL: &str = "the completion queue has a channel of the program's: wait on that";

impl Cq {
    /// Takes the oldest completion, and waits for one as long as `timeout` allows; `None` when that is over. The thread
    /// sleeps, and drives the engine meanwhile.
    ///
    /// It is for queues that were created without a channel, and for one thread at a time.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// # let context = urxe::Context::open("127.81.0.33".parse().unwrap())?;
    /// let cq = context.create_cq(16)?;
    /// // Nothing is connected, so nothing completes.
    /// assert_eq!(cq.poll_timeout(std::time::Duration::from_millis(1))?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the queue has a channel of the program's ([`crate::CompChannel::wait_timeout`] waits there), and as of
    /// [`Cq::poll`].
    pub fn poll_timeout(&self, timeout: Duration) -> Result<Option<Wc>, Error> {
        let channel = self.own_channel()?;
        let engine = self.context().engine();
        let start = engine.clock.now();
        loop {
            if let Some(wc) = self.poll_next()? {
                return Ok(Some(wc));
            }
            // Events of completions that were taken since.
            while channel.try_take().is_some() {}
            self.arm_own();
            // One may have come before the queue was armed.
            if let Some(wc) = self.poll_next()? {
                return Ok(Some(wc));
            }
            let passed = Duration::from_nanos(engine.clock.now().since_ns(start));
            let left = timeout.saturating_sub(passed);
            if engine.wait_for_event(channel, Some(left))?.is_none() {
                return self.poll_next();
            }
        }
    }

    /// [`Cq::poll`] for a task, which does not poll again before it is woken.
    #[cfg(feature = "tokio")]
    pub(crate) fn look(&self, wcs: &mut [Wc]) -> Result<usize, Error> {
        let (core, engine) = (self.core(), self.context().engine());
        if let Some(network) = engine.network()
            && core.is_empty()
        {
            engine.drive(core, false)?;
            let paused = network.pause(&Pause::Look);
            paused.map_err(|_| ErrorKind::EngineFailed)?;
            if core.is_empty() && !core.is_overrun() {
                return Ok(0);
            }
        }
        self.poll(wcs)
    }

    fn poll_next(&self) -> Result<Option<Wc>, Error> {
        let mut wc = [Wc::default()];
        Ok((self.poll(&mut wc)? == 1).then_some(wc[0]))
    }

    /// Its own channel, where the program named none.
    pub(crate) fn own_channel(&self) -> Result<&Arc<CqChannel>, Error> {
        let core = self.core();
        if core.channel.is_some() {
            return Err(ErrorKind::Channel(HAS_CHANNEL).into());
        }
        if let Some(channel) = core.own.get() {
            return Ok(channel);
        }
        let made = Channel::new().map_err(Error::io("creating an eventfd"))?;
        Ok(core.own.get_or_init(|| Arc::new(made)))
    }

    /// Asks for an event on its own channel.
    pub(crate) fn arm_own(&self) {
        self.core().arm(Armed::Next);
    }
}
