//! What is found out about a peer of which nothing is known, by what it does about a loss. Until then it is sent nothing
//! that it might not know.
//!
//! **The requester tries.** At a NAK it sends the missing packet again alone, and goes on. A peer that drops what is ahead
//! of a gap misses the next packet at once, and then the next: the requester goes back as ever. A peer that keeps it acknowledges or answers in one
//! step what was sent once only. Of such a peer an ACK is believed that says which packets are here.
//!
//! READs and atomics may be under way meanwhile. They leave as toward any adapter: once, with AckReq, no more of them than `max_rd_atomic` until
//! each is answered whole. Answers are kept and asked for again as between two that tell each other, since the peer need not help with that; a
//! part of an answer that ends before its request does is asked for once the peer is known to keep.
//!
//! **The responder looks.** A requester that goes back sends again what is behind a gap, a round trip after the NAK. If
//! that does not come, gap after gap and for longer than a round trip takes, the requester tries; from then on it is told which
//! packets are here.

use urxe_wire::Psn;

use crate::time::Time;

/// Packets that must be missed one after the other until the requester goes back: two may be lost in a row.
const STEPS_MAX: u8 = 2;
/// Attempts in a row that end so: then the peer is one that drops, or the road one that loses many in a row.
const FAILURES_MAX: u8 = 3;
/// Gaps that the missing packet alone must fill, each with so many packets behind it.
const GAPS_MIN: u8 = 4;
const BEHIND_MIN: u32 = 8;
/// Packets that come again in order before it is clear that the requester went back, and how many of them may be lost.
const RUN_MIN: u8 = 3;
const RUN_STEP: u32 = 4;

/// What a requester has found out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trial {
    /// The end of the request packet that was sent again alone: what is behind it was sent once.
    pub(super) alone: Option<Psn>,
    /// The peer keeps what is ahead of a gap.
    pub(super) keeps: bool,
    /// It said which packets are here.
    pub(super) is_told: bool,
    steps: u8,
    failures: u8,
}

/// What a responder has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Gaps that the missing packet filled alone since the requester went back last, and when the first was filled.
    gaps: u8,
    since: Time,
    /// The end of the last packet that came again, and how many did in order.
    again: Psn,
    run: u8,
}

impl Trial {
    /// From here on it cannot be said what was sent once.
    pub(super) fn stop(&mut self) {
        (self.alone, self.steps) = (None, 0);
    }

    /// The peer drops what is ahead of a gap.
    pub(super) fn is_over(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// What it says of the peer that it has everything before `end`, and misses what is there or does not say so. False if it drops
    /// what is ahead, as far as this tells.
    pub(super) fn take(&mut self, end: Psn, misses: bool) -> bool {
        let Some(alone) = self.alone else {
            return true;
        };
        if end.is_after(alone) {
            mark!(PeerKeeps if !self.keeps);
            (self.keeps, self.failures) = (true, 0);
            self.stop();
        } else if end == alone && misses {
            self.steps += 1;
            self.failures += u8::from(self.steps == STEPS_MAX);
        }
        self.steps < STEPS_MAX
    }
}

impl Seen {
    /// A request packet came again that stands for so many PSNs.
    pub(crate) fn note_again(&mut self, psn: Psn, span: u32) {
        let is_in_order = !psn.is_before(self.again) && psn.distance_from(self.again) < RUN_STEP;
        self.run = if is_in_order {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.again = psn.add(span);
        if self.run >= RUN_MIN {
            self.gaps = 0;
        }
    }

    /// A gap is filled, and so many packets that were kept behind it are executed. True if that is enough.
    pub(super) fn note_filled(&mut self, packets: u32, look_ns: u64, now: Time) -> bool {
        if packets < BEHIND_MIN {
            return false;
        }
        if self.gaps == 0 {
            self.since = now;
        }
        self.gaps = self.gaps.saturating_add(1);
        self.gaps >= GAPS_MIN && now.since_ns(self.since) >= look_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn psn(n: u32) -> Psn {
        Psn::new(n)
    }

    #[test]
    fn a_jump_says_that_the_peer_keeps_and_the_next_gap_that_it_does_not() {
        let tried = Trial {
            alone: Some(psn(6)),
            ..Trial::default()
        };
        let mut jumped = tried;
        assert!(jumped.take(psn(9), true));
        assert!(jumped.keeps);
        let mut missed = tried;
        assert!(missed.take(psn(6), false), "only filled");
        assert!(!missed.keeps && missed.take(psn(6), true), "two in a row");
        missed.alone = Some(psn(7));
        assert!(!missed.keeps && !missed.take(psn(7), true));
        assert_eq!(missed.failures, 1);
        let mut stopped = tried;
        stopped.stop();
        assert!(stopped.take(psn(9), true) && !stopped.keeps);
    }

    #[test]
    fn a_requester_is_believed_after_some_gaps_and_a_second() {
        let mut seen = Seen::default();
        let fill = |seen: &mut Seen, ms: u64| seen.note_filled(20, SECOND, Time(ms * 1_000_000));
        for ms in [0, 20, 40, 60, 900] {
            assert!(!fill(&mut seen, ms));
        }
        assert!(
            !seen.note_filled(3, SECOND, Time(2_000_000_000)),
            "few behind it"
        );
        assert!(fill(&mut seen, 1000));
        let mut few = Seen::default();
        assert!(!fill(&mut few, 0) && !fill(&mut few, 5000) && !fill(&mut few, 6000));
        assert!(fill(&mut few, 7000));
    }

    #[test]
    fn one_that_goes_back_is_not() {
        let mut seen = Seen::default();
        for gap in 0..100 {
            assert!(!seen.note_filled(50, SECOND, Time(gap * 50_000_000)));
            // Late packets come twice alone; going back, most come.
            for n in [1, 2, 5, 7] {
                seen.note_again(psn(gap as u32 * 100 + n), 1);
            }
        }
        for gap in 0..5 {
            assert_eq!(
                seen.note_filled(50, SECOND, Time((200 + gap) * 500_000_000)),
                gap >= 3
            );
            seen.note_again(psn(50_000 + gap as u32 * 100), 1);
        }
    }
}
