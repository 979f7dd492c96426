//! What is found out about a peer of which nothing is known, by what it does about a loss. Until then it is sent nothing
//! that it might not know.
//!
//! **The requester tries.** At a NAK it sends the missing packet again alone, and goes on. A peer that drops what is ahead
//! of a gap misses the next packet at once, of the next two the one after them, and then again: the requester goes back as ever. A peer that keeps it acknowledges or answers in one
//! step what was sent once only. Of such a peer an ACK is believed that says which packets are here.
//!
//! READs and atomics may be under way meanwhile. They leave as toward any adapter: once, with AckReq, no more of them than `max_rd_atomic` until
//! each is answered whole. Answers are kept and asked for again as between two that tell each other, since the peer need not help with that, but
//! with care: Linux's rxe repeats of a request nothing that is before the part that it repeated last. So what is missing of a request is asked for when all of it was
//! due, in one go from the first to the last, and answers that are here stay, also where the requester goes back: only a timeout of a connection without READs forgets.
//! Parts in any order are asked for once it is beyond doubt that the peer keeps.
//!
//! **The requester knocks.** To a peer that keeps, the missing packet leaves several times in a row, for some gaps. Any peer may be
//! sent that, and no other requester does it.
//!
//! **The responder looks.** A packet with much behind it that comes again and again, and is followed by nothing that is behind it: that is a
//! knock. A requester that goes back sends again what is behind, whatever a network does to copies. After some knocks the
//! requester is told which packets are here.

use urxe_wire::Psn;

/// Steps in a row that are in vain until the requester goes back. In each twice as many packets leave as in the one before: seven may be lost in a row.
const STEPS_MAX: u8 = 3;
/// Of a peer that keeps, the packets of a step are doubled so often, and it goes on.
const DOUBLINGS_MAX: u8 = 6;
/// Attempts in a row that end so: then the peer is one that drops, or the road one that loses many in a row.
const FAILURES_MAX: u8 = 3;
/// Requests behind a gap that a peer had, one after the other, and times that it did: then it is one that keeps whatever a network did. One
/// or two may have been so late that they came after the gap was filled.
const RUN_OF_KEPT: u8 = 4;
const PROOFS_MIN: u8 = 2;
/// Times that a packet leaves more than once again, and then at each such gap only; how often more; how many of those must arrive.
const KNOCKS: u8 = 16;
const COPIES: u8 = 4;
const COPIES_MIN: u8 = 3;
/// Packets that are here from behind it, at least, so that it would be seen if they came again.
const BEHIND_MIN: u32 = 8;
/// Knocks that are believed.
const KNOCKS_MIN: u8 = 2;
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
    pub(crate) is_told: bool,
    /// Behind what is tried, the next request that the peer is to have, and where those end that were sent before it was tried.
    pub(super) behind: Option<(Psn, Psn)>,
    /// How many it had.
    pub(super) run: u8,
    proofs: u8,
    steps: u8,
    failures: u8,
    knocks: u8,
    gaps: u8,
    /// Copies of the missing packet that are still to leave.
    copies: u8,
}

/// What a responder has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The end of the last packet that came again, how often it did in a row, and whether much behind it was here.
    again: Psn,
    copies: u8,
    /// How many came again in order.
    run: u8,
    /// Knocks since the requester went back last, without one that may turn out to be the begin of that.
    knocks: u8,
}

impl Trial {
    /// From here on it cannot be said what was sent once.
    pub(super) fn stop(&mut self) {
        (self.alone, self.steps, self.copies) = (None, 0, 0);
        self.behind = None;
    }

    /// Packets that are sent again in the next step.
    pub(super) fn step(&self) -> u32 {
        1 << self.steps
    }

    /// What ends at `end` is missing, and is sent again alone: more than once if `may_knock`.
    pub(super) fn begin(&mut self, end: Psn, may_knock: bool) {
        self.alone = Some(end);
        self.copies = 0;
        if self.keeps && may_knock && self.steps == 0 {
            self.gaps = self.gaps.wrapping_add(1);
            let is_turn = self.knocks < KNOCKS || self.gaps.is_multiple_of(KNOCKS);
            self.copies = if is_turn { COPIES } else { 0 };
        }
    }

    /// True if the packet that ends at `end` and was just sent again is to leave once more.
    pub(super) fn repeats(&mut self, end: Psn) -> bool {
        let repeats = self.copies > 0 && self.alone == Some(end);
        if repeats {
            mark!(Knocked if self.copies == COPIES);
            self.knocks = self.knocks.saturating_add(u8::from(self.copies == COPIES));
            self.copies -= 1;
        }
        repeats
    }

    /// The peer keeps what is ahead of a gap, whatever a network did.
    pub(super) fn is_sure(&self) -> bool {
        self.proofs >= PROOFS_MIN
    }

    /// The peer has the next request behind what was tried, and then misses the one that begins at `next` if it keeps nothing.
    pub(super) fn had(&mut self, next: Psn) {
        self.run += 1;
        self.behind = self.behind.map(|(_, limit)| (next, limit));
        if self.run == RUN_OF_KEPT {
            self.proofs = self.proofs.saturating_add(1);
            mark!(PeerProven if self.proofs == PROOFS_MIN);
            self.behind = None;
        }
    }

    /// The peer drops what is ahead of a gap.
    pub(super) fn is_over(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// What it says of the peer that it has everything before `end`, and misses what is there or does not say so; what was sent behind what is tried
    /// was sent once, or it says nothing. False if the peer drops what is ahead, as far as this tells.
    pub(super) fn take(&mut self, end: Psn, misses: bool, is_once: bool) -> bool {
        let Some(alone) = self.alone else {
            return true;
        };
        if end.is_after(alone) {
            if is_once {
                mark!(PeerKeeps if !self.keeps);
                (self.keeps, self.failures) = (true, 0);
            }
            let behind = self.behind;
            self.stop();
            self.behind = behind;
        } else if end == alone && misses {
            self.steps += u8::from(self.steps < DOUBLINGS_MAX);
            self.failures += u8::from(!self.keeps && self.steps == STEPS_MAX);
        }
        self.keeps || self.steps < STEPS_MAX
    }
}

impl Seen {
    /// A request packet came again that stands for so many PSNs. So many packets from behind it are here; 0 if it cannot be a knock.
    pub(crate) fn note_again(&mut self, psn: Psn, span: u32, behind: u32) {
        let end = psn.add(span);
        if end == self.again {
            self.copies = self.copies.saturating_add(u8::from(behind >= BEHIND_MIN));
            return;
        }
        let is_in_order = !psn.is_before(self.again) && psn.distance_from(self.again) < RUN_STEP;
        let is_knock = self.copies >= COPIES_MIN && !is_in_order;
        self.knocks = self.knocks.saturating_add(u8::from(is_knock));
        self.copies = u8::from(behind >= BEHIND_MIN);
        self.run = if is_in_order {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.again = end;
        if self.run >= RUN_MIN {
            self.knocks = 0;
        }
    }

    /// The requester knocked, and did not go back after that.
    pub(super) fn is_sure(&self) -> bool {
        self.knocks >= KNOCKS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(jumped.take(psn(9), true, true));
        assert!(jumped.keeps);
        let mut copied = tried;
        assert!(copied.take(psn(9), true, false) && !copied.keeps);
        let mut missed = tried;
        assert!(missed.take(psn(6), false, true), "only filled");
        let mut steps = Vec::new();
        let mut end = 6;
        while missed.take(psn(end), true, true) {
            steps.push(missed.step());
            end += missed.step();
            missed.begin(psn(end), true);
        }
        assert!(!missed.keeps && steps == [2, 4], "{steps:?}");
        assert_eq!(missed.failures, 1);
        let mut stopped = tried;
        stopped.stop();
        assert!(stopped.take(psn(9), true, true) && !stopped.keeps);
    }

    #[test]
    fn many_behind_a_gap_are_beyond_doubt() {
        let mut trial = Trial::default();
        for run in [3, 4, 4] {
            assert!(!trial.is_sure());
            (trial.behind, trial.run) = (Some((psn(6), psn(60))), 0);
            (0..run).for_each(|n| trial.had(psn(7 + n)));
            assert_eq!(trial.behind.is_none(), run == 4);
        }
        assert!(trial.is_sure());
    }

    fn again(seen: &mut Seen, n: u32, times: u32, behind: u32) {
        for _ in 0..times {
            seen.note_again(psn(n), 1, behind);
        }
    }

    #[test]
    fn knocks_are_believed_when_another_comes() {
        let mut seen = Seen::default();
        again(&mut seen, 100, 1, 50);
        again(&mut seen, 200, 4, 50);
        again(&mut seen, 300, 2, 50);
        again(&mut seen, 400, 4, 7);
        again(&mut seen, 500, 3, 50);
        assert!(!seen.is_sure(), "two, and of the second it is not known");
        again(&mut seen, 600, 1, 50);
        assert!(seen.is_sure());
    }

    /// Not even where a network makes copies of all packets, or loses most of what comes again.
    #[test]
    fn one_that_goes_back_is_not() {
        for (times, step) in [(1, 1), (3, 1), (4, 1), (5, 2), (5, 3)] {
            let mut seen = Seen::default();
            for first in (0..10_000).step_by(100) {
                for n in (1..50).step_by(step) {
                    again(&mut seen, first + n, times, 50 - n);
                    assert!(!seen.is_sure(), "{times} of each");
                }
            }
        }
    }

    #[test]
    fn a_peer_that_keeps_hears_few_knocks() {
        let mut trial = Trial::default();
        let knock = |trial: &mut Trial, may_knock| {
            trial.begin(psn(7), may_knock);
            (0..9).take_while(|_| trial.repeats(psn(7))).count()
        };
        assert_eq!(knock(&mut trial, true), 0, "it is not known to keep");
        trial.keeps = true;
        assert_eq!(knock(&mut trial, false), 0);
        let knocks: Vec<usize> = (0..64).map(|_| knock(&mut trial, true)).collect();
        assert!(knocks[..16].iter().all(|&copies| copies == 4));
        assert_eq!(knocks[16..].iter().sum::<usize>(), 3 * 4);
        let mut other = Trial {
            keeps: true,
            ..Trial::default()
        };
        other.begin(psn(7), true);
        assert!(!other.repeats(psn(8)), "another packet");
        other.stop();
        assert!(!other.repeats(psn(7)));
    }
}
