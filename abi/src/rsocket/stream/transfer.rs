//! Sending and receiving.

use super::connection::{Connection, Link};
use super::{Guard, Phase, Stream, Wait};
use crate::errno::Errno;

/// Bytes of the first message of a call; each one after it may have twice as many, so that the first are under way
/// while the rest is copied.
pub(super) const FIRST: usize = 2048;
pub(super) const MOST: usize = 65_536;

impl Stream {
    /// The socket's state once there is a connection.
    pub(super) fn connected(&self, may_wait: bool) -> Result<Guard<'_>, Errno> {
        let state = self.lock();
        match state.phase {
            Phase::Connected => Ok(state),
            Phase::Opening => self.open(state, may_wait),
            _ => Err(Errno(libc::ENOTCONN)),
        }
    }

    /// Sends the parts one after the other; how much, which is less than all if waiting ends early.
    pub(in super::super) fn send(&self, parts: &[&[u8]], flags: i32) -> Result<usize, Errno> {
        let may_wait = flags & libc::MSG_DONTWAIT == 0;
        let mut state = self.connected(may_wait)?;
        let may_wait = may_wait && !state.is_non_blocking();
        let (mut sent, mut most) = (0, FIRST);
        for part in parts {
            let mut left = *part;
            while !left.is_empty() {
                state = match self.ready_to_send(state, may_wait) {
                    Ok(state) => state,
                    Err(_) if sent > 0 => return Ok(sent),
                    Err(errno) => return Err(errno),
                };
                let len = match state.connection()?.send(left, most) {
                    Ok(len) => len,
                    Err(_) if sent > 0 => return Ok(sent),
                    Err(errno) => return Err(errno),
                };
                sent += len;
                left = &left[len..];
                most = (most * 2).min(MOST);
            }
        }
        Ok(sent)
    }

    /// Room for a message, and the peer knows what was mapped for it.
    pub(super) fn ready_to_send<'a>(
        &'a self,
        mut state: Guard<'a>,
        may_wait: bool,
    ) -> Result<Guard<'a>, Errno> {
        loop {
            let connection = state.connection()?;
            match connection.link {
                _ if !connection.writes => return Err(Errno(libc::EPIPE)),
                Link::Up => {}
                Link::Down => return Err(Errno(libc::ECONNRESET)),
                Link::Broken(errno) => return Err(errno),
            }
            if !connection.can_send() {
                state = self.wait_for(state, Wait::of(may_wait), |connection| {
                    connection.can_send() || connection.link != Link::Up || !connection.writes
                })?;
                continue;
            }
            if !connection.maps.has_untold() {
                return Ok(state);
            }
            connection.tell_map()?;
        }
    }

    /// Receives what there is; with `MSG_WAITALL` until all are full. 0 is the end.
    pub(in super::super) fn recv(
        &self,
        parts: &mut [&mut [u8]],
        flags: i32,
    ) -> Result<usize, Errno> {
        let peek = flags & libc::MSG_PEEK != 0;
        let to_the_end = flags & libc::MSG_WAITALL != 0 && !peek;
        let may_wait = flags & libc::MSG_DONTWAIT == 0;
        let mut state = self.connected(may_wait)?;
        let may_wait = may_wait && !state.is_non_blocking();
        let mut received = 0;
        for part in parts {
            let mut filled = 0;
            while filled < part.len() {
                let is_first = received == 0;
                let connection = state.connection()?;
                if !connection.has_data() {
                    if !is_first && !to_the_end {
                        return Ok(received);
                    }
                    let waited = self.wait_for(state, Wait::of(may_wait), Connection::is_readable);
                    state = match waited {
                        Ok(state) => state,
                        Err(_) if !is_first => return Ok(received),
                        Err(errno) => return Err(errno),
                    };
                }
                let connection = state.connection()?;
                if !connection.has_data() {
                    return match connection.link {
                        Link::Broken(errno) if is_first => Err(errno),
                        _ => Ok(received),
                    };
                }
                let len = connection.recv(&mut part[filled..], peek);
                filled += len;
                received += len;
                if peek {
                    return Ok(received);
                }
            }
        }
        // The peer may wait for the room that is there now.
        state.connection()?.progress();
        Ok(received)
    }
}

impl Connection {
    /// There is data, or there will be none.
    pub(super) fn is_readable(&self) -> bool {
        self.has_data() || !self.reads || self.link != Link::Up
    }
}
