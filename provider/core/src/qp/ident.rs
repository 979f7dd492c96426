//! Predicts the IPv4 Identifications of a peer's packets.
//!
//! A UDP socket does not show the Identification, which the ICRC covers: it is solved
//! for, and of all wrong ICRCs one in 65,536 fits *some* Identification. What fits is
//! therefore compared with what this peer did before, which gives most of the lost
//! bits back. Peers like urxe send 0, or the place in a train; peers like Linux's
//! rdma_rxe send a counter.
//!
//! A sender that can use the peer's address can send any Identification. So what a
//! packet shows is learnt only after it did something that a stranger cannot bring about
//! (`icrc.rs` says what that is), and what is learnt never makes a place in a train
//! unlikely. A packet that is unlike all before is refused and leaves a *doubt*, which
//! makes more likely and nothing less: the next packets may be like it, and after two
//! doubts anything is believed, until one is executed.
//!
//! Of 65,536 Identifications 128 are believed of a peer that numbers the places in trains:
//! 25 bits of the ICRC are left. Each counter adds 1984 at most, and two are known at most:
//! 4096, and 20 bits. A silence, in which a counter may have moved, leaves fewer.
//!
//! Where strangers can have packets executed (UC, UD, QP 1: a track is *open* there), what
//! they show is kept beside what the peer shows, and if it changes again and again, or moves a
//! counter that then comes back, all is believed for a while: 16 bits, and nothing lost.

use urxe_wire::Service;

use crate::time::Time;

/// Packets in a train at most, and so Identifications that a train can have.
const TRAIN_MAX: u16 = 128;
/// How far a counter may have moved since the last packet that was executed.
const AHEAD_MAX: u16 = 1789;
/// How far back a packet may be that others have overtaken.
const OVERTAKEN_MAX: u16 = 192;
/// How far either way, where a stranger may have moved what is known by a step.
const OPEN_STEP_MAX: u16 = 960;
/// Doubts after which any Identification is believed.
const DOUBTS_MAX: u8 = 2;
/// A doubt is forgotten after so many packets that confirm what is known, or are bad.
const FORGET_AFTER: u8 = 64;

/// A quarter of an hour and more, in [`steps`].
const LONG: u32 = 1 << 20;

/// All connections of a peer count with one counter. Each time that it passes a multiple
/// of this, the others get to know: they may be silent meanwhile.
const NOTED_EVERY: u16 = 512;

/// What is known about a peer's Identifications.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdentTrack {
    /// Something was learnt.
    is_known: bool,
    /// Strangers can have it learn: there is no sequence that they would have to know.
    is_open: bool,
    /// Where its counters were seen last, the one that was used last before the other. An
    /// adapter may have one for each of its queues.
    counters: [Option<u16>; 2],
    /// When each was used (see [`steps`]).
    seen: [u32; 2],
    /// Places in trains that were learnt without anything else between them.
    trains: u8,
    doubts: Doubts,
    /// How often something unlike all before was learnt, each time soon after the last,
    /// and when that was.
    jumps: u8,
    jumped: u32,
}

/// Packets that were refused, with an ICRC that fits.
#[derive(Clone, Copy, Debug, Default)]
struct Doubts {
    count: u8,
    /// They are forgotten after so many packets.
    left: u8,
    /// The last one's Identification, and when it came.
    ident: u16,
    at: u32,
}

impl IdentTrack {
    /// Nothing is known yet about the peer of a QP of this service.
    pub(crate) fn of(service: Service) -> IdentTrack {
        IdentTrack {
            is_open: matches!(service, Service::Uc | Service::Ud),
            ..IdentTrack::default()
        }
    }

    /// Is this Identification, with which the ICRC of a packet fits, one that the peer
    /// is likely to have used? `hint` is the packet's place in the received train.
    #[inline]
    pub(crate) fn judge(&self, ident: u16, hint: u16, now: Time) -> bool {
        is_train(ident, hint) || !self.is_known || self.judge_other(ident, steps(now))
    }

    /// False if there is nothing that a packet, which was judged likely, could teach.
    #[inline]
    pub(crate) fn can_learn(&self) -> bool {
        !self.knows_trains() || self.doubts.count > 0
    }

    /// True if all Identifications of the peer were places in trains.
    #[inline]
    pub(crate) fn knows_trains(&self) -> bool {
        self.is_known && self.counters[0].is_none()
    }

    /// True if it is one of the counters, which may be here by now.
    pub(crate) fn has_counter(&self, ident: u16, now: Time) -> bool {
        self.may_count(ident, steps(now))
    }

    /// A packet with a likely Identification was executed. Returns true if the peer's
    /// counter has moved so far that its other connections should know. `is_told` says
    /// whether those showed the counter here.
    pub(crate) fn learn(
        &mut self,
        (ident, hint): (u16, u16),
        now: Time,
        is_told: impl FnOnce() -> bool,
    ) -> bool {
        let now = steps(now);
        let was_known = core::mem::replace(&mut self.is_known, true);
        let is_train = is_train(ident, hint);
        if now.wrapping_sub(self.seen[1]) > LONG {
            self.counters[1] = None;
        }
        let has_moved = if was_known && is_train && self.is_open {
            self.learn_train(ident, now);
            false
        } else if let Some(place) = self.near_counter(ident) {
            self.follow(place, ident, now)
        } else if self.moved_in_silence(ident, now) {
            self.follow_over_silence(ident, now)
        } else if was_known && is_train {
            false
        } else {
            // A low number of the first packet does not show that its sender numbers the
            // places in trains: a counter may begin there. Nor is it needed, as those are
            // always likely.
            if was_known || ident != hint {
                self.jump(ident, now, was_known && !is_told());
            }
            return was_known;
        };
        if !self.is_open {
            self.confirm();
            self.count_trains(is_train);
        }
        has_moved
    }

    /// A counter does not stay among the places in a train: so it was none.
    fn count_trains(&mut self, is_train: bool) {
        self.trains = if is_train { self.trains + 1 } else { 0 };
        if self.trains == u8::MAX {
            self.trains = 0;
            self.counters = [None; 2];
        }
    }

    /// The counter with this place goes on.
    fn follow(&mut self, place: usize, ident: u16, now: u32) -> bool {
        let last = self.counters[place].unwrap_or(ident);
        if self.is_open && self.is_drawn_away(ident, last) {
            (self.jumps, self.jumped) = (2, now);
        }
        self.counters.swap(0, place);
        self.seen.swap(0, place);
        self.counters[0] = Some(ident);
        self.seen[0] = now;
        (ident ^ last) & !(NOTED_EVERY - 1) != 0
    }

    /// The counter that was used last goes on, or a stranger makes believe so: then the peer
    /// is still where it was.
    fn follow_over_silence(&mut self, ident: u16, now: u32) -> bool {
        if self.is_open {
            self.insert(ident, now);
        }
        (self.counters[0], self.seen[0]) = (Some(ident), now);
        true
    }

    /// A place in a train, which strangers show as well as peers do: it moves no counter that
    /// is elsewhere, until that was not used for so long that it makes all likely.
    fn learn_train(&mut self, ident: u16, now: u32) {
        let silence = now.wrapping_sub(self.seen[0]);
        match self.counters[0] {
            // What was believed to be a counter since a while is none.
            Some(last) if last < TRAIN_MAX && self.jumps > 0 && !self.jumped_recently(now) => {
                self.counters[0] = self.counters[1].take();
                self.seen[0] = self.seen[1];
            }
            Some(last) if last < TRAIN_MAX => self.seen[0] = now,
            Some(_) if silence > u16::MAX.into() => _ = self.follow_over_silence(ident, now),
            _ => {}
        }
    }

    /// Something unlike all before.
    fn jump(&mut self, ident: u16, now: u32, counts: bool) {
        if counts {
            self.jumps = if self.jumped_recently(now) {
                self.jumps.saturating_add(1)
            } else {
                1
            };
            self.jumped = now;
        }
        self.note(ident, now);
    }

    /// The peer's counter is here.
    pub(super) fn note(&mut self, ident: u16, now: u32) {
        self.is_known = true;
        self.insert(ident, now);
        if !self.is_open {
            self.doubts.count = 0;
        }
    }

    fn insert(&mut self, ident: u16, now: u32) {
        self.counters = [Some(ident), self.counters[0]];
        self.seen = [now, self.seen[0]];
    }

    /// A packet was refused because its Identification is unlikely, although all else that
    /// is known without executing it speaks for it.
    #[cold]
    pub(crate) fn doubt(&mut self, ident: u16, now: Time) {
        let now = steps(now);
        let count = if self.doubts_count(now) == 0 {
            1
        } else {
            self.doubts.count.saturating_add(1)
        };
        self.doubts = Doubts {
            count,
            left: FORGET_AFTER,
            ident,
            at: now,
        };
    }

    /// A packet arrived with an ICRC that fits no Identification, or one that shows that the peer
    /// goes on as before. (Of a peer that strangers can play, that shows nothing.)
    pub(crate) fn confirm(&mut self) {
        if self.is_open || self.doubts.count == 0 {
            return;
        }
        self.doubts.left -= 1;
        if self.doubts.left == 0 {
            self.doubts.count = 0;
        }
    }

    fn judge_other(&self, ident: u16, now: u32) -> bool {
        let doubts = self.doubts_count(now);
        self.may_count(ident, now)
            || doubts >= DOUBTS_MAX
            || (doubts > 0 && self.is_near(ident, self.doubts.ident))
            || (self.jumps > 1 && self.jumped_recently(now))
    }

    fn may_count(&self, ident: u16, now: u32) -> bool {
        self.near_counter(ident).is_some() || self.moved_in_silence(ident, now)
    }

    /// The place of the counter that this is of.
    fn near_counter(&self, ident: u16) -> Option<usize> {
        let [first, second] = self.counters;
        if first.is_some_and(|last| self.is_near(ident, last)) {
            Some(0)
        } else {
            let is_second = second.is_some_and(|last| self.is_near(ident, last));
            is_second.then_some(1)
        }
    }

    /// True if the counter that was used last may be here by now.
    fn moved_in_silence(&self, ident: u16, now: u32) -> bool {
        let silence = now.wrapping_sub(self.seen[0]);
        let (_, ahead) = self.reach();
        self.counters[0].is_some_and(|last| moved_in_silence(ident, last, silence, ahead))
    }

    /// How far a counter may move back and on.
    #[inline]
    fn reach(&self) -> (u16, u16) {
        if self.is_open {
            (OPEN_STEP_MAX, OPEN_STEP_MAX)
        } else {
            (OVERTAKEN_MAX, AHEAD_MAX)
        }
    }

    #[inline]
    fn is_near(&self, ident: u16, last: u16) -> bool {
        let (behind, ahead) = self.reach();
        ident.wrapping_sub(last).wrapping_add(behind) <= behind + ahead
    }

    /// True if a counter is not where others showed it: farther back than packets overtake
    /// each other, or one of two that have met. A stranger may have drawn it away.
    fn is_drawn_away(&self, ident: u16, last: u16) -> bool {
        let back = last.wrapping_sub(ident);
        let has_met = |counter: Option<u16>| counter.is_some_and(|c| self.is_near(ident, c));
        (OVERTAKEN_MAX + 1..=OPEN_STEP_MAX).contains(&back)
            || self.counters.map(has_met) == [true; 2]
    }

    /// Doubts that are not forgotten yet.
    fn doubts_count(&self, now: u32) -> u8 {
        /// Time for three tries of a connection manager.
        const FORGET_AFTER_STEPS: u32 = 1 << 14;
        let is_old = now.wrapping_sub(self.doubts.at) > FORGET_AFTER_STEPS;
        if self.is_open && is_old {
            0
        } else {
            self.doubts.count
        }
    }

    /// A peer that jumps a second time within this has a counter that cannot be followed, or
    /// shares its address with a stranger. Then any Identification is believed, until it has
    /// not jumped for as long.
    fn jumped_recently(&self, now: u32) -> bool {
        // What strangers can do again and again costs datagrams, which are not sent again. Else
        // it costs time: some seconds are enough.
        let span = if self.is_open { LONG } else { 1 << 12 };
        self.jumps > 0 && now.wrapping_sub(self.jumped) <= span
    }
}

/// 0, or a place in a train. Not only its place in the train that was received: a kernel
/// joins what arrives, which may begin in the middle of the train that was sent.
#[inline]
fn is_train(ident: u16, hint: u16) -> bool {
    ident < TRAIN_MAX || ident == hint
}

/// Linux's counter moves on by itself, by up to one step for each tick of its clock (a
/// millisecond at least) since it was used last: the longer a silence, the farther it may
/// jump. `silence` is in steps of [`steps`].
fn moved_in_silence(ident: u16, last: u16, silence: u32, ahead: u16) -> bool {
    let silence_ms = silence.saturating_add(silence / 16 + 2);
    let jump = u32::from(ident.wrapping_sub(last));
    jump <= silence_ms.saturating_add(ahead.into())
}

/// Time in steps of 1.05 ms: a shift, because it is looked at for each packet.
#[inline]
pub(super) fn steps(now: Time) -> u32 {
    (now.0 >> 20) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet that is executed if it is believed, and could have been if it is not.
    fn believes(t: &mut IdentTrack, ident: u16, hint: u16, now: Time) -> bool {
        let is_likely = t.judge(ident, hint, now);
        if is_likely {
            t.learn((ident, hint), now, || false);
        } else {
            t.doubt(ident, now);
        }
        is_likely
    }

    #[test]
    fn trains_and_lone_packets_of_a_peer_like_urxe() {
        let mut t = IdentTrack::default();
        for (ident, hint) in [(0, 0), (0, 0), (1, 1), (63, 63), (5, 0), (127, 0)] {
            assert!(believes(&mut t, ident, hint, Time(0)), "{ident} {hint}");
        }
        for (ident, hint) in [(128, 0), (128, 5), (40_000, 0)] {
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
        for _ in 0..FORGET_AFTER {
            t.confirm();
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
        for (ident, hint) in [(7, 0), (8, 1), (0, 0), (1, 1), (127, 0), (0, 0)] {
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

    /// Identifications that are believed, of all.
    fn believed(t: &IdentTrack, now: Time) -> usize {
        (0..=u16::MAX).filter(|&i| t.judge(i, 0, now)).count()
    }

    #[test]
    fn twenty_bits_are_left_with_two_counters_and_more_with_less() {
        for service in [Service::Rc, Service::Uc, Service::Ud] {
            let mut trains = IdentTrack::of(service);
            assert_eq!(believed(&trains, Time(0)), 1 << 16);
            assert!(believes(&mut trains, 0, 0, Time(0)));
            assert_eq!(believed(&trains, Time(u64::MAX)), 128, "25 bits");
            let mut counter = IdentTrack::of(service);
            assert!(believes(&mut counter, 30_000, 0, Time(0)));
            assert!(believed(&counter, Time(0)) <= 128 + 1984);
            assert!(!believes(&mut counter, 10_000, 0, Time(0)));
            assert!(believes(&mut counter, 10_001, 0, Time(0)));
            // The doubt that it began with is over.
            let later = Time(18 << 30);
            assert!(believes(&mut counter, 10_002, 0, later));
            assert!(believed(&counter, later) <= 4096, "20 bits");
        }
    }

    /// log2 of the part of damaged packets that is believed. One in 65,536 fits some
    /// Identification; `damage` makes it from the right one.
    fn damage_believed(
        service: Service,
        first: u16,
        interval_ns: u64,
        damage: impl Fn(u16, u64) -> u16,
    ) -> f64 {
        const COUNT: u32 = 40_000;
        let mut t = IdentTrack::of(service);
        let mut now = Time(0);
        let (mut random, mut accepted) = (7u64, 0u32);
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            random >> 33
        };
        for k in 0..COUNT {
            // Up to 131,071 packets that fit nothing: 64 do as much as more.
            let bad = next() % (1 << 17);
            now = now + bad * interval_ns;
            (0..bad.min(64)).for_each(|_| t.confirm());
            // Genuine ones between them. After a while the peer is another.
            let place = match first {
                0 => 0,
                first => first.wrapping_add((k % 1000) as u16),
            };
            if k % 1000 == 0 {
                t = IdentTrack::of(service);
                believes(&mut t, place, 0, now);
            }
            (0..300).for_each(|_| _ = t.learn((place, 0), now, || false));
            accepted += u32::from(believes(&mut t, damage(place, next()), 0, now));
        }
        (f64::from(accepted) / f64::from(COUNT) / 65_536.0).log2()
    }

    /// Ten damaged packets a second, of which nothing but the ICRC can tell; one, if all are
    /// damaged in the same way.
    #[test]
    fn damage_is_believed_as_rarely_as_is_said() {
        const INTERVAL: u64 = 100_000_000;
        let random = |_, random| random as u16;
        // The same few pairs of wrong bits look like the same differences.
        let pairs = |place, random| place ^ [0x8421, 0x2300][random as usize % 2];
        for (service, first, max) in [
            (Service::Rc, 0, -24.9),
            (Service::Rc, 30_000, -19.97),
            (Service::Uc, 0, -24.6),
            (Service::Uc, 30_000, -19.97),
            (Service::Ud, 0, -24.6),
            (Service::Ud, 30_000, -19.97),
        ] {
            let by_chance = damage_believed(service, first, INTERVAL, random);
            let by_pairs = damage_believed(service, first, 10 * INTERVAL, pairs);
            println!("{service:?}, from {first}: 2^{by_chance:.2}, pairs of bits 2^{by_pairs:.2}");
            assert!(by_chance < max, "{service:?}, from {first}");
            assert!(by_pairs < -19.97, "{service:?}, from {first}");
        }
    }

    /// Of all pairs of wrong bits in a packet of 64 bytes of payload, log2 of the part that
    /// is believed of a peer with a counter, whatever the counter stands at.
    #[test]
    fn two_wrong_bits_pass_no_more_often_than_chance_would_have_it() {
        let path = urxe_wire::PathHeader::V4 {
            src: [10, 0, 0, 1],
            dst: [10, 0, 0, 2],
            sport: 4791,
            dport: 4791,
        };
        let seed = urxe_wire::IcrcSeed::new(&path);
        for (service, headers) in [(Service::Rc, 12), (Service::Rc, 28), (Service::Ud, 20)] {
            let mut packet = vec![0x5a; headers + 64 + 4];
            let end = packet.len() - 4;
            let icrc = seed.compute(0, &packet[..end]).to_le_bytes();
            packet[end..].copy_from_slice(&icrc);
            let covered = (0..packet.len() * 8).filter(|bit| bit / 8 != 4);
            let covered: Vec<usize> = covered.collect();
            let (mut pairs, mut believed) = (0u64, 0f64);
            for (n, &one) in covered.iter().enumerate() {
                packet[one / 8] ^= 1 << (one % 8);
                for &two in &covered[..n] {
                    packet[two / 8] ^= 1 << (two % 8);
                    pairs += 1;
                    let verdict = seed.verify(0, &packet);
                    if let urxe_wire::IcrcVerdict::Ok { ident } = verdict {
                        believed += part_believed(service, ident);
                    }
                    packet[two / 8] ^= 1 << (two % 8);
                }
                packet[one / 8] ^= 1 << (one % 8);
            }
            let log2 = (believed / pairs as f64).log2();
            println!("{service:?}: 2^{log2:.2} of {pairs} pairs");
            assert!(log2 < -20.9, "{service:?}: 2^{log2:.2}");
        }
    }

    /// For how many places of a counter a packet that seems to have another Identification,
    /// by this difference, is believed.
    fn part_believed(service: Service, difference: u16) -> f64 {
        let counters = (0..=u16::MAX).step_by(7);
        let count = counters.len() as f64;
        let believed = counters.filter(|&counter| {
            let mut t = IdentTrack::of(service);
            t.note(counter, 0);
            t.judge(counter.wrapping_add(1) ^ difference, 0, Time(0))
        });
        believed.count() as f64 / count
    }
}
