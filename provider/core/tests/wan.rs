//! Goodput over a long road that loses packets, in virtual time: a link of a rate with a queue before it, then loss and
//! reordering, then a delay, both ways. The window is fixed, so that nothing but recovery decides.
//!
//! `cargo test -p urxe-core --test transport wan -- --nocapture` prints the figures.

use std::collections::BTreeMap;

use crate::support::*;
use urxe_core::error::WcStatus;
use urxe_core::qp::attr::{Mtu, QpCap};
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, Recovery, RxPath, Time};

/// Bits a second, and nanoseconds one way: 468 packets of 1024 bytes are under way when it is full.
const RATE: u64 = 200_000_000;
const DELAY: u64 = 10_000_000;
/// Payload of a packet, and what it takes on the link.
const MTU: u64 = 1024;
const PACKET: u64 = MTU + 44;
const MESSAGE: u32 = 256 << 10;
const DEPTH: u64 = 16;

/// Faults of a road, by 100,000 packets.
#[derive(Clone, Copy)]
struct Road {
    loss: u64,
    reorder: u64,
}

#[derive(Debug)]
struct Run {
    /// Payload delivered, of what the link could carry of it.
    ratio: f64,
    lost: u64,
    resent: u64,
}

struct World {
    pair: Pair,
    road: Road,
    rng: Rng,
    wire: BTreeMap<(Time, u64), (usize, u16, Vec<u8>)>,
    free: [u64; 2],
    sequence: u64,
    lost: u64,
}

fn settings(recovery: [Recovery; 2]) -> Settings {
    let bdp = (RATE / 8 * 2 * DELAY / 1_000_000_000) as u32;
    // The road and its queue hold two; nothing but a loss ends what is under way.
    let window = bdp / PACKET as u32 * 7 / 4;
    Settings {
        mtu: Mtu::Mtu1024,
        window_bytes: window * MTU as u32,
        window_packets: window,
        window_packets_min: window,
        recovery,
        read_chunk_bytes: 64 << 10,
        rd_atomic: 64,
        timeout: 14,
        memory: MESSAGE as usize * 2,
        cap: QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        ..Settings::default()
    }
}

impl World {
    fn new(road: Road, recovery: [Recovery; 2], seed: u64) -> World {
        World {
            pair: Pair::new(&settings(recovery), seed),
            road,
            rng: Rng(seed),
            wire: BTreeMap::new(),
            free: [0; 2],
            sequence: 0,
            lost: 0,
        }
    }

    fn post(&mut self, wr_id: u64, opcode: WrOpcode) {
        let (near, far) = (IOVA, IOVA + u64::from(MESSAGE));
        let [a, b] = &self.pair.nodes;
        let (lkey, far_lkey, rkey) = (a.keys.lkey, b.keys.lkey, b.keys.rkey);
        let entry = |addr, lkey| Sge {
            addr,
            length: MESSAGE,
            lkey,
        };
        if opcode == WrOpcode::Send {
            let sges = [entry(far, far_lkey)];
            self.pair.post_recv(1, &RecvWr { wr_id, sges: &sges });
        }
        let sges = [entry(near, lkey)];
        let mut wr = SendWr::new(wr_id, opcode, WrData::Sges(&sges));
        wr.flags = SendFlags::SIGNALED;
        (wr.remote_addr, wr.rkey) = (far, rkey);
        self.pair.post_send(0, &wr);
    }

    fn transmit(&mut self, side: usize) {
        let now = self.pair.now;
        let mut more = true;
        while more {
            let node = &mut self.pair.nodes[side];
            let mut batch = std::mem::replace(&mut node.batch, TxBatch::new(0, RunLimits::SINGLE));
            more = node.with_env(now, |s, env| s.poll_transmit(env, &mut batch, AckMode::Now));
            for run in batch.runs() {
                let packets = batch.bytes()[run.range.clone()].chunks(run.segment_size);
                for (k, packet) in packets.enumerate() {
                    self.launch(side, k as u16, packet);
                }
            }
            batch.clear();
            self.pair.nodes[side].batch = batch;
        }
    }

    fn launch(&mut self, side: usize, ident: u16, packet: &[u8]) {
        let bytes = packet.len() as u64 + 28;
        let free = &mut self.free[side];
        *free = (*free).max(self.pair.now.0) + bytes * 8_000_000_000 / RATE;
        if self.rng.below(100_000) < self.road.loss {
            // Of acknowledgements none is sent again.
            self.lost += u64::from(side == 0);
            return;
        }
        let late = match self.rng.below(100_000) < self.road.reorder {
            true => self.rng.below(2_000_000),
            false => 0,
        };
        self.sequence += 1;
        let at = Time(*free + DELAY + late);
        let entry = (1 - side, ident, packet.to_vec());
        self.wire.insert((at, self.sequence), entry);
    }

    fn step(&mut self) {
        for side in 0..2 {
            self.transmit(side);
        }
        let arrival = self.wire.keys().next().map(|k| k.0);
        let timers = self.pair.nodes.iter().map(|n| n.shard.next_timeout());
        let next = arrival.into_iter().chain(timers.flatten()).min();
        let now = next.expect("something is under way").max(self.pair.now);
        self.pair.now = now;
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (to, ident, packet) = entry.remove();
            let [from, at] = [1 - to, to].map(|side| self.pair.nodes[side].addr);
            let path = RxPath::new(from, 4791, at, 0);
            self.pair.nodes[to].with_env(now, |s, env| s.handle_packet(&path, ident, &packet, env));
        }
        for node in &mut self.pair.nodes {
            node.with_env(now, |s, env| s.handle_timeout(env));
        }
    }
}

/// In virtual time.
const END: Time = Time(3_000_000_000);

fn run(road: Road, recovery: [Recovery; 2], opcode: WrOpcode, seed: u64) -> Run {
    let mut world = World::new(road, recovery, seed);
    let (mut posted, mut done) = (0, 0);
    let mut last = Time::ZERO;
    while world.pair.now < END {
        while posted - done < DEPTH {
            world.post(posted, opcode);
            posted += 1;
        }
        world.step();
        for cqe in world.pair.nodes[0].take(SEND_CQ) {
            assert_eq!(cqe.status, WcStatus::Success, "seed {seed}: {cqe:?}");
            done += 1;
            last = world.pair.now;
        }
        world.pair.nodes[1].take(RECV_CQ);
    }
    let payload = (done * u64::from(MESSAGE) * 8) as f64;
    let possible = RATE as f64 * MTU as f64 / PACKET as f64;
    let resent = |side: usize| world.pair.nodes[side].shard.stats().retransmitted_pkts;
    Run {
        ratio: payload / (possible * last.0 as f64 * 1e-9),
        lost: world.lost,
        resent: resent(0),
    }
}

const ROADS: [(&str, Road); 5] = {
    const fn road(loss: u64, reorder: u64) -> Road {
        Road { loss, reorder }
    }
    [
        ("no loss", road(0, 0)),
        ("0.1 % lost", road(100, 0)),
        ("1 % lost", road(1_000, 0)),
        ("5 % lost", road(5_000, 0)),
        ("1 % reordered", road(0, 1_000)),
    ]
};

/// What is sent again is what was lost, and the link stays full.
#[test]
fn between_two_sides_that_tell_losses_cost_their_share() {
    const DATA: [f64; 5] = [0.98, 0.98, 0.96, 0.91, 0.98];
    const READ: [f64; 5] = [0.98, 0.97, 0.95, 0.90, 0.96];
    for (opcode, least) in [
        (WrOpcode::RdmaWrite, DATA),
        (WrOpcode::Send, DATA),
        (WrOpcode::RdmaRead, READ),
    ] {
        for ((name, road), least) in ROADS.into_iter().zip(least) {
            let got = run(road, [Recovery::Selective; 2], opcode, 7);
            println!("selective, {opcode:?}, {name}: {got:.3?}");
            assert!(got.ratio >= least, "{opcode:?}, {name}: {got:?}");
            if road.reorder == 0 && opcode != WrOpcode::RdmaRead {
                let most = got.lost as f64 * 1.02 + 20.0;
                assert!(got.resent as f64 <= most, "{opcode:?}, {name}: {got:?}");
            }
        }
    }
}

/// A responder that keeps helps any requester: it loses nothing by it, and gains where packets were only late.
#[test]
fn a_responder_that_keeps_helps_a_peer_that_goes_back() {
    for (name, road) in ROADS {
        let [keeps, drops] = [Recovery::Keep, Recovery::GoBackN]
            .map(|responder| run(road, [Recovery::GoBackN, responder], WrOpcode::RdmaWrite, 7));
        println!("{name}: to one that keeps {keeps:.3?}, to one that drops {drops:.3?}");
        assert!(
            keeps.ratio >= drops.ratio * 0.95,
            "{name}: {keeps:?} {drops:?}"
        );
    }
}
