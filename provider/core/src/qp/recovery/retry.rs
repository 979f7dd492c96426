//! Retransmission: the local ACK timeout, RNR waits, and the two counters that
//! say when to give up.

use urxe_wire::{Psn, RnrTimer};

use crate::qp::asking::Asking;
use crate::time::{Due, Time};

/// The shortest ACK timeout that is used. The timeout code counts from 4 us, but a
/// responder in user space may be scheduled out, or hold an ACK back for its reply:
/// asking again before this would only make duplicates. The specification allows
/// any wait between the coded time and four times that; codes of 10 and more are
/// above this floor anyway.
const TIMEOUT_FLOOR_NS: u64 = 4_000_000;

/// The counter value that means "for ever" (RNR retries only).
const RNR_RETRY_FOREVER: u8 = 7;

/// A retry counter ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    /// The code of the local ACK timeout; 0 is never.
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_left: u8,
    ack_deadline: Due,
    rnr_until: Due,
    /// PSN that the last RNR NAK was about, while nothing has moved since.
    rnr_at: Option<Psn>,
    /// PSN that the requester went back to last, while nothing has moved since.
    rewound_to: Option<Psn>,
    /// The oldest packet when a retry was counted last.
    counted_at: Option<Psn>,
    /// When an answer is asked for at all. (It lies here because there is room: a QP is no longer for it.)
    pub(crate) asking: Asking,
}

impl Retry {
    /// Timeout code and counters as `ibv_modify_qp` sets them.
    pub(crate) fn configure(&mut self, timeout: u8, retry_cnt: u8, rnr_retry: u8) {
        self.timeout = timeout;
        (self.retry_cnt, self.rnr_retry) = (retry_cnt, rnr_retry);
        (self.retries_left, self.rnr_left) = (retry_cnt, rnr_retry);
    }

    /// When an answer to what leaves now is late.
    #[inline]
    fn late_at(&self, now: Time) -> Due {
        // IBTA 9.7.6.1.3: 4.096 us * 2^code, 0 is never; twice that is within the
        // tolerance and leaves room for a busy peer.
        let coded = 8192u64 << self.timeout;
        let late = (self.timeout != 0).then(|| now + coded.max(TIMEOUT_FLOOR_NS));
        late.into()
    }

    /// An answer may take so long that an ACK which the peer sends by itself after some milliseconds is not late.
    #[inline]
    pub(crate) fn is_patient(&self) -> bool {
        /// 17 ms.
        const PATIENT_FROM: u8 = 11;
        self.timeout == 0 || self.timeout >= PATIENT_FROM
    }

    /// How long an answer may take.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        self.late_at(Time::ZERO).time().map(|at| at.0)
    }

    /// A packet left.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time) {
        if !self.ack_deadline.is_set() {
            self.ack_deadline = self.late_at(now);
        }
    }

    /// Nothing is under way: the clock starts with the next packet.
    pub(crate) fn await_send(&mut self) {
        self.ack_deadline = Due::NEVER;
    }

    /// The peer acknowledged something new.
    #[inline]
    pub(crate) fn on_progress(&mut self, now: Time, all_acknowledged: bool) {
        self.retries_left = self.retry_cnt;
        // Of an RNR NAK that acknowledges requests before its own, that came first.
        if !self.rnr_until.is_set() {
            self.rnr_at = None;
        }
        self.rewound_to = None;
        self.ack_deadline = if all_acknowledged {
            Due::NEVER
        } else {
            self.late_at(now)
        };
    }

    /// A sequence NAK or a missing response, while `una` is the oldest packet: go back to `psn`? Once per gap, until
    /// something moves or time runs out.
    pub(crate) fn on_sequence_error(
        &mut self,
        now: Time,
        psn: Psn,
        una: Psn,
    ) -> Result<bool, Exhausted> {
        if self.rewound_to == Some(psn) || self.rnr_until.is_set() {
            return Ok(false);
        }
        self.count(una).ok_or(Exhausted)?;
        self.rewound_to = Some(psn);
        self.ack_deadline = self.late_at(now);
        Ok(true)
    }

    /// Counts a retry of what is under way from `una` on. What refills the counter is also that something was acknowledged since the last, as a
    /// NAK does for what is before its PSN.
    fn count(&mut self, una: Psn) -> Option<()> {
        if self.counted_at.replace(una) != Some(una) {
            self.retries_left = self.retry_cnt;
        }
        self.retries_left = self.retries_left.checked_sub(1)?;
        Some(())
    }

    /// An RNR NAK for the request at `una`: wait. What refills the counter is that something was acknowledged since the last, which the
    /// NAK does for the requests before its PSN and no others.
    pub(crate) fn on_rnr(&mut self, now: Time, timer: RnrTimer, una: Psn) -> Result<(), Exhausted> {
        if self.rnr_at.replace(una) != Some(una) {
            self.rnr_left = self.rnr_retry;
        }
        if self.rnr_retry != RNR_RETRY_FOREVER {
            self.rnr_left = self.rnr_left.checked_sub(1).ok_or(Exhausted)?;
        }
        self.rnr_until = Due::at(now + timer.duration_ns());
        self.ack_deadline = Due::NEVER;
        Ok(())
    }

    /// An RNR NAK for a request behind others, from `una` on, that are not answered yet: waits as long, and counts nothing. True if it is not
    /// the first, with a wait between them.
    pub(crate) fn wait_for_answers(&mut self, now: Time, timer: RnrTimer, una: Psn) -> bool {
        self.ack_deadline = Due::NEVER;
        if self.waits_for_rnr() {
            return false;
        }
        self.rnr_until = Due::at(now + timer.duration_ns());
        self.rnr_at.replace(una) == Some(una)
    }

    /// True if packets may be sent again once more.
    pub(crate) fn has_left(&self) -> bool {
        self.retries_left > 0
    }

    /// True while an RNR NAK keeps everything waiting.
    #[inline]
    pub(crate) fn waits_for_rnr(&self) -> bool {
        self.rnr_until.is_set()
    }

    /// The next time at which [`Retry::expire`] would do something.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.rnr_until.time().or(self.ack_deadline.time())
    }

    /// If [`Retry::expire`] would count a timeout: the oldest packet that is not acknowledged left before this time.
    pub(crate) fn late_since(&self, now: Time) -> Option<Time> {
        let deadline = self
            .ack_deadline
            .time()
            .filter(|&deadline| deadline <= now)?;
        let is_waiting = self.rnr_until.is_set();
        (!is_waiting).then(|| Time(deadline.0.saturating_sub(self.timeout_ns().unwrap_or(0))))
    }

    /// What was sent is known not to be lost: waits as long again, and counts nothing.
    pub(crate) fn wait_again(&mut self, now: Time) {
        self.ack_deadline = self.late_at(now);
    }

    /// Looks at the clock, while `una` is the oldest packet.
    pub(crate) fn expire(&mut self, now: Time, una: Psn) -> Expired {
        if let Some(until) = self.rnr_until.time() {
            if until > now {
                return Expired::Nothing;
            }
            self.rnr_until = Due::NEVER;
            return Expired::RnrOver;
        }
        match self.ack_deadline.time() {
            Some(deadline) if deadline <= now => {}
            _ => return Expired::Nothing,
        }
        match self.count(una) {
            None => Expired::GiveUp,
            Some(()) => {
                self.rewound_to = None;
                self.ack_deadline = self.late_at(now);
                Expired::AckTimeout
            }
        }
    }

    /// Stops all clocks.
    pub(crate) fn stop(&mut self) {
        self.ack_deadline = Due::NEVER;
        self.rnr_until = Due::NEVER;
    }
}

/// What [`Retry::expire`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// Nothing is due.
    Nothing,
    /// The RNR wait is over: go on.
    RnrOver,
    /// No answer in time: send again.
    AckTimeout,
    /// No answer, too often.
    GiveUp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(timeout: u8, retry_cnt: u8, rnr_retry: u8) -> Retry {
        let mut r = Retry::default();
        r.configure(timeout, retry_cnt, rnr_retry);
        r
    }

    #[test]
    fn a_timeout_lies_between_once_and_four_times_the_code() {
        for code in 10..=31u8 {
            let mut r = retry(code, 7, 7);
            r.on_sent(Time(5));
            let wait = r.deadline().expect("armed").0 - 5;
            let coded = 4096u64 << code;
            assert!(
                (coded..=4 * coded).contains(&wait),
                "code {code}: {wait} for {coded}"
            );
        }
        let mut never = retry(0, 7, 7);
        never.on_sent(Time(0));
        assert_eq!(never.deadline(), None);
    }

    #[test]
    fn gives_up_after_retry_cnt_timeouts() {
        let mut r = retry(14, 2, 7);
        r.on_sent(Time(0));
        let mut now = r.deadline().expect("armed");
        assert_eq!(r.expire(Time(now.0 - 1), Psn::ZERO), Expired::Nothing);
        for _ in 0..2 {
            assert!(r.has_left());
            assert_eq!(r.expire(now, Psn::ZERO), Expired::AckTimeout);
            now = r.deadline().expect("armed again");
        }
        assert!(!r.has_left());
        assert_eq!(r.expire(now, Psn::ZERO), Expired::GiveUp);
    }

    #[test]
    fn progress_refills_the_counters_and_stops_the_clock_when_all_is_done() {
        let mut r = retry(14, 1, 1);
        r.on_sent(Time(0));
        assert_eq!(
            r.expire(r.deadline().expect("armed"), Psn::ZERO),
            Expired::AckTimeout
        );
        r.on_progress(Time(10), true);
        assert_eq!(r.deadline(), None);
        r.on_sent(Time(20));
        assert_eq!(
            r.expire(r.deadline().expect("armed"), Psn::ZERO),
            Expired::AckTimeout
        );
    }

    #[test]
    fn packets_that_are_not_lost_cost_no_retry() {
        let mut r = retry(14, 0, 7);
        r.on_sent(Time(0));
        let mut since = Time(0);
        for _ in 0..100 {
            let late = r.deadline().expect("armed");
            assert_eq!(r.late_since(Time(late.0 - 1)), None);
            assert_eq!(r.late_since(late), Some(since));
            r.wait_again(late);
            since = late;
            assert_eq!(r.expire(late, Psn::ZERO), Expired::Nothing);
        }
        let late = r.deadline().expect("armed");
        assert_eq!(r.expire(late, Psn::ZERO), Expired::GiveUp);
    }

    #[test]
    fn one_step_back_for_one_gap() {
        let mut r = retry(14, 1, 7);
        let mut error =
            |now, psn, una| r.on_sequence_error(Time(now), Psn::new(psn), Psn::new(una));
        assert_eq!(error(0, 9, 9), Ok(true));
        assert_eq!(error(1, 9, 9), Ok(false));
        assert_eq!(error(2, 11, 9), Err(Exhausted));
        // What is before it was acknowledged with it.
        assert_eq!(error(3, 10, 10), Ok(true));
        assert_eq!(error(4, 12, 10), Err(Exhausted));
    }

    #[test]
    fn what_a_nak_acknowledges_refills_the_counter_before_it_counts() {
        let mut r = retry(14, 1, 7);
        r.on_sent(Time(0));
        let first = r.deadline().expect("armed");
        assert_eq!(r.expire(first, Psn::new(9)), Expired::AckTimeout);
        assert_eq!(
            r.on_sequence_error(first, Psn::new(10), Psn::new(10)),
            Ok(true)
        );
        let second = r.deadline().expect("armed");
        assert_eq!(r.expire(second, Psn::new(10)), Expired::GiveUp);
        let third = r.deadline().expect("armed");
        assert_eq!(r.expire(third, Psn::new(11)), Expired::AckTimeout);
    }

    #[test]
    fn an_rnr_nak_that_acknowledges_is_the_first_of_its_request() {
        let mut r = retry(14, 7, 1);
        let timer = RnrTimer::new(12);
        r.on_sent(Time(0));
        assert_eq!(r.on_rnr(Time(0), timer, Psn::new(1)), Ok(()));
        // It acknowledged the request before.
        r.on_progress(Time(0), false);
        assert_eq!(r.expire(Time(640_000), Psn::ZERO), Expired::RnrOver);
        let second = r.on_rnr(Time(640_000), timer, Psn::new(1));
        assert_eq!(second, Err(Exhausted));
        let other = r.on_rnr(Time(640_000), timer, Psn::new(2));
        assert_eq!(other, Ok(()));
    }

    #[test]
    fn an_rnr_nak_refills_no_counter() {
        let mut r = retry(14, 1, 7);
        r.on_sent(Time(0));
        assert_eq!(
            r.expire(r.deadline().expect("armed"), Psn::ZERO),
            Expired::AckTimeout
        );
        for _ in 0..3 {
            assert_eq!(r.on_rnr(Time(0), RnrTimer::new(12), Psn::ZERO), Ok(()));
            let until = r.deadline().expect("it waits");
            assert_eq!(r.expire(until, Psn::ZERO), Expired::RnrOver);
        }
        r.on_sent(Time(0));
        assert_eq!(
            r.expire(r.deadline().expect("armed"), Psn::ZERO),
            Expired::GiveUp
        );
    }

    #[test]
    fn rnr_waits_its_time_and_seven_is_for_ever() {
        let mut r = retry(14, 7, 1);
        let timer = RnrTimer::new(12);
        assert_eq!(r.on_rnr(Time(0), timer, Psn::ZERO), Ok(()));
        assert!(r.waits_for_rnr());
        assert_eq!(
            r.on_sequence_error(Time(1), Psn::new(1), Psn::new(1)),
            Ok(false),
            "ignored while waiting"
        );
        assert_eq!(r.expire(Time(639_999), Psn::ZERO), Expired::Nothing);
        assert_eq!(r.expire(Time(640_000), Psn::ZERO), Expired::RnrOver);
        assert_eq!(r.on_rnr(Time(0), timer, Psn::ZERO), Err(Exhausted));
        let mut forever = retry(14, 7, 7);
        for _ in 0..1000 {
            assert_eq!(forever.on_rnr(Time(0), timer, Psn::ZERO), Ok(()));
        }
    }
}
