//! Waiting for events. The waiting thread drives the engine itself and sleeps on the
//! sockets, so that a message wakes one thread and not two.

use core::fmt::Debug;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use urxe_core::{Driver, Time};
use urxe_udp::{Interest, WAIT_MAX, wait_for};

use super::clock::until;
use super::doorbell::Attempt;
use super::progress_shared::Watch;
use crate::engine::Engine;
use crate::engine::carrier::seam::Sleeper;
use crate::engine::carrier::sockets::Which;
use crate::error::{Error, ErrorKind};
use crate::network::Pause;
use crate::queues::{Channel, Permit, Sleep};

/// What a waiting thread needs to know before it sleeps.
#[derive(Default)]
struct Outlook {
    /// The next timer, which it must not sleep through.
    due: Option<Time>,
    /// Packets wait for room in a socket.
    backlog: bool,
    /// Something has arrived already.
    is_restless: bool,
}

impl Engine {
    /// Takes the next event of a channel, waiting for it as long as `timeout` allows.
    pub(crate) fn wait_for_event<T: Debug + Send + 'static>(
        &self,
        channel: &Arc<Channel<T>>,
        timeout: Option<Duration>,
    ) -> Result<Option<T>, Error> {
        self.check_process()?;
        if let Some(event) = channel.try_take() {
            return Ok(Some(event));
        }
        let now = self.clock.now();
        let deadline = timeout.map(|t| now + u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
        let mut watch = self.progress.try_watch();
        let event = self.wait_until(channel, deadline, &mut watch);
        if let Some(watch) = watch {
            if !matches!(event, Ok(Some(_)))
                && let Ok(mut state) = self.combiner.lock()
            {
                state.rouse(Sleeper::Waiter);
            }
            watch.end(self.clock.now());
        }
        event
    }

    fn wait_until<'e, T: Debug + Send + 'static>(
        &'e self,
        channel: &Arc<Channel<T>>,
        deadline: Option<Time>,
        watch: &mut Option<Watch<'e>>,
    ) -> Result<Option<T>, Error> {
        loop {
            let mut outlook = Outlook::default();
            if watch.is_some() {
                if let Some(event) = self.turn_for(channel, &mut outlook)? {
                    return Ok(Some(event));
                }
            } else {
                // The one who watched may have left.
                *watch = self.progress.try_watch();
                if watch.is_some() {
                    continue;
                }
            }
            let permit = match channel.take_or_sleep() {
                Sleep::Event(event) => return Ok(Some(event)),
                Sleep::Permitted(permit) => permit,
            };
            let now = self.clock.now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(None);
            }
            if outlook.is_restless {
                continue;
            }
            if let Some(network) = self.network() {
                let pause = Pause::Event {
                    event: channel.clone(),
                    deadline_ns: deadline.map(|deadline| deadline.0),
                };
                network.pause(&pause).map_err(|_| ErrorKind::EngineFailed)?;
                continue;
            }
            let end = Time::earliest([deadline, outlook.due]);
            let timeout = end.map(|end| until(now, end));
            self.sleep(&permit, watch.is_some(), outlook.backlog, timeout)?;
        }
    }

    /// One turn of the engine on behalf of a thread that waits for an event.
    fn turn_for<T>(&self, channel: &Channel<T>, outlook: &mut Outlook) -> Result<Option<T>, Error> {
        let mut state = match self.combiner.try_lock() {
            Ok(Attempt::Held(state)) => state,
            // Another thread drives. What it does not look at any more is for this thread to be woken for.
            Ok(Attempt::Busy) => match channel.try_take() {
                Some(event) => return Ok(Some(event)),
                None => self.combiner.lock()?,
            },
            // The event that tells of the failure comes before the failure itself.
            Err(poisoned) => return channel.try_take().map(Some).ok_or(poisoned.into()),
        };
        state.start_turn();
        state.rouse(Sleeper::Waiter);
        state.serve_bells();
        // What was held back for a reply that did not come.
        state.transmit(Driver::Sleeper { yields: false });
        state.receive(1, Which::All);
        state.handle_timers();
        let event = channel.try_take();
        state.transmit(Driver::Sleeper {
            yields: event.is_some(),
        });
        outlook.due = state.due();
        outlook.backlog = state.is_full();
        outlook.is_restless = event.is_none() && !state.doze(Sleeper::Waiter);
        Ok(event)
    }

    fn sleep<T>(
        &self,
        permit: &Permit<'_, T>,
        watches: bool,
        backlog: bool,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let mut list = [Interest::readable(permit.fd()); WAIT_MAX];
        let mut len = 1;
        let progress = &self.progress;
        if watches {
            let groups = self.sockets.groups.interest().is_some();
            progress.groups_watched.store(groups, Ordering::Relaxed);
            len = self.sockets.interests(backlog, &mut list, len);
            if !self.sockets.all_active() {
                // A QP may be connected meanwhile, on an address without a watched socket.
                list[len] = Interest::readable(progress.activated.as_fd());
                len += 1;
            }
        }
        let ready = wait_for(&list[..len], timeout).map_err(Error::io("waiting for an event"))?;
        if watches && ready.is_ready(len - 1) {
            progress.activated.drain();
        }
        Ok(())
    }
}
