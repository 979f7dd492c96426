use super::*;
use core::net::{IpAddr, Ipv4Addr};
use urxe_core::qpn_table::QpnChunk;
use urxe_core::transmit::RunLimits;

const LEN: usize = 32;

fn dest() -> TxDest {
    TxDest {
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        remote: IpAddr::V4(Ipv4Addr::LOCALHOST),
        source_port: 4791,
        tos: 0,
        chunk: QpnChunk(0),
        in_memory: false,
        near_port: None,
    }
}

struct Wire {
    path: FaultyPath,
    batch: TxBatch,
    left: Vec<Vec<u8>>,
}

impl Wire {
    fn new(spec: &str) -> Wire {
        let spec = spec.parse().expect("a specification");
        Wire {
            path: FaultyPath::with_seed(spec, 7),
            batch: TxBatch::new(16 * LEN, RunLimits::SINGLE),
            left: Vec::new(),
        }
    }

    /// Packet `number` comes from the core, and what may leave does.
    fn send(&mut self, number: u8, now: Time) {
        let slot = self.batch.reserve(&dest(), LEN).expect("room");
        slot.bytes.fill(number);
        self.path.take(&mut self.batch, now);
        assert!(self.batch.is_empty());
        self.run(now);
    }

    fn run(&mut self, now: Time) {
        while self.path.release(&mut self.batch, now) {
            for run in self.batch.runs() {
                self.left.push(self.batch.bytes()[run.range.clone()].into());
            }
            self.batch.clear();
        }
    }

    fn numbers(&self) -> Vec<u8> {
        self.left.iter().map(|packet| packet[0]).collect()
    }
}

#[test]
fn all_are_dropped_or_doubled_when_that_is_asked_for() {
    let mut wire = Wire::new("drop=100%");
    (0..20).for_each(|n| wire.send(n, Time::ZERO));
    assert!(wire.left.is_empty() && wire.path.due().is_none());
    assert_eq!(wire.path.counts.dropped, 20);

    let mut wire = Wire::new("dup=100%");
    (0..3).for_each(|n| wire.send(n, Time::ZERO));
    assert_eq!(wire.numbers(), [0, 0, 1, 1, 2, 2]);
    assert_eq!(wire.path.counts.duplicated, 3);
}

#[test]
fn one_bit_of_a_corrupted_packet_is_wrong() {
    let mut wire = Wire::new("corrupt=100%");
    (0..20).for_each(|_| wire.send(0, Time::ZERO));
    let places: std::collections::BTreeSet<_> = wire
        .left
        .iter()
        .map(|packet| {
            let wrong: u32 = packet.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(wrong, 1);
            packet.iter().position(|byte| *byte != 0)
        })
        .collect();
    assert_eq!(wire.path.counts.corrupted, 20);
    assert!(places.len() > 5, "{places:?}");
}

#[test]
fn an_overtaken_packet_leaves_after_later_ones() {
    let mut wire = Wire::new("reorder=20%");
    (0..100).for_each(|n| wire.send(n, Time::ZERO));
    wire.run(Time::ZERO + OVERTAKE_NS);
    let numbers = wire.numbers();
    let late = (0..100_u8).filter(|n| {
        let place = numbers
            .iter()
            .position(|m| m == n)
            .expect("nothing is lost");
        numbers[..place].iter().any(|earlier| earlier > n)
    });
    // One at the end has no later ones.
    let (late, counted) = (late.count() as u64, wire.path.counts.reordered);
    assert!(
        late > 5 && counted.abs_diff(late) <= 3,
        "{late} of {counted}: {numbers:?}"
    );
    assert_eq!(numbers.len(), 100);
}

#[test]
fn a_packet_that_nothing_follows_leaves_in_the_end() {
    let mut wire = Wire::new("reorder=100%");
    wire.send(5, Time(1000));
    assert!(wire.left.is_empty());
    let due = wire.path.due().expect("it is held");
    assert_eq!(due, Time(1000) + OVERTAKE_NS);
    wire.run(Time(due.0 - 1));
    assert!(wire.left.is_empty());
    wire.run(due);
    assert_eq!(wire.numbers(), [5]);
    assert_eq!(wire.path.due(), None);
}

#[test]
fn delayed_packets_keep_their_order() {
    let mut wire = Wire::new("delay=10us..90us");
    (0..30).for_each(|n| wire.send(n, Time(u64::from(n) * 1000)));
    assert!(wire.left.len() < 30, "some must be late");
    while let Some(due) = wire.path.due() {
        wire.run(due);
    }
    assert_eq!(wire.numbers(), (0..30).collect::<Vec<_>>());
    assert_eq!(wire.path.counts.delayed, 30);
}

/// Of doubled packets more leave than came: those without room in the batch wait.
#[test]
fn what_does_not_fit_the_batch_waits() {
    let mut wire = Wire::new("dup=100%");
    for number in 0..16 {
        let slot = wire.batch.reserve(&dest(), LEN).expect("room");
        slot.bytes.fill(number);
    }
    wire.path.take(&mut wire.batch, Time::ZERO);
    assert!(wire.path.release(&mut wire.batch, Time::ZERO));
    assert_eq!(wire.batch.packets(), 16);
    assert_eq!(wire.path.due(), Some(Time::ZERO));
    wire.run(Time::ZERO);
    assert_eq!(wire.path.counts.overflowed, 0);
}

#[test]
fn too_many_held_packets_are_lost_and_counted() {
    let mut wire = Wire::new("delay=10s");
    wire.path.held_bytes = HELD_BYTES_MAX - LEN;
    wire.send(0, Time::ZERO);
    wire.send(1, Time::ZERO);
    assert_eq!(wire.path.counts.overflowed, 1);
}

#[test]
fn the_same_seed_repeats_a_run() {
    let run = || {
        let mut wire = Wire::new("drop=5%,dup=5%,reorder=5%,corrupt=5%");
        (0..200).for_each(|n| wire.send(n, Time::ZERO));
        (wire.left, wire.path.counts)
    };
    assert_eq!(run(), run());
}

/// Once the QP is gone it would not be repeated.
#[test]
fn the_last_packet_arrives_before_its_qp_goes() {
    for spec in ["drop=100%", "corrupt=100%", "delay=10s", "reorder=100%"] {
        let mut wire = Wire::new(spec);
        (0..3).for_each(|n| wire.send(n, Time::ZERO));
        wire.path.settle(Time::ZERO);
        wire.run(Time::ZERO);
        assert_eq!(wire.left.last(), Some(&vec![2; LEN]), "{spec}");
        assert_eq!(wire.path.due(), None, "{spec}");
    }
    // What arrived does not come again.
    let mut wire = Wire::new("drop=0.0001%");
    wire.send(1, Time::ZERO);
    wire.path.settle(Time::ZERO);
    wire.run(Time::ZERO);
    assert_eq!(wire.numbers(), [1]);
}

/// Packets leave at the rate, in their order, each after the delay; what finds no room is lost.
#[test]
fn a_rate_is_kept_and_a_full_queue_loses() {
    const FRAME: u64 = 32 + 66;
    let mut wire = Wire::new("rate=100M,queue=980,delay=1ms");
    (0..12).for_each(|n| wire.send(n, Time::ZERO));
    let mut times = Vec::new();
    while let Some(due) = wire.path.due() {
        wire.run(due);
        times.push(due.0);
    }
    let packet_ns = FRAME * 80;
    let wanted: Vec<u64> = (1..=10).map(|n| 1_000_000 + n * packet_ns).collect();
    assert_eq!(times, wanted);
    assert_eq!(wire.numbers(), (0..10).collect::<Vec<_>>());
    assert_eq!(
        (wire.path.counts.queue_full, wire.path.counts.packets),
        (2, 12)
    );
    // All that was due leaves when its thread wakes up late, and what follows is not later for that.
    let late = Time(50_000_000);
    (0..3).for_each(|n| wire.send(n, Time(40_000_000)));
    wire.run(late);
    assert_eq!(wire.left.len(), 13);
}

/// What is lost or doubled takes its part of the rate.
#[test]
fn the_rate_pays_for_lost_and_doubled_packets() {
    let mut wire = Wire::new("rate=100M,queue=980,dup=100%");
    (0..6).for_each(|n| wire.send(n, Time::ZERO));
    assert_eq!(
        (wire.path.counts.duplicated, wire.path.counts.queue_full),
        (5, 1)
    );
    let mut wire = Wire::new("rate=100M,queue=980,drop=100%");
    (0..12).for_each(|n| wire.send(n, Time::ZERO));
    let counts = wire.path.counts;
    assert_eq!((counts.dropped, counts.queue_full), (10, 2));
    // The last one was lost in the queue: it arrives before its QP goes.
    wire.path.settle(Time::ZERO);
    wire.run(Time::ZERO);
    assert_eq!(wire.numbers().last(), Some(&11));
}
