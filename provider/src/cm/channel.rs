//! Event channels: they deliver the events of identifiers.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use urxe_core::Time;

use super::event::Event;
use super::manager::Manager;
use super::queue::Queue;
use crate::engine::{Clock, until};
use crate::error::{Error, ErrorKind};
use crate::mem::fork::Generation;
use crate::network::{self, Network, Pause};
use crate::queues::{Channel, Sleep};

/// A queue of [`Event`]s. It is a handle: clones are the same channel.
///
/// Its descriptor ([`AsFd`]) is readable while there are events, for a program's own poll
/// loop; [`EventChannel::try_next`] then takes one.
#[derive(Clone)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    queue: Arc<Queue>,
    manager: Manager,
    clock: Clock,
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
    /// ([`crate::network`]) that has no place for connections by address.
    pub fn with_manager(manager: &Manager) -> Result<EventChannel, Error> {
        let clock = match network::current() {
            Some(network) if network.shelf().is_none() => {
                let text = "this network has no RDMA-CM: exchange endpoints instead";
                return Err(ErrorKind::Unsupported(text).into());
            }
            Some(network) => Clock::Network(network),
            None => Clock::system(),
        };
        let queue = Channel::new().map_err(Error::io("creating an eventfd"))?;
        Ok(EventChannel {
            queue: Arc::new(queue),
            manager: manager.clone(),
            clock,
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
        self.wait_until(timeout.map(|timeout| self.after(timeout)))
    }

    /// What time it is for those that wait for its events.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// What time it will be then.
    pub(super) fn after(&self, timeout: Duration) -> Time {
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Time(self.now().0.saturating_add(ns))
    }

    /// The network that its identifiers are on, if they are not on this host's own.
    pub(crate) fn network(&self) -> Option<&Arc<dyn Network>> {
        match &self.clock {
            Clock::Network(network) => Some(network),
            Clock::System(_) => None,
        }
    }

    /// Waits for an event until a time (`None`: for ever).
    pub(super) fn wait_until(&self, deadline: Option<Time>) -> Result<Option<Event>, Error> {
        self.check_process()?;
        if let Some(network) = self.network() {
            return self.wait_on(&**network, deadline);
        }
        loop {
            let permit = match self.queue.take_or_sleep() {
                Sleep::Event(queued) => match queued.open(&self.queue) {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                },
                Sleep::Permitted(permit) => permit,
            };
            let left = deadline.map(|deadline| until(self.now(), deadline));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            urxe_udp::wait(&[permit.fd()], left).map_err(Error::io("waiting for an event"))?;
        }
    }

    fn wait_on(
        &self,
        network: &dyn Network,
        deadline: Option<Time>,
    ) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            if deadline.is_some_and(|deadline| deadline <= self.now()) {
                return Ok(None);
            }
            let pause = Pause::Event {
                event: self.queue.clone(),
                deadline_ns: deadline.map(|deadline| deadline.0),
            };
            network.pause(&pause).map_err(|_| ErrorKind::EngineFailed)?;
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
