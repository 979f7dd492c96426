//! Two nodes, and a wire on which packets have Identifications, and strangers send between
//! all that is genuine.

use std::net::IpAddr;

use urxe_core::ah::{AddressHandle, UdDest};
use urxe_core::cq::Cqe;
use urxe_core::error::WcStatus;
use urxe_core::qp::attr::AddressVector;
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, RxPath, Time};
use urxe_wire::{Packet, reident};

use crate::support::*;

pub(crate) const MS: u64 = 1_000_000;
const GRH: u32 = 40;
const SLOT: u64 = 512;

/// How a host numbers its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbering {
    /// 0, and the places in trains, as urxe does.
    Trains,
    /// A counter; between two packets others take up to so many numbers.
    Counter { others: u16 },
}

/// What a stranger sends between genuine packets: a packet to this side, and the
/// Identification that it is made for.
pub(crate) type Forge = Box<dyn FnMut(&World, usize) -> Vec<u8>>;

pub(crate) struct World {
    pub(crate) nodes: [Node; 2],
    pub(crate) now: Time,
    pub(crate) rng: Rng,
    pub(crate) numbering: [Numbering; 2],
    /// Where the counters of the hosts are.
    pub(crate) counters: [u16; 2],
    pub(crate) forge: Option<Forge>,
    /// So many forged packets for so many genuine ones.
    pub(crate) ratio: (u64, u64),
    owed: u64,
    /// Receives that wait, for messages that were lost.
    unused_receives: u64,
    /// Genuine packets that arrive, and places (from 0) at which they do not.
    pub(crate) arrived: u64,
    pub(crate) lose: Vec<u64>,
    qp_type: QpType,
}

impl World {
    pub(crate) fn new(qp_type: QpType, numbering: Numbering, seed: u64) -> World {
        World::on(|_, node| node.addr, qp_type, numbering, seed)
    }

    pub(crate) fn over_ipv6(qp_type: QpType) -> World {
        let addr = |side, _: &Node| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1 + side]);
        World::on(addr, qp_type, Numbering::Trains, 1)
    }

    fn on(
        addr: impl Fn(u16, &Node) -> IpAddr,
        qp_type: QpType,
        numbering: Numbering,
        seed: u64,
    ) -> World {
        let s = Settings {
            qp_type,
            secret: seed,
            ..Settings::default()
        };
        let mut nodes = [Node::new(0, &s), Node::new(1, &s)];
        for (side, node) in nodes.iter_mut().enumerate() {
            node.addr = addr(side as u16, node);
        }
        let (a, b) = ((nodes[0].addr, nodes[0].qpn), (nodes[1].addr, nodes[1].qpn));
        nodes[0].connect(&s, 0, b.0, b.1);
        nodes[1].connect(&s, 1, a.0, a.1);
        let mut rng = Rng(seed);
        let counters = [rng.next() as u16, rng.next() as u16];
        World {
            nodes,
            now: Time(1000 * MS),
            rng,
            numbering: [numbering; 2],
            counters,
            forge: None,
            ratio: (0, 1),
            owed: 0,
            unused_receives: 0,
            arrived: 0,
            lose: Vec::new(),
            qp_type,
        }
    }

    /// Nothing of the host is sent for so long; its counter moves on by itself, by at most
    /// one step for each tick, or not at all.
    pub(crate) fn silence(&mut self, ns: u64) {
        self.now = self.now + ns;
        for side in 0..2 {
            let ticks = self.rng.below(ns / MS + 1);
            self.counters[side] = self.counters[side].wrapping_add(ticks as u16);
        }
        let now = self.now;
        for node in &mut self.nodes {
            node.with_env(now, |s, env| s.handle_timeout(env));
        }
    }

    fn sge(&self, side: usize, at: u64, length: u32) -> Sge {
        let lkey = self.nodes[side].keys.lkey;
        let addr = IOVA + at;
        Sge { addr, length, lkey }
    }

    /// A receive of side 1.
    pub(crate) fn receive(&mut self, wr_id: u64) {
        let sges = [self.sge(1, 0x40000 + wr_id % 32 * SLOT, SLOT as u32)];
        let (now, qp) = (self.now, self.nodes[1].qp);
        let wr = RecvWr { wr_id, sges: &sges };
        self.nodes[1]
            .with_env(now, |s, env| s.post_recv(qp, &wr, env))
            .expect("posts");
    }

    /// A message from side 0 to side 1: its number is what it says.
    pub(crate) fn send(&mut self, number: u64) {
        let at = 0x8000 + number % 32 * SLOT;
        let text: Vec<u8> = number.to_be_bytes().repeat(8);
        self.nodes[0].memory.write(at, &text);
        let sges = [self.sge(0, at, text.len() as u32)];
        let mut wr = SendWr::new(number, WrOpcode::Send, WrData::Sges(&sges));
        wr.flags = urxe_core::work::SendFlags::SIGNALED;
        let (local, remote) = (self.nodes[0].addr, self.nodes[1].addr);
        let path = AddressVector {
            local,
            remote,
            traffic_class: 0,
            hop_limit: 64,
        };
        let ah = AddressHandle::new(PD, &path).expect("a path");
        if self.qp_type == QpType::Ud {
            wr.ud = Some(UdDest {
                ah: &ah,
                qpn: self.nodes[1].qpn,
                qkey: QKEY,
            });
        }
        let (now, qp) = (self.now, self.nodes[0].qp);
        self.nodes[0]
            .with_env(now, |s, env| s.post_send(qp, &wr, env))
            .expect("posts");
    }

    /// The message that a receive holds.
    pub(crate) fn text(&self, cqe: &Cqe) -> u64 {
        let skip = if self.qp_type == QpType::Ud { GRH } else { 0 };
        let at = 0x40000 + cqe.wr_id % 32 * SLOT + u64::from(skip);
        let bytes = self.nodes[1].memory.read(at, 64);
        let number = u64::from_be_bytes(bytes[..8].try_into().expect("8 bytes"));
        assert_eq!(bytes, number.to_be_bytes().repeat(8));
        number
    }

    /// Sends messages with these numbers, so many at once, each with a receive; returns
    /// those that arrived and were no stranger's (which have higher numbers).
    pub(crate) fn exchange(&mut self, numbers: core::ops::Range<u64>, at_once: u64) -> Vec<u64> {
        let mut got = Vec::new();
        let last = numbers.end;
        let mut next = numbers.start;
        while next < last {
            let end = last.min(next + at_once);
            for number in next..end {
                match self.unused_receives {
                    0 => self.receive(number),
                    _ => self.unused_receives -= 1,
                }
                self.send(number);
            }
            self.settle();
            let arrived = self.take(last);
            self.unused_receives += end - next - arrived.len() as u64;
            got.extend(arrived);
            next = end;
        }
        got
    }

    /// What side 1 received. Each receive that a stranger's message took is posted again.
    pub(crate) fn take(&mut self, below: u64) -> Vec<u64> {
        let mut got = Vec::new();
        for cqe in self.nodes[0].take(SEND_CQ) {
            assert_eq!(cqe.status, WcStatus::Success, "message {}", cqe.wr_id);
        }
        for cqe in self.nodes[1].take(RECV_CQ) {
            assert_eq!(cqe.status, WcStatus::Success, "receive {}", cqe.wr_id);
            match self.text(&cqe) {
                number if number < below => got.push(number),
                _ => self.receive(cqe.wr_id),
            }
        }
        got
    }

    /// Until nothing is left to happen: packets arrive at once, timers when they are due.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            if self.pump() {
                continue;
            }
            let timers = self.nodes.iter().filter_map(|n| n.shard.next_timeout());
            let Some(next) = timers.min() else {
                return;
            };
            self.now = next.max(self.now);
            let now = self.now;
            for node in &mut self.nodes {
                node.with_env(now, |s, env| s.handle_timeout(env));
            }
        }
        panic!("no end, at {:?}", self.now);
    }

    /// Moves what both sides have to send; false if that is nothing.
    fn pump(&mut self) -> bool {
        let mut any = false;
        for side in 0..2 {
            for (place, packet) in self.transmit(side) {
                any = true;
                self.carry(side, place, packet);
            }
        }
        any
    }

    /// What a stranger's message took is there again for the next.
    fn replace_receives(&mut self) {
        let got = self.nodes[1].cqs.queues.get(&RECV_CQ);
        let texts: Vec<Cqe> = got.into_iter().flatten().copied().collect();
        let queue = self.nodes[1].cqs.queues.entry(RECV_CQ).or_default();
        queue.clear();
        for cqe in texts {
            if self.text(&cqe) >= FORGED {
                self.receive(cqe.wr_id);
            } else {
                let queue = self.nodes[1].cqs.queues.entry(RECV_CQ).or_default();
                queue.push_back(cqe);
            }
        }
    }

    pub(crate) fn transmit(&mut self, side: usize) -> Vec<(u16, Vec<u8>)> {
        let now = self.now;
        let node = &mut self.nodes[side];
        let mut batch = core::mem::replace(&mut node.batch, TxBatch::new(0, RunLimits::SINGLE));
        let mut packets = Vec::new();
        let mut more = true;
        while more {
            more = node.with_env(now, |s, env| s.poll_transmit(env, &mut batch, AckMode::Now));
            for run in batch.runs() {
                let bytes = &batch.bytes()[run.range.clone()];
                let train = bytes.chunks(run.segment_size).enumerate();
                packets.extend(train.map(|(k, p)| (k as u16, p.to_vec())));
            }
            batch.clear();
        }
        self.nodes[side].batch = batch;
        packets
    }

    /// A genuine packet, after the forged ones that are due.
    fn carry(&mut self, side: usize, place: u16, mut packet: Vec<u8>) {
        // Answers to strangers' packets are genuine too: they draw no others.
        let parsed = Packet::parse(&packet).expect("nodes send packets");
        if side == 0 && !parsed.info().is_response() {
            self.owed += self.ratio.0;
        }
        if let Some(mut forge) = self.forge.take() {
            while self.owed >= self.ratio.1 {
                self.owed -= self.ratio.1;
                for to in [0, 1] {
                    let forged = forge(self, to);
                    self.deliver(to, 0, &forged);
                    self.replace_receives();
                }
            }
            self.forge = Some(forge);
        }
        let mut hint = place;
        if let Numbering::Counter { others } = self.numbering[side] {
            let step = 1 + self.rng.below(u64::from(others) + 1) as u16;
            self.counters[side] = self.counters[side].wrapping_add(step);
            reident(&mut packet, place, self.counters[side]);
            hint = 0;
        }
        let number = self.arrived;
        self.arrived += 1;
        if !self.lose.contains(&number) {
            self.deliver(1 - side, hint, &packet);
        }
        self.now = self.now + 1000;
    }

    pub(crate) fn deliver(&mut self, to: usize, hint: u16, packet: &[u8]) {
        let now = self.now;
        let path = self.path_to(to);
        self.nodes[to].with_env(now, |s, env| s.handle_packet(&path, hint, packet, env));
    }

    /// How packets of the other side arrive.
    pub(crate) fn path_to(&self, to: usize) -> RxPath {
        RxPath::new(self.nodes[1 - to].addr, 4791, self.nodes[to].addr, 0)
    }

    pub(crate) fn assert_alive(&self) {
        for node in &self.nodes {
            assert_eq!(node.state(), QpState::Rts);
        }
    }
}

/// Numbers from here on are those of strangers' messages.
pub(crate) const FORGED: u64 = 1 << 60;
