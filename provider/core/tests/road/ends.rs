//! Two queue pairs, one at each end of a road. The first sends messages to the second, or reads them from there.

use std::collections::VecDeque;

use urxe_core::congestion::CongestionControl;
use urxe_core::error::WcStatus;
use urxe_core::qp::attr::{Mtu, QpCap};
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, Recovery, RxPath, Time};
use urxe_wire::{Operation, Packet, Psn};

use super::road::{Cargo, Flow};
use super::support::repeats::Repeats;
use super::support::{IOVA, Pair, RECOVERY, RECV_CQ, SEND_CQ, Settings};

/// What a datagram takes on a link beside its UDP payload.
const OVERHEAD: u64 = 66;
/// The part of a link that payload has: packets of 1024 bytes.
pub(crate) const PAYLOAD: f64 = 1024.0 / (1024.0 + 16.0 + OVERHEAD as f64);

/// What the first side sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) op: WrOpcode,
    /// Every so many messages are a READ instead; 0: none is.
    pub(crate) read_every: u64,
    /// Bytes of a message, and messages that are posted at a time.
    pub(crate) message: u32,
    pub(crate) posted: u64,
    /// The receiver has 16 receives, and takes so many nanoseconds for each message. 0: it always has enough.
    pub(crate) takes: u64,
    /// The code of the local ACK timeout.
    pub(crate) timeout: u8,
}

impl Load {
    /// Large messages, and always enough of them.
    pub(crate) fn new(op: WrOpcode) -> Load {
        Load {
            op,
            read_every: 0,
            message: 256 << 10,
            posted: 64,
            takes: 0,
            timeout: 14,
        }
    }
}

/// Receives of a receiver that takes its time.
const RECEIVES: u64 = 16;

pub(crate) struct Ends {
    pair: Pair,
    load: Load,
    posted: u64,
    received: u64,
    done: u64,
    is_dead: bool,
    /// Packets that not every adapter knows.
    unknown: u64,
    /// READ requests that the second side got, if it is one that goes back, and those of them that not every such adapter answers.
    repeats: Option<Repeats>,
    refused: u64,
    /// When each message that is under way was posted, and how long those took that are done.
    since: VecDeque<Time>,
    times: Vec<u64>,
    /// When the slow receiver is done with the message that it has, and how many wait for it.
    busy: Time,
    waiting: u64,
}

impl Ends {
    pub(crate) fn new(control: CongestionControl, load: Load, seed: u64) -> Ends {
        let settings = Settings {
            mtu: Mtu::Mtu1024,
            window_bytes: 512 << 10,
            window_packets: 4096,
            window_packets_start: 32,
            read_chunk_bytes: 64 << 10,
            rd_atomic: 16,
            timeout: load.timeout,
            // The bounds are those of going back, unless a test says otherwise.
            recovery: match RECOVERY.get() {
                [Recovery::Keep, Recovery::Keep] => [Recovery::GoBackN; 2],
                both => both,
            },
            memory: load.message as usize * 2,
            cap: QpCap {
                max_send_wr: load.posted as u32,
                max_recv_wr: load.posted.max(RECEIVES) as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..Settings::default()
        };
        let mut pair = Pair::new(&settings, seed);
        let (qp, now) = (pair.nodes[0].qp, pair.now);
        let shard = &mut pair.nodes[0].shard;
        shard
            .set_congestion_control(qp, control, now)
            .expect("takes it");
        let mut ends = Ends {
            pair,
            load,
            posted: 0,
            received: 0,
            done: 0,
            is_dead: false,
            unknown: 0,
            repeats: (RECOVERY.get()[1] == Recovery::GoBackN)
                .then(|| Repeats::new(settings.mtu.bytes(), Psn::new(settings.psn[0]))),
            refused: 0,
            since: VecDeque::new(),
            times: Vec::new(),
            busy: Time::ZERO,
            waiting: 0,
        };
        if load.takes > 0 {
            (0..RECEIVES).for_each(|_| ends.post_receive());
        }
        ends
    }

    fn post_receive(&mut self) {
        let sges = [Sge {
            addr: IOVA + u64::from(self.load.message),
            length: self.load.message,
            lkey: self.pair.nodes[1].keys.lkey,
        }];
        let wr_id = self.received;
        self.pair.post_recv(1, &RecvWr { wr_id, sges: &sges });
        self.received += 1;
    }

    fn post(&mut self) {
        let keys = [self.pair.nodes[0].keys, self.pair.nodes[1].keys];
        let is_read = self.posted % self.load.read_every.max(1) + 1 == self.load.read_every;
        let op = if is_read {
            WrOpcode::RdmaRead
        } else {
            self.load.op
        };
        if op == WrOpcode::Send && self.load.takes == 0 {
            self.post_receive();
        }
        let sges = [Sge {
            addr: IOVA,
            length: self.load.message,
            lkey: keys[0].lkey,
        }];
        let mut wr = SendWr::new(self.posted, op, WrData::Sges(&sges));
        wr.flags = SendFlags::SIGNALED;
        (wr.remote_addr, wr.rkey) = (IOVA + u64::from(self.load.message), keys[1].rkey);
        self.pair.post_send(0, &wr);
        self.posted += 1;
        self.since.push_back(self.pair.now);
    }

    /// The slow receiver is done with a message, and posts its receive again.
    fn receive(&mut self, now: Time) {
        let arrived = self.pair.nodes[1].take(RECV_CQ).len() as u64;
        if self.load.takes == 0 {
            return;
        }
        self.waiting += arrived;
        while self.waiting > 0 && self.busy <= now {
            self.waiting -= 1;
            self.busy = now + self.load.takes;
            self.post_receive();
        }
    }
}

/// A packet such as any adapter sends: its ACKNOWLEDGE has no payload, its READ asks for an answer, and nothing reserved is set.
fn is_known(bytes: &[u8]) -> bool {
    let packet = Packet::parse(bytes).expect("shards send packets");
    let bth = packet.bth();
    match packet.info().operation {
        Operation::Acknowledge => packet.payload().is_empty(),
        Operation::ReadRequest => bth.ack_req,
        _ => true,
    }
}

impl Flow for Ends {
    fn poll(&mut self, now: Time) -> Vec<Cargo> {
        self.pair.now = now;
        while self.posted - self.done < self.load.posted && !self.is_dead {
            self.post();
        }
        let mut out = Vec::new();
        for side in 0..2 {
            let node = &mut self.pair.nodes[side];
            let mut more = true;
            while more {
                let mut batch =
                    std::mem::replace(&mut node.batch, TxBatch::new(0, RunLimits::SINGLE));
                more = node.with_env(now, |s, env| s.poll_transmit(env, &mut batch, AckMode::Now));
                for run in batch.runs() {
                    let packets = batch.bytes()[run.range.clone()].chunks(run.segment_size);
                    out.extend(packets.enumerate().map(|(k, bytes)| Cargo {
                        from: side,
                        size: bytes.len() as u64 + OVERHEAD,
                        hint: k as u16,
                        bytes: bytes.to_vec(),
                    }));
                }
                batch.clear();
                node.batch = batch;
            }
        }
        let unknown = out.iter().filter(|cargo| !is_known(&cargo.bytes));
        self.unknown += unknown.count() as u64;
        out
    }

    fn arrive(&mut self, cargo: Cargo, now: Time) {
        let repeats = self.repeats.as_mut().filter(|_| cargo.from == 0);
        if repeats.is_some_and(|repeats| repeats.refuse(&cargo.bytes)) {
            self.refused += 1;
            return;
        }
        let [near, far] = [cargo.from, 1 - cargo.from].map(|side| self.pair.nodes[side].addr);
        let path = RxPath::new(near, 4791, far, 0);
        self.pair.nodes[1 - cargo.from].with_env(now, |s, env| {
            s.handle_packet(&path, cargo.hint, &cargo.bytes, env)
        });
    }

    fn deadline(&self) -> Option<Time> {
        let nodes = self.pair.nodes.iter();
        let timers = nodes.filter_map(|node| node.shard.next_timeout());
        let receiver = (self.waiting > 0).then_some(self.busy);
        timers.chain(receiver).min()
    }

    fn tick(&mut self, now: Time) {
        for node in &mut self.pair.nodes {
            node.with_env(now, |s, env| s.handle_timeout(env));
        }
        for cqe in self.pair.nodes[0].take(SEND_CQ) {
            self.is_dead |= cqe.status != WcStatus::Success;
            self.done += 1;
            let since = self.since.pop_front().expect("it was posted");
            self.times.push(now.since_ns(since));
        }
        self.receive(now);
    }

    fn delivered(&self) -> u64 {
        self.done * u64::from(self.load.message)
    }

    fn is_dead(&self) -> bool {
        self.is_dead
    }

    fn sent_again(&self) -> u64 {
        self.pair.nodes[0].shard.stats().retransmitted_pkts
    }

    fn unknown(&self) -> u64 {
        self.unknown
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn times(&self) -> &[u64] {
        &self.times
    }

    fn longest(&self, end: Time) -> u64 {
        let under_way = self.since.front().map(|&since| end.since_ns(since));
        self.times
            .iter()
            .copied()
            .chain(under_way)
            .max()
            .unwrap_or(0)
    }
}
