//! Readiness of a socket, for `rpoll`.

use std::os::fd::{AsRawFd, RawFd};

use super::connection::Link;
use super::{Phase, Stream};
use crate::errno::Errno;
use crate::rsocket::wire::Message;

impl Stream {
    /// Which of the events hold, beside those that are always told.
    pub(in super::super) fn ready(&self, events: i16) -> i16 {
        let mut state = self.lock();
        if state.phase == Phase::Opening && state.advance().is_err() {
            state.phase = Phase::Refused;
        }
        match state.phase {
            Phase::Idle | Phase::Opening => 0,
            Phase::Listening => {
                let has_guest = state.has_guest();
                events & if has_guest { libc::POLLIN } else { 0 }
            }
            Phase::Refused => events & (libc::POLLIN | libc::POLLOUT) | libc::POLLERR,
            Phase::Connected => {
                let has_sleepers = state.sleepers > 0;
                let Ok(connection) = state.connection() else {
                    return libc::POLLERR;
                };
                connection.progress();
                if has_sleepers {
                    self.woken.notify_all();
                }
                let mut found = 0;
                if connection.is_readable() {
                    found |= libc::POLLIN;
                }
                if connection.can_send() {
                    found |= libc::POLLOUT;
                }
                if !connection.reads || connection.link != Link::Up {
                    found |= libc::POLLRDHUP;
                }
                let always = match connection.link {
                    // A program that has not read all is not told of the end yet.
                    _ if connection.has_data() => 0,
                    Link::Up => 0,
                    Link::Down => libc::POLLHUP,
                    Link::Broken(_) => libc::POLLERR,
                };
                found & events | always
            }
        }
    }

    /// How often something came, and how often there was no room to send: numbers to compare.
    pub(in super::super) fn turns(&self) -> [u32; 2] {
        let mut state = self.lock();
        let guests = state.guests.came();
        match state.connection() {
            Ok(connection) => [connection.news, connection.stalls],
            Err(_) => [guests, 0],
        }
    }

    /// Asks the peer for a sign of life. If there is none, the connection fails by the retries of its QP.
    pub(in super::super) fn probe(&self) {
        let mut state = self.lock();
        let has_sleepers = state.sleepers > 0;
        if state.phase != Phase::Connected {
            return;
        }
        let Ok(connection) = state.connection() else {
            return;
        };
        connection.progress();
        if connection.link == Link::Up && connection.can_control() {
            // What fails is seen in `link`.
            let _ = connection.send_control(Message::KeepAlive);
        }
        if has_sleepers {
            self.woken.notify_all();
        }
    }

    /// A descriptor that becomes readable when that may have changed. Ask again afterwards, before waiting.
    pub(in super::super) fn arm(&self) -> Result<RawFd, Errno> {
        let mut state = self.lock();
        if state.phase != Phase::Connected {
            return Ok(self.fd);
        }
        let connection = state.connection()?;
        connection.arm()?;
        Ok(connection.events.as_raw_fd())
    }

    /// After that descriptor was readable: the event is taken.
    pub(in super::super) fn disarm(&self) {
        let mut state = self.lock();
        if state.phase != Phase::Connected {
            return;
        }
        if let Ok(connection) = state.connection()
            && let Ok(Some(cq)) = connection.events.try_get()
        {
            cq.ack_events(1);
            connection.is_armed = false;
        }
    }
}
