//! Accepting: a peer becomes a socket once it has said that it is ready (RTU, or its first packet).
//!
//! A message that leaves earlier finds a QP that may not receive yet. It is dropped in silence, and its repetition
//! costs the ACK timeout: a second, with a peer that takes a moment.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;

use urxe::cm::{ConnParam, Event, EventChannel, EventKind, Id};

use super::connection::Connection;
use super::open::prepare;
use super::{Guard, Phase, State, Stream};
use crate::cm::manager::manager;
use crate::errno::Errno;
use crate::rsocket::settings::Settings;
use crate::rsocket::wire::ConnData;

/// Peers that were answered and say nothing, at most: each has the memory of a connection, and may be forged.
/// One more, and the oldest of them goes.
pub(super) const ANSWERED_MAX: usize = 128;

/// Requests for a connection to a listening socket.
#[derive(Default)]
pub(super) struct Guests {
    /// Answered, and not ready yet; the oldest first.
    answered: Vec<Guest>,
    /// For `raccept` to take. There is one at most, unless a thread polls: a wait for the next one is a wait for an
    /// event.
    ready: VecDeque<Guest>,
    came: u32,
}

struct Guest {
    id: Id,
    connection: Connection,
}

impl Guests {
    pub(super) fn has_news(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many have been ready: a number to compare.
    pub(super) fn came(&self) -> u32 {
        self.came
    }

    /// What became of one of them, or a new one.
    pub(super) fn take(&mut self, event: &Event, settings: &Settings) {
        if event.kind == EventKind::ConnectRequest {
            if self.welcome(event, settings).is_err() {
                // No rsocket, or there are no resources for it: its end, not the listener's. If it cannot be told, it is
                // gone.
                let _ = event.id.reject(&[]);
            }
            return;
        }
        let found = self.answered.iter().position(|guest| guest.id == event.id);
        let Some(found) = found else { return };
        match event.kind {
            EventKind::Established => {
                let guest = self.answered.remove(found);
                self.ready.push_back(guest);
                self.came = self.came.wrapping_add(1);
            }
            EventKind::ConnectError
            | EventKind::Unreachable
            | EventKind::Rejected
            | EventKind::Disconnected => drop(self.answered.remove(found)),
            _ => {}
        }
    }

    /// Answers a request.
    fn welcome(&mut self, event: &Event, settings: &Settings) -> Result<(), Errno> {
        let peer = ConnData::parse(event.private_data()).ok_or(Errno::INVAL)?;
        if self.answered.len() >= ANSWERED_MAX {
            drop(self.answered.remove(0));
        }
        let mut connection = prepare(&event.id, settings)?;
        connection.meet(peer);
        let offer = event.conn().cloned().unwrap_or_default();
        event.id.accept(&ConnParam {
            private_data: connection.introduction().to_bytes().to_vec(),
            rnr_retry_count: 7,
            qp_num: connection.qp.qp_num(),
            ..offer
        })?;
        let id = event.id.clone();
        self.answered.push(Guest { id, connection });
        Ok(())
    }
}

impl Guest {
    /// A socket of its own, with a channel of its own for what happens to it from now on.
    fn into_stream(self, settings: Settings) -> Result<Stream, Errno> {
        let channel = EventChannel::with_manager(manager())?;
        self.id.migrate(&channel)?;
        let stream = Stream::of(channel, self.id, Phase::Connected, settings);
        stream.lock().connection = Some(Box::new(self.connection));
        Ok(stream)
    }
}

impl State {
    /// Whether `raccept` finds a guest. A thread that waits in it already takes the events.
    pub(super) fn has_guest(&mut self) -> bool {
        if self.sleepers > 0 {
            return super::super::sys::is_readable(self.channel.as_raw_fd());
        }
        // After a fork there is no guest, as `raccept` will tell.
        self.advance().is_err() || self.guests.has_news()
    }
}

impl Stream {
    pub(in super::super) fn accept(&self) -> Result<Stream, Errno> {
        let mut state = self.lock();
        loop {
            if state.phase != Phase::Listening {
                return Err(Errno::INVAL);
            }
            state.advance()?;
            if let Some(guest) = state.guests.ready.pop_front() {
                let settings = state.settings.clone();
                drop(state);
                return guest.into_stream(settings);
            }
            if state.is_non_blocking() {
                return Err(Errno(libc::EAGAIN));
            }
            state = self.next_event(state)?;
        }
    }

    /// Waits for the next event, without the lock, and takes it.
    pub(super) fn next_event<'a>(&'a self, mut state: Guard<'a>) -> Result<Guard<'a>, Errno> {
        let channel = state.channel.clone();
        state.sleepers += 1;
        drop(state);
        let event = channel.wait(None);
        let mut state = self.lock();
        state.sleepers -= 1;
        if let Some(event) = event? {
            state.take(&event);
        }
        Ok(state)
    }
}
