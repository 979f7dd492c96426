//! The agent's timers: messages are sent again, and in the end given up; connections that
//! ended rest in timewait.

use super::agent::Agent;
use super::conn::State;
use super::event::CmEvent;
use super::message::Mad;
use super::terms::MadPath;
use crate::table::QpIndex;
use crate::time::Time;

/// How long after the first refusal a peer is asked again.
const FIRST_REFUSAL_NS: u64 = 10_000_000;

impl Agent {
    /// No call of [`Agent::handle_timeout`] is needed before this time.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(QpIndex(place)) = self.timers.poll_expired(now) {
            let place = place as usize;
            match self.conns.at(place).and_then(|conn| conn.deadline) {
                Some(deadline) if deadline <= now => self.expire(now, place),
                // It was put off since it was armed.
                Some(deadline) => self.timers.arm(QpIndex(place as u32), deadline),
                None => {}
            }
        }
    }

    /// Sends a message, and again until there is an answer.
    pub(super) fn send_and_wait(&mut self, now: Time, place: usize, mad: Mad) {
        if let Some(path) = self.await_answer(now, place, mad) {
            self.send(path, mad);
        }
    }

    /// Sends a message later, and again until there is an answer. Returns its way.
    pub(super) fn await_answer(&mut self, now: Time, place: usize, mad: Mad) -> Option<MadPath> {
        let conn = self.conns.at_mut(place)?;
        conn.sent = Some(Box::new(mad));
        conn.retries_left = conn.max_retries;
        let (path, wait) = (conn.path, conn.timeout_ns);
        self.arm(place, now + wait);
        Some(path)
    }

    /// The application hears that a connection has ended, if it holds it.
    pub(super) fn tell_end(&mut self, place: usize, timed_out: bool, private_data: &[u8]) {
        if let Some(conn) = self.conns.at(place).filter(|conn| conn.is_held()) {
            self.events.push_back(CmEvent::Disconnected {
                id: conn.id,
                timed_out,
                private_data: private_data.into(),
            });
        }
    }

    /// There is no listener. True if the request will be sent again, as one may come before long; it is not counted as
    /// one that was lost.
    pub(super) fn ask_again(&mut self, now: Time, place: usize) -> bool {
        let Some(conn) = self.conns.at_mut(place) else {
            return false;
        };
        if conn.refusals >= conn.max_refusals {
            return false;
        }
        let wait = FIRST_REFUSAL_NS << conn.refusals;
        conn.refusals += 1;
        conn.retries_left += 1;
        self.arm(place, now + wait);
        true
    }

    /// Connections that have ended without the peer's acknowledgement. Looks at all.
    pub fn disconnecting(&self) -> usize {
        self.conns
            .places(|conn| conn.state == State::DreqSent)
            .len()
    }

    /// Tells those once more, before it is time to; returns how many there are. Looks at all.
    pub fn repeat_disconnects(&mut self) -> usize {
        let places = self.conns.places(|conn| conn.state == State::DreqSent);
        for &place in &places {
            let found = self.conns.at(place);
            if let Some((path, mad)) = found.and_then(|conn| Some((conn.path, conn.sent.clone()?)))
            {
                self.counts.retries += 1;
                self.send(path, *mad);
            }
        }
        places.len()
    }

    pub(super) fn arm(&mut self, place: usize, deadline: Time) {
        if let Some(conn) = self.conns.at_mut(place) {
            conn.deadline = Some(deadline);
            self.timers.arm(QpIndex(place as u32), deadline);
        }
    }

    /// The connection ended: its QPN rests until no packet of it can be under way.
    pub(super) fn enter_timewait(&mut self, now: Time, place: usize) {
        self.set_state(place, State::Timewait);
        if let Some(conn) = self.conns.at(place) {
            let wait = conn.timewait_ns;
            self.arm(place, now + wait);
        }
    }

    fn expire(&mut self, now: Time, place: usize) {
        let Some(conn) = self.conns.at_mut(place) else {
            return;
        };
        conn.deadline = None;
        let (id, state, is_held) = (conn.id, conn.state, conn.is_held());
        if state == State::Timewait {
            if is_held {
                self.events.push_back(CmEvent::TimewaitExit(id));
            }
            return self.end(place);
        }
        if conn.retries_left > 0 {
            conn.retries_left -= 1;
            let (path, wait, sent) = (conn.path, conn.timeout_ns, conn.sent.clone());
            if let Some(mad) = sent {
                if self.may_send_unasked(now, place) {
                    self.counts.retries += 1;
                    self.send(path, *mad);
                }
                self.arm(place, now + wait);
            }
            return;
        }
        match state {
            State::ReqSent | State::RepSent | State::SidrSent => {
                self.events.push_back(CmEvent::Unreachable(id));
                self.end(place);
            }
            State::DreqSent => {
                self.tell_end(place, true, &[]);
                self.enter_timewait(now, place);
            }
            _ => {}
        }
    }
}
