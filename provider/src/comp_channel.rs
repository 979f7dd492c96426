//! Completion channels: waiting for completions without polling.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::cq::Cq;
use crate::error::Error;
use crate::queues::{Channel, CqChannel};

/// A channel on which completion queues raise events.
///
/// The usual loop: ask for an event, poll until the queue is empty (a completion may
/// have arrived before the asking), wait, and begin again.
///
/// A thread in [`CompChannel::wait`] drives the engine itself. Programs with their own
/// poll or epoll loop put the descriptor ([`AsFd`]) into it and call
/// [`CompChannel::try_get`] when it is readable.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.10".parse().unwrap())?;
/// use std::time::{Duration, Instant};
///
/// let channel = context.create_comp_channel()?;
/// let cq = context.create_cq_with_channel(64, &channel)?;
/// cq.req_notify(false)?;
/// // Nothing is connected, so nothing completes.
/// assert!(channel.wait_timeout(Duration::from_millis(1))?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "ibv_comp_channel")]
pub struct CompChannel {
    inner: Arc<ChannelInner>,
}

struct ChannelInner {
    context: Context,
    queue: Arc<CqChannel>,
}

impl CompChannel {
    /// A queue's own channel.
    #[cfg(feature = "tokio")]
    pub(crate) fn of(context: &Context, queue: &Arc<CqChannel>) -> CompChannel {
        CompChannel {
            inner: Arc::new(ChannelInner {
                context: context.clone(),
                queue: queue.clone(),
            }),
        }
    }

    pub(crate) fn create(context: &Context) -> Result<CompChannel, Error> {
        context.engine().check_process()?;
        let queue = Arc::new(Channel::new().map_err(Error::io("creating an eventfd"))?);
        Ok(CompChannel {
            inner: Arc::new(ChannelInner {
                context: context.clone(),
                queue,
            }),
        })
    }

    /// Waits for an event, for ever; returns the completion queue that raised it.
    ///
    /// # Errors
    /// After a fork, in the child; or if the system cannot wait.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&self) -> Result<Cq, Error> {
        loop {
            if let Some(cq) = self.wait_at_most(None)? {
                return Ok(cq);
            }
        }
    }

    /// Waits for an event for a time; `None` when that is up.
    ///
    /// # Errors
    /// After a fork, in the child; or if the system cannot wait.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<Cq>, Error> {
        self.wait_at_most(Some(timeout))
    }

    /// Takes an event, if there is one.
    ///
    /// # Errors
    /// After a fork, in the child.
    pub fn try_get(&self) -> Result<Option<Cq>, Error> {
        self.inner.context.engine().check_process()?;
        Ok(std::iter::from_fn(|| self.inner.queue.try_take()).find_map(|cq| Cq::of_event(&cq)))
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn queue(&self) -> Arc<CqChannel> {
        self.inner.queue.clone()
    }

    fn wait_at_most(&self, timeout: Option<Duration>) -> Result<Option<Cq>, Error> {
        let engine = self.inner.context.engine();
        let start = engine.clock.now();
        loop {
            let left = timeout.map(|timeout| {
                let passed = engine.clock.now().since_ns(start);
                timeout.saturating_sub(Duration::from_nanos(passed))
            });
            let Some(event) = engine.wait_for_event(&self.inner.queue, left)? else {
                return Ok(None);
            };
            // Events of a queue that is gone by now are dropped.
            if let Some(cq) = Cq::of_event(&event) {
                return Ok(Some(cq));
            }
        }
    }
}

impl AsFd for CompChannel {
    /// A descriptor that is readable while there are events. From the first call on,
    /// the engine sees to that whether or not a thread waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.queue.expose()
    }
}

impl AsRawFd for CompChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
