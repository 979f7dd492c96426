//! For datagrams what `ident.rs` is for connections: which IPv4 Identifications
//! are plausible, for each of the hosts that send. Connections tell where their peers'
//! counters are, so that those that were silent meanwhile believe the next packet.
//!
//! A table of fixed size, found by the sender's address: hosts that share a place forget
//! each other's habits, and then an ICRC has the 16 bits that solving for the
//! Identification leaves. With a known habit it has 25 (places in trains), 21 (one counter)
//! or 20 (two of them); fewer after a silence, in which a counter may have moved, and 16
//! while an address shows ever other Identifications. Pairs of wrong bits pass no more often
//! than damage at random (the tests of `ident.rs` measure both), but those that pass once do
//! so again: they are believed if two come within some seconds. Over IPv6 there is no
//! Identification, and all 32 bits count.

use core::net::{IpAddr, Ipv4Addr};

use urxe_wire::Service;

use super::ident::{IdentTrack, steps};
use crate::time::Time;

const PLACES: usize = 64;

/// The Identifications that hosts have used.
#[derive(Debug)]
pub(crate) struct SourceIdents {
    places: Box<[Source; PLACES]>,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    addr: Ipv4Addr,
    track: IdentTrack,
}

impl Default for SourceIdents {
    fn default() -> Self {
        let nobody = Source::new(Ipv4Addr::UNSPECIFIED);
        SourceIdents {
            places: Box::new([nobody; PLACES]),
        }
    }
}

impl SourceIdents {
    /// Is this Identification, with which the ICRC fits, one that the host is likely to
    /// have used? `hint` is the packet's place in the received train.
    pub(crate) fn judge(&self, source: IpAddr, ident: u16, hint: u16, now: Time) -> bool {
        let known = self.known(source);
        known.is_none_or(|track| track.judge(ident, hint, now))
    }

    /// True if a counter of the host may be here by now.
    #[cold]
    pub(crate) fn has_counter(&self, source: IpAddr, ident: u16, now: Time) -> bool {
        let known = self.known(source);
        known.is_some_and(|track| track.has_counter(ident, now))
    }

    /// A datagram of the host, with a likely Identification, was delivered.
    pub(crate) fn learn(&mut self, source: IpAddr, ident: u16, hint: u16, now: Time) {
        if let Some(track) = self.track_of(source)
            && track.can_learn()
        {
            track.learn((ident, hint), now, || false);
        }
    }

    /// A datagram of the host was refused for its Identification alone.
    #[cold]
    pub(crate) fn doubt(&mut self, source: IpAddr, ident: u16, now: Time) {
        if let Some(track) = self.track_of(source) {
            track.doubt(ident, now);
        }
    }

    /// A connection's peer has its counter here.
    #[cold]
    pub(crate) fn note(&mut self, source: IpAddr, ident: u16, now: Time) {
        if let Some(track) = self.track_of(source) {
            if track.has_counter(ident, now) {
                // The hint of no place in a train.
                track.learn((ident, !ident), now, || true);
            } else {
                track.note(ident, steps(now));
            }
        }
    }

    fn known(&self, source: IpAddr) -> Option<&IdentTrack> {
        let IpAddr::V4(addr) = source else {
            return None;
        };
        let place = &self.places[place_of(addr)];
        (place.addr == addr).then_some(&place.track)
    }

    /// What is known of a host, in the place of one that had it before.
    fn track_of(&mut self, source: IpAddr) -> Option<&mut IdentTrack> {
        let IpAddr::V4(addr) = source else {
            return None;
        };
        let place = &mut self.places[place_of(addr)];
        if place.addr != addr {
            *place = Source::new(addr);
        }
        Some(&mut place.track)
    }
}

impl Source {
    fn new(addr: Ipv4Addr) -> Source {
        let track = IdentTrack::of(Service::Ud);
        Source { addr, track }
    }
}

fn place_of(addr: Ipv4Addr) -> usize {
    let [a, b, c, d] = addr.octets();
    usize::from(a ^ b ^ c ^ d) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    /// A datagram with a right Q_Key, to a QP that has a receive.
    fn accepts(s: &mut SourceIdents, from: IpAddr, ident: u16, hint: u16, now: Time) -> bool {
        let is_likely = s.judge(from, ident, hint, now);
        if is_likely {
            s.learn(from, ident, hint, now);
        } else {
            s.doubt(from, ident, now);
        }
        is_likely
    }

    #[test]
    fn every_host_has_a_habit_of_its_own() {
        let mut s = SourceIdents::default();
        for k in 0..100 {
            assert!(accepts(&mut s, A, 0, 0, Time(1)));
            assert!(accepts(&mut s, B, 50_000 + k * 100, 0, Time(1)));
        }
        assert!(!accepts(&mut s, A, 60_000, 0, Time(1)));
        assert!(!accepts(&mut s, B, 30_000, 0, Time(1)));
        assert!(
            accepts(&mut s, A, 5, 5, Time(1)),
            "the habit is still known"
        );
    }

    /// What a shard does with a packet of a connection, in its sequence.
    fn hear(s: &mut SourceIdents, t: &mut IdentTrack, from: IpAddr, ident: u16) -> bool {
        let now = Time(1);
        let is_likely = t.judge(ident, 0, now) || s.has_counter(from, ident, now);
        if !is_likely {
            t.doubt(ident, now);
        } else if t.learn((ident, 0), now, || s.has_counter(from, ident, now)) {
            s.note(from, ident, now);
        }
        is_likely
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
            .filter(|k| !accepts(&mut s, A, 20_000 * (1 + k % 2) + k, 0, Time(1)))
            .count();
        assert_eq!(refused, 1);
    }

    #[test]
    fn strangers_take_each_others_place_and_are_heard() {
        let mut s = SourceIdents::default();
        for k in 0..=255 {
            let addr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, k));
            assert!(accepts(&mut s, addr, 300 + u16::from(k) * 200, 0, Time(1)));
        }
    }

    #[test]
    fn a_counter_that_moved_on_in_a_silence_costs_no_datagram() {
        const SECOND: u64 = 1_000_000_000;
        let mut s = SourceIdents::default();
        assert!(accepts(&mut s, A, 60_000, 0, Time(1)));
        // By no more than the time allows.
        assert!(!accepts(&mut s, A, 10_000, 0, Time(2 * SECOND)));
        assert!(accepts(&mut s, A, 4_000, 0, Time(10 * SECOND)));
        assert!(!accepts(&mut s, A, 20_000, 0, Time(11 * SECOND)));
    }
}
