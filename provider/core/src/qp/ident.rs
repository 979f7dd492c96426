//! Which IPv4 Identifications a peer's packets plausibly have.
//!
//! A UDP socket does not show the Identification, which the ICRC covers: it is solved
//! for, and of all wrong ICRCs one in 65,536 fits *some* Identification. What fits is
//! therefore compared with what this peer did before, which gives most of the lost
//! bits back. Peers like urxe send 0, or the place in a train; peers like Linux's
//! rdma_rxe send a counter.

use urxe_wire::Service;

use crate::time::Time;

/// Packets in a train at most, and so Identifications that a train can have.
pub(super) const TRAIN_MAX: u16 = 128;
/// How far a counter may move between two packets that arrive, either way.
const COUNTER_STEP_MAX: u16 = 2048;
/// A jump of the counter is believed when it is confirmed within so many packets.
const CONFIRM_WITHIN: u8 = 64;

/// All connections of a peer count with one counter. Each time that it passes a multiple
/// of this, the others get to know: they may be silent meanwhile.
const NOTED_EVERY: u16 = 1024;

/// Whether an Identification is likely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Belief {
    Yes,
    /// The peer's counter has moved so far that its other connections should know.
    YesAndMoved,
    /// Not by what this connection has seen.
    No,
}

/// What is known about a peer's Identifications.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdentTrack {
    habit: Habit,
    /// A jump that was seen once, and packets within which it must be confirmed.
    jump: Option<(u16, u8)>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Habit {
    #[default]
    Unknown,
    /// 0, or places in trains.
    Trains,
    /// A counter that was last seen here, and when (see [`steps`]).
    Counter(u16, u32),
    /// Packets come from many senders, each with a habit of its own.
    Anyones,
}

impl IdentTrack {
    /// Nothing is known yet about the peer of a QP of this service.
    pub(crate) fn of(service: Service) -> IdentTrack {
        let mut track = IdentTrack::default();
        if service == Service::Ud {
            track.habit = Habit::Anyones;
        }
        track
    }

    /// Is this Identification, with which the ICRC of a packet fits, one that the peer
    /// is likely to have used? `hint` is the packet's place in the received train.
    #[inline]
    pub(crate) fn accept(&mut self, ident: u16, hint: u16, now: Time) -> Belief {
        let expected = ident == hint || (hint == 0 && ident < TRAIN_MAX);
        match self.habit {
            Habit::Trains if expected => Belief::Yes,
            Habit::Counter(last, _) if is_near(ident, last) => {
                self.habit = Habit::Counter(ident, steps(now));
                if (ident ^ last) & !(NOTED_EVERY - 1) == 0 {
                    Belief::Yes
                } else {
                    Belief::YesAndMoved
                }
            }
            Habit::Unknown => {
                self.habit = if shows_trains(ident, hint) {
                    Habit::Trains
                } else {
                    Habit::Counter(ident, steps(now))
                };
                Belief::Yes
            }
            Habit::Anyones => Belief::Yes,
            _ => self.accept_jump(ident, now),
        }
    }

    /// True if the peer's Identifications are places in trains.
    pub(crate) fn knows_trains(&self) -> bool {
        matches!(self.habit, Habit::Trains)
    }

    /// The peer's counter is here, as another of its connections shows.
    pub(crate) fn jump_to(&mut self, ident: u16, now: Time) {
        self.habit = Habit::Counter(ident, steps(now));
        self.jump = None;
    }

    /// A packet whose ICRC fits no Identification, or none that is accepted, arrived.
    pub(crate) fn on_bad(&mut self) {
        self.jump = match self.jump {
            Some((ident, left)) if left > 1 => Some((ident, left - 1)),
            _ => None,
        };
    }

    /// The counter moved on in a silence. Or the habit was misjudged by the first packet,
    /// or more was lost than is plausible: that is believed when a second packet confirms
    /// it soon.
    #[cold]
    fn accept_jump(&mut self, ident: u16, now: Time) -> Belief {
        if let Habit::Counter(last, seen) = self.habit
            && moved_in_silence(ident, last, steps(now).wrapping_sub(seen))
        {
            self.habit = Habit::Counter(ident, steps(now));
            return Belief::YesAndMoved;
        }
        match self.jump {
            Some((before, _)) if is_near(ident, before) => {
                self.habit = Habit::Counter(ident, steps(now));
                self.jump = None;
                Belief::YesAndMoved
            }
            _ => {
                self.jump = Some((ident, CONFIRM_WITHIN));
                Belief::No
            }
        }
    }
}

/// Does the first packet show that its sender numbers the places in trains? A low number
/// alone does not: a counter may begin there. Nor is it needed, because what is taken for
/// a counter near 0 may have any place in a train.
pub(super) fn shows_trains(ident: u16, hint: u16) -> bool {
    ident == hint
}

/// Linux's counter moves on by itself, by up to one step for each tick of its clock (a
/// millisecond at least) since it was used last: the longer a silence, the farther it may
/// jump. `silence` is in steps of [`steps`].
pub(super) fn moved_in_silence(ident: u16, last: u16, silence: u32) -> bool {
    let silence_ms = silence.saturating_add(silence / 16 + 2);
    let jump = u32::from(ident.wrapping_sub(last));
    jump <= silence_ms.saturating_add(COUNTER_STEP_MAX.into())
}

/// Time in steps of 1.05 ms: a shift, because it is looked at for each packet.
#[inline]
pub(super) fn steps(now: Time) -> u32 {
    (now.0 >> 20) as u32
}

#[inline]
pub(super) fn is_near(a: u16, b: u16) -> bool {
    a.wrapping_sub(b) <= COUNTER_STEP_MAX || b.wrapping_sub(a) <= COUNTER_STEP_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn believes(t: &mut IdentTrack, ident: u16, hint: u16, now: Time) -> bool {
        t.accept(ident, hint, now) != Belief::No
    }

    #[test]
    fn trains_and_lone_packets_of_a_peer_like_urxe() {
        let mut t = IdentTrack::default();
        for (ident, hint) in [(0, 0), (0, 0), (1, 1), (63, 63), (5, 0), (127, 0)] {
            assert!(believes(&mut t, ident, hint, Time(0)), "{ident} {hint}");
        }
        for (ident, hint) in [(128, 0), (6, 5), (40_000, 0)] {
            let mut t = t;
            assert!(!believes(&mut t, ident, hint, Time(0)), "{ident} {hint}");
        }
    }

    #[test]
    fn a_counter_like_that_of_rdma_rxe() {
        let mut t = IdentTrack::default();
        for ident in [65_000, 65_001, 65_003, 65_002, 500, 501] {
            assert!(believes(&mut t, ident, 0, Time(0)), "{ident}");
        }
        assert!(
            !believes(&mut t, 30_000, 0, Time(0)),
            "a jump is not believed at once"
        );
        assert!(
            believes(&mut t, 30_001, 0, Time(0)),
            "but when it is confirmed"
        );
        assert!(believes(&mut t, 30_002, 0, Time(0)));
    }

    #[test]
    fn a_jump_that_is_not_confirmed_soon_is_forgotten() {
        let mut t = IdentTrack::default();
        assert!(believes(&mut t, 0, 0, Time(0)));
        assert!(!believes(&mut t, 30_000, 0, Time(0)));
        for _ in 0..CONFIRM_WITHIN {
            t.on_bad();
        }
        assert!(!believes(&mut t, 30_001, 0, Time(0)));
        assert!(believes(&mut t, 0, 0, Time(0)), "the habit is still known");
    }

    #[test]
    fn a_counter_that_begins_low_is_found_out() {
        let mut t = IdentTrack::default();
        let refused = (120u16..400)
            .filter(|&ident| !believes(&mut t, ident, 0, Time(0)))
            .count();
        assert_eq!(refused, 0);
    }

    #[test]
    fn a_train_whose_beginning_was_lost_is_no_trouble() {
        let mut t = IdentTrack::default();
        for (ident, hint) in [(7, 0), (8, 0), (0, 0), (1, 1), (127, 0), (0, 0)] {
            assert!(believes(&mut t, ident, hint, Time(0)), "{ident} {hint}");
        }
    }

    #[test]
    fn a_counter_that_begins_at_zero_is_found_out() {
        let mut t = IdentTrack::default();
        let refused = (0u16..400)
            .filter(|&ident| !believes(&mut t, ident, 0, Time(0)))
            .count();
        assert_eq!(refused, 1);
    }

    #[test]
    fn a_counter_may_jump_as_far_as_the_silence_was_long() {
        let mut t = IdentTrack::default();
        assert!(believes(&mut t, 1000, 0, Time(0)));
        let second = |n: u64| Time(n * 1_000_000_000);
        assert!(
            believes(&mut t, 5000, 0, second(5)),
            "4000 steps in 5 seconds"
        );
        assert!(
            !believes(&mut t, 15_000, 0, second(6)),
            "10,000 in one are too many"
        );
        assert!(
            believes(&mut t, 64_000, 0, second(70)),
            "after a minute it may be anywhere"
        );
        assert!(believes(&mut t, 200, 0, second(70)), "and it wraps");
    }
}
