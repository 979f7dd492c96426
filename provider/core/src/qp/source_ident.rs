//! The same for datagrams as `ident.rs` is for connections: which IPv4 Identifications
//! are plausible, for each of the hosts that send. Connections tell where their peers'
//! counters are, so that those that were silent meanwhile believe the next packet.
//!
//! A table of fixed size, found by the sender's address: hosts that share a place forget
//! each other's habits, and then an ICRC has the 16 bits that solving for the
//! Identification leaves. With a known habit it has 25 (places in trains) or 20 (a
//! counter; 19 with two of them; fewer after a silence, in which it may have moved). Over
//! IPv6 there is no Identification, and all 32 count.

use core::net::{IpAddr, Ipv4Addr};

use super::ident::{Belief, IdentTrack, TRAIN_MAX, is_near, moved_in_silence, shows_trains, steps};
use crate::time::Time;

const PLACES: usize = 64;

/// What hosts sent.
#[derive(Debug)]
pub(crate) struct SourceIdents {
    places: Box<[Source; PLACES]>,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    addr: Ipv4Addr,
    /// It sends 0, or places in trains.
    trains: bool,
    /// Counters that it uses, where they were last seen, and when (see [`steps`]). An
    /// adapter may have one for each of its queues.
    counters: [Option<(u16, u32)>; 2],
    /// An Identification that fits nothing before: believed when the next such is near.
    jump: Option<u16>,
}

impl Default for SourceIdents {
    fn default() -> Self {
        SourceIdents {
            places: Box::new([Source::new(Ipv4Addr::UNSPECIFIED); PLACES]),
        }
    }
}

impl SourceIdents {
    /// Is this Identification, with which the ICRC fits, one that the host is likely to
    /// have used? `hint` is the packet's place in the received train.
    pub(crate) fn accept(&mut self, source: IpAddr, ident: u16, hint: u16, now: Time) -> bool {
        let now = steps(now);
        let IpAddr::V4(addr) = source else {
            return true;
        };
        let source = self.place_of(addr);
        if source.addr != addr {
            *source = Source::new(addr);
            source.learn(ident, hint, now);
            return true;
        }
        source.accept(ident, hint, now)
    }

    /// What a connection does not decide alone: it tells where its peer's counter is now,
    /// or asks whether others have seen it there. True if the packet is believed.
    #[cold]
    pub(crate) fn settle(
        &mut self,
        track: &mut IdentTrack,
        belief: Belief,
        (source, ident): (IpAddr, u16),
        now: Time,
    ) -> bool {
        let IpAddr::V4(addr) = source else {
            return belief != Belief::No;
        };
        let source = self.place_of(addr);
        match belief {
            Belief::Yes => true,
            Belief::YesAndMoved => {
                if source.addr != addr {
                    *source = Source::new(addr);
                }
                source.note(ident, steps(now));
                true
            }
            Belief::No => {
                let is_known = source.addr == addr && source.follow(ident, steps(now));
                if is_known {
                    track.jump_to(ident, now);
                }
                is_known
            }
        }
    }

    fn place_of(&mut self, addr: Ipv4Addr) -> &mut Source {
        let [a, b, c, d] = addr.octets();
        &mut self.places[usize::from(a ^ b ^ c ^ d) % PLACES]
    }
}

impl Source {
    const fn new(addr: Ipv4Addr) -> Source {
        Source {
            addr,
            trains: false,
            counters: [None; 2],
            jump: None,
        }
    }

    fn accept(&mut self, ident: u16, hint: u16, now: u32) -> bool {
        if self.trains && in_train(ident, hint) {
            return true;
        }
        if self.follow(ident, now) {
            return true;
        }
        match self.jump.take() {
            Some(before) if is_near(ident, before) => {
                self.learn(ident, hint, now);
                true
            }
            _ => {
                self.jump = Some(ident);
                false
            }
        }
    }

    /// Is it one of the counters that may be here by now?
    fn follow(&mut self, ident: u16, now: u32) -> bool {
        for counter in self.counters.iter_mut().flatten() {
            let (last, seen) = *counter;
            // A datagram is not sent again: the first after a silence must be believed.
            if is_near(ident, last) || moved_in_silence(ident, last, now.wrapping_sub(seen)) {
                *counter = (ident, now);
                return true;
            }
        }
        false
    }

    fn learn(&mut self, ident: u16, hint: u16, now: u32) {
        if shows_trains(ident, hint) {
            self.trains = true;
        } else {
            self.counters = [Some((ident, now)), self.counters[0]];
        }
    }

    /// A counter is here.
    fn note(&mut self, ident: u16, now: u32) {
        if !self.follow(ident, now) {
            self.counters = [Some((ident, now)), self.counters[0]];
        }
    }
}

fn in_train(ident: u16, hint: u16) -> bool {
    ident == hint || (hint == 0 && ident < TRAIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn every_host_has_a_habit_of_its_own() {
        let mut s = SourceIdents::default();
        for k in 0..100 {
            assert!(s.accept(A, 0, 0, Time(1)));
            assert!(s.accept(B, 50_000 + k * 100, 0, Time(1)));
        }
        assert!(!s.accept(A, 60_000, 0, Time(1)));
        assert!(!s.accept(B, 30_000, 0, Time(1)));
        assert!(s.accept(A, 5, 5, Time(1)), "the habit is still known");
    }

    /// What a shard does with a packet of a connection.
    fn hear(s: &mut SourceIdents, t: &mut IdentTrack, from: IpAddr, ident: u16) -> bool {
        match t.accept(ident, 0, Time(1)) {
            Belief::Yes => true,
            belief => s.settle(t, belief, (from, ident), Time(1)),
        }
    }

    #[test]
    fn a_connection_that_was_silent_knows_the_counter_from_the_others() {
        let mut s = SourceIdents::default();
        let [mut busy, mut silent, mut stranger] = [IdentTrack::default(); 3];
        for t in [&mut busy, &mut silent] {
            assert!(hear(&mut s, t, A, 60_000));
        }
        assert!(hear(&mut s, &mut stranger, B, 60_000));
        // Through 0, and all within a moment.
        for step in 1..12_000u16 {
            assert!(hear(&mut s, &mut busy, A, 60_000u16.wrapping_add(step)));
        }
        assert!(
            !hear(&mut s, &mut silent, A, 30_000),
            "the counter is elsewhere"
        );
        assert!(hear(&mut s, &mut silent, A, 6_500));
        assert!(hear(&mut s, &mut silent, A, 6_501));
        assert!(
            !hear(&mut s, &mut stranger, B, 6_500),
            "another host's is not"
        );
    }

    #[test]
    fn an_adapter_with_two_counters_loses_one_packet() {
        let mut s = SourceIdents::default();
        let refused = (0u16..200)
            .filter(|k| !s.accept(A, 20_000 * (1 + k % 2) + k, 0, Time(1)))
            .count();
        assert_eq!(refused, 1);
    }

    #[test]
    fn strangers_take_each_others_place_and_are_heard() {
        let mut s = SourceIdents::default();
        for k in 0..=255 {
            let addr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, k));
            assert!(s.accept(addr, 300 + u16::from(k) * 200, 0, Time(1)));
        }
    }

    #[test]
    fn a_counter_that_moved_on_in_a_silence_costs_no_datagram() {
        const SECOND: u64 = 1_000_000_000;
        let mut s = SourceIdents::default();
        assert!(s.accept(A, 60_000, 0, Time(1)));
        // By no more than the time allows.
        assert!(!s.accept(A, 10_000, 0, Time(2 * SECOND)));
        assert!(s.accept(A, 4_000, 0, Time(10 * SECOND)));
        assert!(!s.accept(A, 20_000, 0, Time(11 * SECOND)));
    }
}
