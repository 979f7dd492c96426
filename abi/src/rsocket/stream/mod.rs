//! Stream sockets.
//!
//! A socket's descriptor is the one of its event channel; what waits for data waits on the completion channel.

mod accept;
mod connection;
mod iomap;
mod mapped;
mod open;
mod ready;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod tests;
mod transfer;

#[cfg(feature = "fuzzing")]
pub(crate) use self::connection::hostile;

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use urxe::cm::{CmOption, EventChannel, Id, PortSpace};

use self::accept::Guests;
use self::connection::{Connection, Link};
use super::settings::Settings;
use super::wire::Message;
use crate::cm::manager::manager;
use crate::errno::Errno;
use crate::lock::{lock, whole};

/// How long closing waits for the peer to take what was sent: as long as Linux keeps a TCP socket that no process has open.
const LINGER: Duration = Duration::from_secs(60);

/// How long a call waits.
#[derive(Clone, Copy)]
enum Wait {
    No,
    Until(Instant),
    Ever,
}

impl Wait {
    fn of(may_wait: bool) -> Wait {
        if may_wait { Wait::Ever } else { Wait::No }
    }

    /// What is left of it: for ever, if it is none. `EAGAIN` if nothing is.
    fn left(self) -> Result<Option<Duration>, Errno> {
        let left = match self {
            Wait::Ever => return Ok(None),
            Wait::Until(end) => end.saturating_duration_since(Instant::now()),
            Wait::No => Duration::ZERO,
        };
        if left.is_zero() {
            return Err(Errno(libc::EAGAIN));
        }
        Ok(Some(left))
    }
}

pub(super) struct Stream {
    state: Mutex<State>,
    /// The thread that waits for completions has handled some.
    woken: Condvar,
    fd: RawFd,
}

/// The state of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// New, or bound.
    Idle,
    Listening,
    /// Waiting for the peer's answer.
    Opening,
    Connected,
    /// There was none.
    Refused,
}

pub(super) struct State {
    channel: EventChannel,
    id: Id,
    pub(super) phase: Phase,
    pub(super) settings: Settings,
    pub(super) flags: i32,
    /// The error for `SO_ERROR`.
    pub(super) error: i32,
    connection: Option<Box<Connection>>,
    /// The guests of a listening socket.
    guests: Guests,
    /// A thread waits for completions, for all.
    is_watched: bool,
    /// Others wait for it; while there is no connection, those that wait for an event.
    sleepers: u32,
}

type Guard<'a> = MutexGuard<'a, State>;

impl Stream {
    pub(super) fn new() -> Result<Stream, Errno> {
        let channel = EventChannel::with_manager(manager())?;
        let id = Id::new(&channel, PortSpace::Tcp)?;
        Ok(Stream::of(channel, id, Phase::Idle, Settings::default()))
    }

    fn of(channel: EventChannel, id: Id, phase: Phase, settings: Settings) -> Stream {
        let fd = channel.as_raw_fd();
        Stream {
            fd,
            woken: Condvar::new(),
            state: Mutex::new(State {
                channel,
                id,
                phase,
                settings,
                flags: libc::O_RDWR,
                error: 0,
                connection: None,
                guests: Guests::default(),
                is_watched: false,
                sleepers: 0,
            }),
        }
    }

    /// The descriptor by which the program names it.
    pub(super) fn fd(&self) -> RawFd {
        self.fd
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        lock(&self.state)
    }

    /// Until something holds of the connection. `EAGAIN` if that would take time that the caller has not.
    fn wait_for<'a>(
        &'a self,
        mut state: Guard<'a>,
        wait: Wait,
        holds: impl Fn(&Connection) -> bool,
    ) -> Result<Guard<'a>, Errno> {
        loop {
            let has_sleepers = state.sleepers > 0;
            let is_watched = state.is_watched;
            let connection = state.connection()?;
            connection.progress();
            if has_sleepers {
                self.woken.notify_all();
            }
            if holds(connection) {
                return Ok(state);
            }
            let left = wait.left()?;
            if is_watched {
                state.sleepers += 1;
                // Without an end it looks again now and then.
                let left = left.unwrap_or(LINGER);
                (state, _) = whole(self.woken.wait_timeout(state, left));
                state.sleepers -= 1;
                continue;
            }
            connection.arm()?;
            // What came before it was armed raises no event.
            connection.progress();
            if holds(connection) {
                return Ok(state);
            }
            let events = connection.events.clone();
            state.is_watched = true;
            drop(state);
            let waited = match left {
                Some(left) => events.wait_timeout(left),
                None => events.wait().map(Some),
            };
            state = self.lock();
            state.is_watched = false;
            if state.sleepers > 0 {
                // One of them waits from now on, if this one does not.
                self.woken.notify_all();
            }
            if let Some(cq) = waited? {
                state.connection()?.is_armed = false;
                cq.ack_events(1);
            }
        }
    }

    pub(super) fn shutdown(&self, how: i32) -> Result<(), Errno> {
        self.shut(how, Wait::Ever)
    }

    fn shut(&self, how: i32, wait: Wait) -> Result<(), Errno> {
        let (no_reads, no_writes) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::INVAL),
        };
        let mut state = self.lock();
        if state.phase != Phase::Connected {
            return Err(Errno(libc::ENOTCONN));
        }
        let connection = state.connection()?;
        connection.reads &= !no_reads;
        connection.writes &= !no_writes;
        if connection.writes || connection.link != Link::Up {
            return Ok(());
        }
        let bye = if connection.reads {
            Message::Shutdown
        } else {
            Message::Disconnect
        };
        let mut state = self.wait_for(state, wait, Connection::can_control)?;
        if state.connection()?.link == Link::Up {
            // If it cannot be sent, the peer has found out already.
            let _ = state.connection()?.send_control(bye);
        }
        drop(self.wait_for(state, wait, Connection::is_idle)?);
        Ok(())
    }

    /// The last thing that happens to it.
    pub(super) fn close(&self) {
        self.close_within(LINGER);
    }

    fn close_within(&self, linger: Duration) {
        let end = Instant::now() + linger;
        // What cannot be sent any more, or is not taken by then, is lost with the socket.
        let _ = self.shut(libc::SHUT_RDWR, Wait::Until(end));
    }

    pub(super) fn address(&self, of_peer: bool) -> Result<core::net::SocketAddr, Errno> {
        let state = self.lock();
        if of_peer {
            return state.id.peer_addr().ok_or(Errno(libc::ENOTCONN));
        }
        let any = core::net::SocketAddr::from(([0, 0, 0, 0], 0));
        Ok(state.id.local_addr().unwrap_or(any))
    }
}

impl State {
    fn connection(&mut self) -> Result<&mut Connection, Errno> {
        self.connection.as_deref_mut().ok_or(Errno(libc::ENOTCONN))
    }

    pub(super) fn is_non_blocking(&self) -> bool {
        self.flags & libc::O_NONBLOCK != 0
    }

    /// The connection exists: sizes can no longer be changed.
    pub(super) fn is_made(&self) -> bool {
        self.connection.is_some()
    }

    pub(super) fn set_option(&self, option: CmOption) -> Result<(), Errno> {
        Ok(self.id.set_option(option)?)
    }
}
