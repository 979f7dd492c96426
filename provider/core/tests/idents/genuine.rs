//! Undisturbed peers that number their packets as they like.

use urxe_core::error::DropReason;
use urxe_core::qp::state::QpType;
use urxe_core::{RxPath, Time};

use crate::support::*;
use crate::wire::{MS, Numbering, World};

/// Everything arrives, and so many packets were refused for their Identification.
fn refused(w: &World) -> u64 {
    let stats = w.nodes.iter().map(|node| node.shard.stats());
    stats.map(|s| s.dropped_for(DropReason::Icrc)).sum()
}

#[test]
fn a_counter_that_moves_on_in_silences_costs_nothing() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut w = World::new(qp_type, Numbering::Counter { others: 50 }, 1);
        for round in 0..40u64 {
            let numbers = round * 10..round * 10 + 10;
            assert_eq!(w.exchange(numbers, 3).len(), 10, "{qp_type:?}");
            w.silence(round * 2500 * MS);
        }
        assert_eq!(refused(&w), 0, "{qp_type:?}");
    }
}

/// An adapter's counter is shared by all that its host sends, to all peers: between two packets of a
/// connection it may be anywhere. Each is followed within the retries.
#[test]
fn a_connection_follows_a_counter_that_jumps_anywhere() {
    for (seed, others) in [5000, 20_000, 65_535].into_iter().enumerate() {
        for at_once in [1, 8] {
            let mut w = World::new(QpType::Rc, Numbering::Counter { others }, seed as u64);
            assert_eq!(w.exchange(0..200, at_once).len(), 200);
            w.assert_alive();
        }
    }
}

/// The answer was lost, and the counter jumps before the request is repeated: the repetition
/// is not executed, and yet it must be answered.
#[test]
fn a_request_that_is_repeated_after_a_jump_is_answered() {
    for seed in 0..8 {
        let mut w = World::new(QpType::Rc, Numbering::Counter { others: 0 }, seed);
        assert_eq!(w.exchange(0..10, 1).len(), 10);
        // The ACK of message 10 is lost, and with it three repetitions.
        let ack = w.arrived + 1;
        w.lose = vec![ack, ack + 2, ack + 4];
        w.receive(10);
        w.send(10);
        w.numbering[0] = Numbering::Counter { others: 20_000 };
        w.settle();
        assert_eq!(w.take(11), [10]);
        w.assert_alive();
    }
}

/// The first packet of a connection was damaged, and fitted an Identification by chance.
#[test]
fn a_first_packet_that_misleads_is_got_over() {
    for (first, then) in [
        (Numbering::Counter { others: 0 }, Numbering::Trains),
        (Numbering::Trains, Numbering::Counter { others: 0 }),
    ] {
        let mut w = World::new(QpType::Rc, first, 3);
        w.counters = [40_000, 50_000];
        assert_eq!(w.exchange(0..1, 1).len(), 1);
        w.numbering = [then; 2];
        w.counters = [10_000, 20_000];
        assert_eq!(w.exchange(1..100, 4).len(), 99);
        assert!(refused(&w) <= 4, "{}", refused(&w));
    }
}

/// A kernel joins what arrives: the train that is received may begin in the middle of the
/// one that was sent, or hold several packets that were sent alone.
#[test]
fn trains_that_are_joined_again_lose_nothing() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut w = World::new(qp_type, Numbering::Trains, 2);
        assert_eq!(w.exchange(0..4, 1).len(), 4);
        let mut number = 4;
        for skip in [0usize, 1, 2, 5] {
            for k in 0..8 {
                w.receive(number + k);
                w.send(number + k);
            }
            let train = w.transmit(0);
            assert!(train.len() == 8 && train[7].0 == 7, "one train");
            for (place, packet) in &train[..skip] {
                w.deliver(1, *place, packet);
            }
            for (place, (_, packet)) in train[skip..].iter().enumerate() {
                w.deliver(1, place as u16, packet);
            }
            number += 8;
            assert_eq!(w.take(number).len(), 8, "{qp_type:?}, {skip} alone");
        }
        // Lone packets that are received together.
        for place in 0..8 {
            w.receive(number);
            w.send(number);
            let packets = w.transmit(0);
            w.deliver(1, place, &packets[0].1);
            number += 1;
            assert_eq!(w.take(number).len(), 1, "{qp_type:?}, place {place}");
        }
        assert_eq!(refused(&w), 0);
    }
}

/// Over IPv6 there is no Identification, and no packet is refused for one: neither in the
/// middle of a train, nor after lone packets.
#[test]
fn over_ipv6_nothing_is_refused_for_its_identification() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut w = World::over_ipv6(qp_type);
        for number in 0..64u64 {
            w.receive(number);
            w.send(number);
            let packets = w.transmit(0);
            assert_eq!(packets.len(), 1);
            // Lone ones first, then places in a train that the kernel joined.
            let place = if number < 8 { 0 } else { number as u16 };
            w.deliver(1, place, &packets[0].1);
            assert_eq!(w.take(64), [number], "{qp_type:?}");
            for (k, (_, answer)) in w.transmit(1).iter().enumerate() {
                w.deliver(0, place + k as u16, answer);
            }
        }
        assert_eq!(refused(&w), 0, "{qp_type:?}");
        let stats = w.nodes[1].shard.stats();
        assert_eq!(stats.split_pkts, 0, "no train shows that it was split");
        // The ICRC is exact.
        let path = RxPath::new(w.nodes[0].addr, 4791, w.nodes[1].addr, 0);
        w.receive(64);
        w.send(64);
        let mut packet = w.transmit(0).remove(0).1;
        let last = packet.len() - 1;
        for bit in 0..8 {
            packet[last] ^= 1 << bit;
            w.nodes[1].with_env(Time(9), |s, env| s.handle_packet(&path, 0, &packet, env));
            packet[last] ^= 1 << bit;
        }
        assert_eq!(refused(&w), 8);
        assert!(w.nodes[1].take(RECV_CQ).is_empty());
    }
}
