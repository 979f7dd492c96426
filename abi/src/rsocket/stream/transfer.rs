//! Sending and receiving.

use super::connection::{Connection, Link};
use super::{Guard, Phase, Stream, Wait};
use crate::errno::Errno;

/// Bytes of the first message of a call; each one after it may have twice as many, so that the first are under way
/// while the rest is copied.
pub(super) const FIRST: usize = 2048;
pub(super) const MOST: usize = 65_536;

impl Stream {
    /// The socket's state once there is a connection, and how long a call with these flags waits.
    pub(super) fn connected(&self, flags: i32) -> Result<(Guard<'_>, Wait), Errno> {
        let may_wait = flags & libc::MSG_DONTWAIT == 0;
        let mut state = self.lock();
        match state.phase {
            Phase::Connected => {}
            Phase::Opening => state = self.open(state, may_wait)?,
            _ => return Err(Errno(libc::ENOTCONN)),
        }
        let wait = Wait::of(may_wait && !state.is_non_blocking());
        Ok((state, wait))
    }

    /// Sends the parts one after the other; how much, which is less than all if waiting ends early.
    pub(in super::super) fn send(&self, parts: &[&[u8]], flags: i32) -> Result<usize, Errno> {
        let mut sent = 0;
        match self.send_all(parts, flags, &mut sent) {
            Err(errno) if sent == 0 => Err(errno),
            _ => Ok(sent),
        }
    }

    fn send_all(&self, parts: &[&[u8]], flags: i32, sent: &mut usize) -> Result<(), Errno> {
        let (mut state, wait) = self.connected(flags)?;
        let mut most = FIRST;
        for part in parts {
            let mut left = *part;
            while !left.is_empty() {
                state = self.ready_to_send(state, wait)?;
                let len = state.connection()?.send(left, most)?;
                *sent += len;
                left = &left[len..];
                most = (most * 2).min(MOST);
            }
        }
        Ok(())
    }

    /// Room for a message, and the peer knows what was mapped for it.
    pub(super) fn ready_to_send<'a>(
        &'a self,
        mut state: Guard<'a>,
        wait: Wait,
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
                connection.stalls = connection.stalls.wrapping_add(1);
                state = self.wait_for(state, wait, |connection| {
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
        let (mut state, wait) = self.connected(flags)?;
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
                    let waited = self.wait_for(state, wait, Connection::is_readable);
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
