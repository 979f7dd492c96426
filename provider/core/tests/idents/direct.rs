//! Lone packets of neighbours on one host, which leave from another port, under Identifications that count up from anywhere.

use std::net::IpAddr;
use std::num::NonZeroU16;

use urxe_core::error::DropReason;
use urxe_core::qp::state::QpType;
use urxe_core::{RxPath, Time};
use urxe_wire::{IcrcSeed, PathHeader};

use crate::wire::{Numbering, World};

/// The port of a sender's socket for lone packets.
const PORT: u16 = 50_123;

fn path_from(addr: IpAddr, port: u16, to: IpAddr) -> (RxPath, IcrcSeed) {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (addr, to) else {
        panic!("nodes have IPv4 addresses");
    };
    let seed = IcrcSeed::new(&PathHeader::V4 {
        src: src.octets(),
        dst: dst.octets(),
        sport: port,
        dport: 4791,
    });
    (RxPath::new(addr, port, to, 0), seed)
}

impl World {
    fn near(port: u16) -> World {
        let mut w = World::new(QpType::Rc, Numbering::Trains, 1);
        for node in &mut w.nodes {
            node.shard.set_near(node.qp, NonZeroU16::new(port));
        }
        w
    }

    /// What a side has to send arrives, lone packets by the way of `direct` if there is one: port, Identification, and bits that
    /// were damaged.
    fn carry_from(&mut self, side: usize, direct: Option<(u16, u16, u32)>) {
        let packets = self.transmit(side);
        let is_lone = packets.len() == 1;
        for (place, mut packet) in packets {
            let Some((port, ident, damage)) = direct.filter(|_| is_lone) else {
                self.deliver(1 - side, place, &packet);
                continue;
            };
            let (from, to) = (self.nodes[side].addr, self.nodes[1 - side].addr);
            let (_, usual) = path_from(from, 4791, to);
            let (path, seed) = path_from(from, port, to);
            usual.change_to(&seed).apply(ident, &mut packet);
            let end = packet.len() - 4;
            let icrc = u32::from_le_bytes(*packet.last_chunk().expect("an ICRC")) ^ damage;
            packet[end..].copy_from_slice(&icrc.to_le_bytes());
            let now = self.now;
            self.nodes[1 - side].with_env(now, |s, env| s.handle_packet(&path, 0, &packet, env));
        }
    }

    /// A message and its ACK; true if it arrived.
    fn one(&mut self, number: u64, direct: Option<(u16, u16, u32)>) -> bool {
        self.now = self.now + 1000;
        self.send(number);
        self.carry_from(0, direct);
        self.carry_from(1, direct);
        self.take(number + 1) == [number]
    }

    fn refused(&self) -> u64 {
        let stats = self.nodes.iter().map(|node| node.shard.stats());
        stats.map(|s| s.dropped_for(DropReason::Icrc)).sum()
    }
}

/// Among packets from the usual port, and by whatever numbers a new socket begins with: none is refused, and none counts as one that
/// was split from a train.
#[test]
fn a_neighbours_lone_packets_are_believed() {
    let mut w = World::near(PORT);
    let mut ident = 0;
    for number in 0..600 {
        w.receive(number);
        ident = match number % 100 {
            0 => w.rng.next() as u16,
            _ => ident.wrapping_add(1),
        };
        let direct = (number % 7 != 3).then_some((PORT, ident, 0));
        assert!(w.one(number, direct), "message {number}, {direct:?}");
        if number == 300 {
            // A train in between.
            for n in 1000..1008 {
                w.receive(n);
                w.send(n);
            }
            w.settle();
            assert_eq!(w.take(1008).len(), 8);
        }
    }
    assert_eq!(w.refused(), 0);
    for node in &w.nodes {
        assert_eq!(node.shard.stats().split_pkts, 0);
        assert_eq!(node.shard.stats().retransmitted_pkts, 0);
    }
}

/// The check itself is as strict as for any packet that is solved for: a wrong ICRC fits one Identification in 65,536.
#[test]
fn a_damaged_one_is_refused() {
    let mut w = World::near(PORT);
    for number in 0..100 {
        w.receive(number);
        assert!(w.one(number, Some((PORT, number as u16, 0))));
    }
    w.receive(100);
    w.send(100);
    let packets = w.transmit(0);
    let (from, to) = (w.nodes[0].addr, w.nodes[1].addr);
    let (path, seed) = path_from(from, PORT, to);
    let (_, usual) = path_from(from, 4791, to);
    let now = w.now;
    let mut believed = 0;
    for bit in 0..packets[0].1.len() * 8 {
        let mut packet = packets[0].1.clone();
        usual.change_to(&seed).apply(100, &mut packet);
        packet[bit / 8] ^= 1 << (bit % 8);
        // Routers may change these bits.
        if bit / 8 != 4 {
            w.nodes[1].with_env(now, |s, env| s.handle_packet(&path, 0, &packet, env));
            believed += w.take(101).len();
        }
    }
    assert_eq!(believed, 0, "one wrong bit");
}

/// Of others a packet under an Identification unlike all before is refused, from whichever port.
#[test]
fn of_others_they_are_not() {
    for port in [0, PORT + 1] {
        let mut w = World::near(port);
        for number in 0..10 {
            w.receive(number);
            assert!(w.one(number, None));
        }
        w.receive(10);
        w.send(10);
        w.carry_from(0, Some((PORT, 40_000, 0)));
        assert_eq!(w.refused(), 1);
        w.now = Time(w.now.0 + 1_000_000_000);
        w.settle();
        assert_eq!(w.take(11), [10], "it is sent again");
    }
}
