//! When a tail is missed: nothing came for longer than a round trip should take. The oldest packet then leaves once more and
//! asks for an answer, long before the standard timer ends, and costs no retry.

use urxe_wire::Psn;

use crate::time::{Due, Time};

/// Waits are doubled so often.
const BACKOFF_MAX: u8 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probe {
    at: Due,
    backoff: u8,
    /// Where the cursor goes on after the packet that is sent once more: the request, and the PSN.
    resume: Option<(u64, Psn)>,
    /// The PSN that was sent once more.
    sent: Option<Psn>,
}

impl Probe {
    /// A packet left.
    #[inline]
    pub(crate) fn on_sent(&mut self, patience: Option<u64>, now: Time) {
        if !self.at.is_set() {
            self.arm(patience, now);
        }
    }

    /// Something was acknowledged, and more is under way if there is patience. The PSN that was sent once more since the
    /// last time.
    #[inline]
    pub(crate) fn on_progress(&mut self, patience: Option<u64>, now: Time) -> Option<Psn> {
        self.backoff = 0;
        self.at = Due::NEVER;
        if patience.is_some() {
            self.arm(patience, now);
        }
        self.sent.take()
    }

    fn arm(&mut self, patience: Option<u64>, now: Time) {
        self.at = patience.map(|ns| now + (ns << self.backoff)).into();
    }

    /// The next time at which [`Probe::expire`] would say yes.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.at.time()
    }

    /// Looks at the clock: is it time to send a packet once more?
    pub(crate) fn expire(&mut self, patience: Option<u64>, now: Time) -> bool {
        if self.deadline().is_none_or(|at| at > now) {
            return false;
        }
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
        self.arm(patience, now);
        true
    }

    /// The cursor goes to the oldest packet for one packet, and then back to where it was.
    pub(crate) fn begin(&mut self, resume: (u64, Psn)) {
        self.resume.get_or_insert(resume);
    }

    /// Where the cursor goes on, while that packet has not left.
    #[inline]
    pub(crate) fn resumes_at(&self) -> Option<Psn> {
        self.resume.map(|(_, psn)| psn)
    }

    /// That packet has not left yet.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.resume.is_some()
    }

    /// It left.
    pub(crate) fn note(&mut self, psn: Psn) {
        self.sent = Some(psn);
    }

    /// It left, or is not needed: where the cursor goes on.
    #[inline]
    pub(crate) fn end(&mut self) -> Option<(u64, Psn)> {
        self.resume.take()
    }

    /// Everything is sent again from the oldest packet on, or nothing any more.
    pub(crate) fn stop(&mut self) {
        *self = Probe {
            backoff: self.backoff,
            ..Probe::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_doubled_until_something_moves() {
        let mut probe = Probe::default();
        probe.on_sent(Some(10), Time(0));
        probe.on_sent(Some(10), Time(5));
        assert_eq!(probe.deadline(), Some(Time(10)));
        assert!(!probe.expire(Some(10), Time(9)));
        assert!(probe.expire(Some(10), Time(10)));
        assert_eq!(probe.deadline(), Some(Time(30)));
        assert!(probe.expire(Some(10), Time(30)));
        assert_eq!(probe.deadline(), Some(Time(70)));
        probe.on_progress(Some(10), Time(40));
        assert_eq!(probe.deadline(), Some(Time(50)));
        probe.on_progress(None, Time(45));
        assert_eq!(probe.deadline(), None);
    }

    #[test]
    fn what_is_not_known_is_not_waited_for() {
        let mut probe = Probe::default();
        probe.on_sent(None, Time(0));
        assert_eq!(probe.deadline(), None);
    }
}
