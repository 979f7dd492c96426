//! Event channels: they deliver the events of identifiers.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::event::Event;
use super::manager::Manager;
use super::queue::Queue;
use crate::error::{Error, ErrorKind};
use crate::mem::fork::Generation;
use crate::queues::{Channel, Sleep};

/// A queue of [`Event`]s. It is a handle: clones are the same channel.
///
/// Its descriptor ([`AsFd`]) is readable while there are events, for a program's own poll
/// loop; [`EventChannel::try_next`] then takes one.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    queue: Arc<Queue>,
    manager: Manager,
    /// The process that it was made in.
    generation: Generation,
}

impl EventChannel {
    /// A channel with identifiers that open devices by themselves.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<EventChannel, Error> {
        EventChannel::with_manager(&Manager::global())
    }

    /// A channel with identifiers that find their contexts by `manager`.
    ///
    /// # Errors
    /// If the process has no file descriptor left; [`ErrorKind::Unsupported`] on a network of the program's own
    /// ([`crate::network`]), where nothing may wait in real time.
    pub fn with_manager(manager: &Manager) -> Result<EventChannel, Error> {
        if crate::network::current().is_some() {
            let text =
                "RDMA-CM waits in real time, and is not simulated: exchange endpoints instead";
            return Err(ErrorKind::Unsupported(text).into());
        }
        let queue = Channel::new().map_err(Error::io("creating an eventfd"))?;
        Ok(EventChannel {
            queue: Arc::new(queue),
            manager: manager.clone(),
            generation: Generation::current(),
        })
    }

    /// Takes the next event, if there is one.
    ///
    /// # Errors
    /// After a fork, in the child.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn try_next(&self) -> Result<Option<Event>, Error> {
        self.check_process()?;
        while let Some(queued) = self.queue.try_take() {
            if let Some(event) = queued.open(&self.queue) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Waits for an event, as long as `timeout` allows (`None`: for ever).
    ///
    /// # Errors
    /// After a fork, in the child; or if the system cannot wait.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        self.check_process()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let permit = match self.queue.take_or_sleep() {
                Sleep::Event(queued) => match queued.open(&self.queue) {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                },
                Sleep::Permitted(permit) => permit,
            };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            urxe_udp::wait(&[permit.fd()], left).map_err(Error::io("waiting for an event"))?;
        }
    }

    /// The contexts that its identifiers use.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Everything that was made before a fork is dead in the child.
    fn check_process(&self) -> Result<(), Error> {
        if self.generation.is_past() {
            return Err(ErrorKind::Forked.into());
        }
        Ok(())
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.expose()
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
