//! Bounds: values that a peer chooses are capped, and state that it creates is evicted when there is too much, the oldest first,
//! so that a flood evicts itself and not the next request.

use core::net::IpAddr;

use urxe_wire::Qpn;

use super::agent::Agent;
use super::conn::{Conn, Holder, State, exponent_ns};
use super::conns::Conns;
use super::event::CmEvent;
use super::lines::Line;
use super::message;
use super::terms::CmError;
use crate::table::QpIndex;
use crate::time::Time;

/// Exponents of the time after which an answer is sent again: 256 ms to 4.1 s (Linux's), whatever the REQ says. A peer that
/// needs longer sends an MRA.
const RESPONSE_MIN: u8 = 16;
const RESPONSE_MAX: u8 = 20;
/// Exponent of the time after which our QP sends again: 69 s. (0 would be never.)
const ACK_TIMEOUT_MAX: u8 = 24;
/// Exponent of the time that a connection rests: 4.1 s, which no packet is under way.
const TIMEWAIT_MAX: u8 = 20;
/// Connections that were answered and not confirmed by their peer, at most.
const HALF_OPEN_MAX: usize = 1 << 14;
/// Connections in timewait without a holder, at most.
const RESTING_MAX: usize = 1 << 14;
/// Unasked messages to addresses that never answered: so many at once, and one more each time.
const UNASKED_MAX: u32 = 16;
const UNASKED_EACH_NS: u64 = 1_000_000_000 / 16;

/// How long a peer's answer is waited for, by the exponent in its REQ.
pub(super) fn response_ns(exponent: u8) -> u64 {
    exponent_ns(exponent.clamp(RESPONSE_MIN, RESPONSE_MAX))
}

/// Exponent of our QP's ACK timeout, by the one in the peer's REQ.
pub(super) fn ack_timeout(exponent: u8) -> u8 {
    match exponent {
        1..=ACK_TIMEOUT_MAX => exponent,
        _ => ACK_TIMEOUT_MAX,
    }
}

/// How long a connection rests, by the exponent in the peer's REQ.
pub(super) fn timewait_ns(exponent: u8) -> u64 {
    exponent_ns(exponent.min(TIMEWAIT_MAX))
}

/// A budget of messages that answer no packet and go to an address that never answered. The sender of the one packet
/// that they are about may have invented that address.
#[derive(Debug)]
pub(super) struct Unasked {
    left: u32,
    /// The last one that is in `left` was added then.
    since: Time,
}

impl Default for Unasked {
    fn default() -> Unasked {
        Unasked {
            left: UNASKED_MAX,
            since: Time(0),
        }
    }
}

impl Unasked {
    fn take(&mut self, now: Time) -> bool {
        let more = now.since_ns(self.since) / UNASKED_EACH_NS;
        if more > 0 {
            self.since = self.since + more * UNASKED_EACH_NS;
            let more = u32::try_from(more).unwrap_or(UNASKED_MAX);
            self.left = self.left.saturating_add(more).min(UNASKED_MAX);
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

/// Where a connection waits to be given up, if it does.
fn line_of(conn: &Conn) -> Option<Line> {
    match (conn.state, conn.holder) {
        (State::RepSent, _) => Some(Line::HalfOpen),
        (State::Timewait, Holder::Nobody) => Some(Line::Resting),
        (State::DreqSent, Holder::Nobody) => Some(Line::Leaving),
        _ => None,
    }
}

impl Agent {
    /// May a message be sent that answers no packet?
    pub(super) fn may_send_unasked(&mut self, now: Time, place: usize) -> bool {
        let has_answered = self.conns.at(place).is_some_and(|conn| conn.proven);
        has_answered || self.unasked.take(now)
    }

    /// Asks the peer whether it still knows the connection: by a DREQ for a QP that is not the connection's. A peer that has
    /// forgotten it answers with a DREP, as to any DREQ about nothing; one that has not, ignores it.
    pub(super) fn probe(&mut self, now: Time, place: usize) {
        let is_connected = |conn: &Conn| State::CONNECTED.contains(&conn.state);
        if !self.conns.at(place).is_some_and(is_connected) || !self.unasked.take(now) {
            return;
        }
        self.counts.stray += 1;
        let Some(conn) = self.conns.at_mut(place) else {
            return;
        };
        conn.probed = true;
        let (path, mad) = (conn.path, message::dreq(conn, Qpn::new(1)));
        self.send(path, mad);
    }

    /// A connection's state or holder changed.
    pub(super) fn queue_up(&mut self, place: usize) {
        let line = self.conns.at(place).and_then(line_of);
        self.conns.lines.stand(place, line);
        let (line, max) = match line {
            Some(line @ Line::HalfOpen) => (line, HALF_OPEN_MAX),
            Some(line @ Line::Resting) => (line, RESTING_MAX),
            Some(Line::Leaving) | None => return,
        };
        if self.conns.lines.len(line) > max {
            self.give_up_oldest(line);
        }
    }

    /// A peer takes no packets of this side: what waits for its answer waits no longer. Looks at all.
    pub fn give_up_peer(&mut self, remote: IpAddr) {
        let waits =
            |state: State| matches!(state, State::ReqSent | State::RepSent | State::SidrSent);
        let is_it = |conn: &Conn| conn.path.remote == remote && waits(conn.state);
        for place in self.conns.places(is_it) {
            if let Some(conn) = self.conns.at(place).filter(|conn| conn.is_held()) {
                self.events.push_back(CmEvent::Unreachable(conn.id));
            }
            self.end(place);
        }
    }

    fn give_up_oldest(&mut self, line: Line) -> bool {
        let Some(place) = self.conns.lines.oldest(line) else {
            return false;
        };
        self.counts.evicted += 1;
        if let Some(conn) = self.conns.at(place).filter(|conn| conn.is_held()) {
            self.events.push_back(CmEvent::Unreachable(conn.id));
        }
        self.end(place);
        true
    }

    /// A place for a connection. What only rests, or only waits for a peer to know that it is over, makes room.
    pub(super) fn insert(&mut self, conn: Conn) -> Result<usize, CmError> {
        if self.conns.is_full() && !self.give_up_oldest(Line::Resting) {
            self.give_up_oldest(Line::Leaving);
        }
        let place = self.conns.insert(conn);
        let place = place.ok_or(CmError::Full(Conns::LEN_MAX))?;
        self.timers.reserve(QpIndex(place as u32));
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_chooses_is_capped() {
        let seconds = |ns: u64| ns as f64 / 1e9;
        for exponent in 0..=255 {
            assert!((0.25..4.2).contains(&seconds(response_ns(exponent))));
            assert!(seconds(timewait_ns(exponent)) < 4.2);
            assert!((1..=24).contains(&ack_timeout(exponent)));
        }
        // What Linux says is taken as it is.
        assert_eq!(response_ns(20), 4096 * 1_000_000);
        assert_eq!(timewait_ns(17), 512 * 1_000_000);
        assert_eq!(ack_timeout(17), 17);
    }

    #[test]
    fn unasked_messages_are_sixteen_at_once_and_sixteen_a_second() {
        let mut unasked = Unasked::default();
        let mut taken = |at_ms: u64| {
            let now = Time(at_ms * 1_000_000);
            (0..1000).filter(|_| unasked.take(now)).count()
        };
        assert_eq!(taken(5), 16);
        assert_eq!(taken(5), 0);
        let over_time: usize = (5..1005).map(&mut taken).sum();
        assert!((15..=16).contains(&over_time), "{over_time}");
        assert_eq!(taken(1_000_000_000), 16, "they are not saved up");
    }
}
