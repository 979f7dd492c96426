//! When an owed ACK leaves. An ACK costs both sides a packet; most of the time the peer does not
//! wait for it, and goes on with its next message. But a peer
//! that waits for the completion of its last message waits for the ACK.
//!
//! Which kind a peer is, is learned: if its next message arrives before the
//! ACK left, it was not waiting. If twice in a row nothing came until the patience
//! was over, it probably was, and for some messages ACKs leave promptly.

use crate::qp::asking::{PAIRS_FROM, add_asked};
use crate::time::Time;

/// How long a peer that was not seen waiting may be silent until an ACK leaves: longer
/// than a round trip between processes of one host, and far below any ACK timeout. `urxe bench write --lat` is 1.4
/// of the floor; without any patience 2.3, as each ACK is a packet of its own beside its answer.
const PATIENCE_NS: u64 = 8_000;
/// How long an ACK waits for the answer of an application that looks at its memory
/// ([`AckMode::Answered`](crate::AckMode::Answered)): several times what it needs to see the
/// change and to post. `ib_write_lat` takes 7 us a message; with 5 us here 7 to 185, with none 890.
pub const ANSWER_NS: u64 = 20_000;
/// After a packet without an answer none is expected, until requests follow packets soon enough again: one, then twice as
/// many each time, up to this. Two programs that send to each other at the same moment and wait for both ACKs look like two
/// that answer. Of 100,000 ACKs of such an exchange 83 are late; if one request were enough each time, all
/// (`an_exchange_is_not_taken_for_answers_for_long`).
const FOLLOWED_MAX: u16 = 4096;
/// Packets after which an ACK leaves in any case, so that windows and queues move on: `urxe bench write` is 0.74 of the floor,
/// and 0.68 without a limit.
const PACKETS_MAX: u16 = 16;
/// Times in a row that the patience ran out before the peer is taken to be waiting. After the first time already, a program
/// that waits for every third message would be sent three ACKs in place of one (`waiting_now_and_then_is_not_waiting_always`).
const EXPIRED_MAX: u8 = 2;
/// ACKs that then leave promptly. Trying again costs a waiting peer two patiences: 50 of 100,000 ACKs are late, and 3000 if
/// it were 64 (`a_peer_that_always_waits_is_tried_rarely`).
const PROMPT_ACKS: u16 = 4096;
/// Messages that did not ask are acknowledged when nothing came for so long. (A requester that goes on asks sooner than that: `asking.rs`.)
const UNASKED_NS: u64 = 500_000;

/// The ACK that the responder owes, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwedAck {
    owed: bool,
    /// Leave at the next occasion, whatever else is known.
    urgent: bool,
    /// When the last packet was executed: the peer has been silent since.
    since: Time,
    /// Packets executed since the last ACK.
    packets: u16,
    /// Receives that the peer still believes in, by what the last ACK said; `None` if
    /// it was told that there is no limit. A peer that believes in none must wait.
    credits_left: Option<u32>,
    /// A receive was used up since the last ACK: the peer is one that needs credits.
    receive_used: bool,
    expired_in_a_row: u8,
    prompt_left: u16,
    /// The application answers packets.
    is_answer_expected: bool,
    /// A message that did not ask was executed since the last ACK.
    unasked: bool,
    /// Messages that asked since the last one that did not.
    asked_in_a_row: u8,
    /// Requests that must follow until one is expected again.
    follow_left: u16,
    /// How many it will be the next time.
    follow_next: u16,
}

impl OwedAck {
    /// Nothing is owed, and the peer was not told of any receives.
    pub(crate) fn new() -> Self {
        OwedAck {
            owed: false,
            urgent: false,
            since: Time::ZERO,
            packets: 0,
            credits_left: Some(0),
            receive_used: false,
            expired_in_a_row: 0,
            prompt_left: 0,
            is_answer_expected: true,
            unasked: false,
            asked_in_a_row: 0,
            follow_left: 0,
            follow_next: 1,
        }
    }

    /// The peer is told how many receives there are; `None` means no limit.
    #[inline]
    pub(crate) fn on_credits_told(&mut self, credits: Option<u32>) {
        self.credits_left = credits;
    }

    /// The peer used a receive up.
    #[inline]
    pub(crate) fn on_receive_used(&mut self) {
        self.credits_left = self.credits_left.map(|left| left.saturating_sub(1));
        self.receive_used = true;
    }

    /// True if an ACK is owed.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.owed
    }

    /// A packet of the peer was executed; `wanted` if it asked for an ACK.
    #[inline]
    pub(crate) fn on_executed(&mut self, now: Time, wanted: bool) {
        self.packets = self.packets.saturating_add(1);
        if self.owed {
            // It went on without the ACK.
            self.expired_in_a_row = 0;
        }
        self.owed |= wanted;
        self.since = now;
    }

    /// The packet was the last of a message; `wanted` if it asked for an ACK.
    #[inline]
    pub(crate) fn on_message(&mut self, wanted: bool) {
        if wanted {
            add_asked(&mut self.asked_in_a_row, 1);
        } else {
            self.asked_in_a_row = 0;
            self.unasked = true;
        }
    }

    /// The ACK may be the end of a pair: the peer knows that the messages which it sends now are answered so.
    #[inline]
    pub(crate) fn may_end_pair(&self) -> bool {
        self.owed && self.asked_in_a_row == PAIRS_FROM
    }

    /// When an ACK leaves all the same.
    #[inline]
    pub(crate) fn unasked_until(&self) -> Option<Time> {
        self.unasked.then(|| self.since + UNASKED_NS)
    }

    /// Messages that did not ask are acknowledged, too, after a while.
    #[cold]
    pub(crate) fn expire(&mut self, now: Time) {
        if self.unasked_until().is_some_and(|until| until <= now) {
            self.owe_unasked();
        }
    }

    /// An ACK is owed at once if there is anything that it would acknowledge.
    pub(crate) fn owe_unasked(&mut self) {
        if core::mem::take(&mut self.unasked) {
            mark!(UnaskedAcknowledged);
            self.owe_now();
        }
    }

    /// An ACK is owed for another reason, and the peer needs it now.
    #[inline]
    pub(crate) fn owe_now(&mut self) {
        self.owed = true;
        self.urgent = true;
    }

    /// A response or a NAK said what the ACK would have said, or nothing is to be
    /// said any more.
    #[inline]
    pub(crate) fn cancel(&mut self) {
        self.owed = false;
        self.urgent = false;
        self.packets = 0;
        self.receive_used = false;
        self.unasked = false;
    }

    /// The peer may have run out of credits: it cannot go on without the ACK.
    #[inline]
    fn is_starving(&self) -> bool {
        self.receive_used && self.credits_left == Some(0)
    }

    /// The time at which an owed ACK should not be held back any longer.
    #[inline]
    pub(crate) fn due_at(&self) -> Time {
        // A WRITE's ACK waits for the answer, if there used to be one.
        let is_prompt = self.prompt_left > 0 && (self.receive_used || !self.is_answer_expected);
        if self.urgent || is_prompt || self.is_starving() || self.packets >= PACKETS_MAX {
            Time::ZERO
        } else {
            self.since + PATIENCE_NS
        }
    }

    /// True if that time has come.
    #[inline]
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.due_at() <= now
    }

    /// True if the application will not answer, or would have by now: time for the ACK
    /// that a thread owes which fetches packets in the application's place
    /// ([`AckMode::Answered`](crate::AckMode::Answered)).
    pub(crate) fn is_unanswered(&self, now: Time) -> bool {
        self.urgent
            // For messages it polls, or sleeps.
            || self.receive_used
            || !self.is_answer_expected
            || self.packets >= PACKETS_MAX
            || now.since_ns(self.since) >= ANSWER_NS
    }

    /// The ACK leaves with requests that perhaps answer what came last.
    #[inline]
    pub(crate) fn on_answer(&mut self) {
        if self.is_answer_expected {
            self.follow_next = 1;
        }
    }

    /// Requests leave, all ACKs before them.
    #[inline]
    pub(crate) fn on_requests(&mut self, now: Time) {
        if !self.is_answer_expected {
            self.on_requests_after_ack(now);
        }
    }

    /// The ACK should perhaps have waited for them.
    #[cold]
    fn on_requests_after_ack(&mut self, now: Time) {
        if now.since_ns(self.since) < ANSWER_NS {
            self.follow_left = self.follow_left.saturating_sub(1);
            self.is_answer_expected = self.follow_left == 0;
        }
    }

    /// No request left in time.
    fn on_unanswered(&mut self) {
        if core::mem::take(&mut self.is_answer_expected) {
            self.follow_left = self.follow_next;
            self.follow_next = (2 * self.follow_next).min(FOLLOWED_MAX);
        }
    }

    /// The ACK leaves.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time) {
        let is_late = !self.urgent
            && !self.is_starving()
            && self.packets < PACKETS_MAX
            && now.since_ns(self.since) >= PATIENCE_NS;
        if is_late {
            self.on_unanswered();
        }
        if self.prompt_left > 0 {
            self.prompt_left -= 1;
        } else if is_late {
            self.expired_in_a_row += 1;
            if self.expired_in_a_row >= EXPIRED_MAX {
                self.expired_in_a_row = 0;
                self.prompt_left = PROMPT_ACKS;
            }
        }
        self.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To a peer that knows of plenty of receives.
    fn owed_ack() -> OwedAck {
        let mut ack = OwedAck::new();
        ack.on_credits_told(None);
        ack
    }

    #[test]
    fn a_peer_without_credits_waits_and_gets_its_ack() {
        let mut ack = OwedAck::new();
        ack.on_credits_told(Some(2));
        ack.on_executed(Time(0), true);
        ack.on_receive_used();
        assert!(!ack.is_due(Time(0)));
        ack.on_executed(Time(0), true);
        ack.on_receive_used();
        assert!(ack.is_due(Time(0)));
    }

    #[test]
    fn a_peer_that_goes_on_gets_one_ack_for_many_packets() {
        let mut ack = owed_ack();
        for n in 1..PACKETS_MAX {
            ack.on_executed(Time(u64::from(n) * 100), true);
            assert!(
                ack.is_owed() && !ack.is_due(Time(u64::from(n) * 100)),
                "{n}"
            );
        }
        ack.on_executed(Time(2000), true);
        assert!(ack.is_due(Time(2000)));
        ack.on_sent(Time(2000));
        assert!(!ack.is_owed());
    }

    #[test]
    fn a_peer_that_waits_is_found_out() {
        let mut ack = owed_ack();
        let mut now = 0;
        for _ in 0..EXPIRED_MAX {
            ack.on_executed(Time(now), true);
            assert!(!ack.is_due(Time(now)));
            now += PATIENCE_NS;
            assert!(ack.is_due(Time(now)));
            ack.on_sent(Time(now));
        }
        for n in 0..PROMPT_ACKS {
            ack.on_executed(Time(now), true);
            assert!(ack.is_due(Time(now)), "{n}");
            ack.on_sent(Time(now));
        }
        ack.on_executed(Time(now), true);
        assert!(!ack.is_due(Time(now)), "and is tried again later");
    }

    #[test]
    fn a_peer_that_always_waits_is_tried_rarely() {
        let mut ack = owed_ack();
        let mut now = 0;
        let mut delayed = 0;
        for _ in 0..100_000 {
            ack.on_executed(Time(now), true);
            if !ack.is_due(Time(now)) {
                now += PATIENCE_NS;
                delayed += 1;
            }
            ack.on_sent(Time(now));
        }
        assert!(delayed < 70, "{delayed} of 100,000 ACKs were late");
    }

    /// A peer that waits gets the ACKs of its WRITEs with the answers to them.
    #[test]
    fn the_ack_for_a_peer_that_waits_leaves_with_the_answer() {
        let (mut ack, mut now) = waited_for();
        let mut alone = 0;
        for _ in 0..1000 {
            ack.on_executed(Time(now), true);
            if ack.is_due(Time(now)) {
                ack.on_sent(Time(now));
                alone += 1;
            }
            now += PATIENCE_NS / 2;
            if ack.is_owed() {
                ack.on_answer();
                ack.on_sent(Time(now));
            }
            ack.on_requests(Time(now));
        }
        assert!((1..=8).contains(&alone), "{alone} of 1000 ACKs left alone");
    }

    /// Two programs that send at the same moment, and send again when they have their ACKs,
    /// would wait for each other.
    #[test]
    fn an_exchange_is_not_taken_for_answers_for_long() {
        let (mut ack, mut now) = waited_for();
        let mut late = 0;
        for _ in 0..100_000 {
            ack.on_executed(Time(now), true);
            if !ack.is_due(Time(now)) {
                now += PATIENCE_NS;
                late += 1;
            }
            ack.on_sent(Time(now));
            now += 1_000;
            ack.on_requests(Time(now));
        }
        assert!(late < 150, "{late} of 100,000 ACKs were late");
    }

    fn waited_for() -> (OwedAck, u64) {
        let mut ack = owed_ack();
        let mut now = 0;
        for _ in 0..EXPIRED_MAX {
            ack.on_executed(Time(now), true);
            now += PATIENCE_NS;
            ack.on_sent(Time(now));
        }
        (ack, now)
    }

    #[test]
    fn waiting_now_and_then_is_not_waiting_always() {
        let mut ack = owed_ack();
        let mut now = 0;
        for round in 0..100 {
            // A few messages in a row, then one that is waited for.
            for _ in 0..3 {
                ack.on_executed(Time(now), true);
                assert!(!ack.is_due(Time(now)), "{round}");
                now += PATIENCE_NS - 1;
                assert!(!ack.is_due(Time(now)), "{round}");
            }
            now += PATIENCE_NS;
            ack.on_sent(Time(now));
        }
    }
}
