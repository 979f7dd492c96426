//! Two shards on a virtual wire: time is a number, faults come from a seed.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]

pub mod bytes;
pub mod late;
pub mod repeats;
pub mod trains;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use urxe_core::cq::{CqId, CqOverrun, CqSink, Cqe};
use urxe_core::memory::{Memory, MemoryFault};
use urxe_core::mr::{Access, MrInit, MrKeys, MrSpan, MrTable, PdId};
use urxe_core::qp::attr::{AddressVector, AttrMask, Mtu, QpAttr, QpCap};
use urxe_core::qp::state::{QpState, QpType, transition};
use urxe_core::table::QpIndex;
use urxe_core::transmit::{RunLimits, TxBatch};
use urxe_core::work::{RecvWr, SendWr};
use urxe_core::{AckMode, Env, QpInit, Recovery, RxPath, Shard, ShardConfig, Time};
use urxe_wire::{IcrcPolicy, Packet, Psn, Qkey, Qpn};

use late::{Late, Of};
use repeats::Repeats;
pub use trains::Rows;
use trains::Train;

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True once in a thousand times `per_mille`.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Memory in which addresses are indices.
#[derive(Debug)]
pub struct VecMemory {
    bytes: RefCell<Vec<u8>>,
    /// Addresses from here on cannot be reached any more (an unmapped page).
    pub gone_from: Cell<u64>,
    /// Addresses from here on do not survive a loss of power: at first all.
    pub volatile_from: Cell<u64>,
    /// What was made persistent, with its address, in order.
    pub persisted: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl VecMemory {
    pub fn new(len: usize) -> Self {
        VecMemory {
            bytes: RefCell::new(vec![0; len]),
            gone_from: u64::MAX.into(),
            volatile_from: 0.into(),
            persisted: RefCell::default(),
        }
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.bytes.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        self.bytes.borrow()[at as usize..][..len].to_vec()
    }

    fn check(&self, span: MrSpan) -> Result<(), MemoryFault> {
        if span.host_addr() + span.len() as u64 > self.gone_from.get() {
            return Err(MemoryFault);
        }
        Ok(())
    }

    fn update(&self, span: MrSpan, f: impl Fn(u64) -> u64) -> Result<u64, MemoryFault> {
        self.check(span)?;
        let mut bytes = self.bytes.borrow_mut();
        let place = &mut bytes[span.host_addr() as usize..][..8];
        let old = u64::from_ne_bytes(place.try_into().expect("8 bytes"));
        place.copy_from_slice(&f(old).to_ne_bytes());
        Ok(old)
    }
}

impl Memory for VecMemory {
    fn copy_out(&self, span: MrSpan, dst: &mut [u8]) -> Result<(), MemoryFault> {
        self.check(span)?;
        dst.copy_from_slice(&self.bytes.borrow()[span.host_addr() as usize..][..span.len()]);
        Ok(())
    }

    fn copy_in(&self, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault> {
        self.check(span)?;
        self.write(span.host_addr(), src);
        Ok(())
    }

    fn compare_swap(&self, span: MrSpan, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        self.update(span, |old| if old == compare { swap } else { old })
    }

    fn fetch_add(&self, span: MrSpan, add: u64) -> Result<u64, MemoryFault> {
        self.update(span, |old| old.wrapping_add(add))
    }

    fn persist(&self, span: MrSpan) -> Result<(), MemoryFault> {
        self.check(span)?;
        if span.host_addr() + span.len() as u64 > self.volatile_from.get() {
            return Err(MemoryFault);
        }
        let bytes = self.read(span.host_addr(), span.len());
        self.persisted.borrow_mut().push((span.host_addr(), bytes));
        Ok(())
    }
}

/// Completion queues by id.
#[derive(Debug)]
pub struct Cqs {
    pub queues: BTreeMap<CqId, VecDeque<Cqe>>,
    pub capacity: usize,
}

impl CqSink for Cqs {
    fn push(&mut self, cq: CqId, cqe: Cqe) -> Result<(), CqOverrun> {
        let queue = self.queues.entry(cq).or_default();
        if queue.len() >= self.capacity {
            return Err(CqOverrun);
        }
        queue.push_back(cqe);
        Ok(())
    }
}

pub const PD: PdId = PdId(1);
pub const SEND_CQ: CqId = CqId(1);
pub const RECV_CQ: CqId = CqId(2);
/// Regions are registered so that addresses in work requests differ from indices.
pub const IOVA: u64 = 0x7000_0000_0000;

/// One side: a shard and its world.
#[derive(Debug)]
pub struct Node {
    pub shard: Shard,
    pub mrs: MrTable,
    pub memory: VecMemory,
    pub cqs: Cqs,
    pub addr: IpAddr,
    pub qp: QpIndex,
    pub qpn: Qpn,
    /// The whole memory, with all rights.
    pub keys: MrKeys,
    pub batch: TxBatch,
    pub late: Late,
}

/// Every combination of what two sides do about losses, in turn.
pub fn recoveries(number: u64) -> [Recovery; 2] {
    const ALL: [Recovery; 3] = [Recovery::GoBackN, Recovery::Keep, Recovery::Selective];
    let at = |n: u64| ALL[(n % ALL.len() as u64) as usize];
    [at(number), at(number / ALL.len() as u64)]
}

thread_local! {
    /// What nodes of this thread do unless a test says otherwise.
    pub static RECOVERY: Cell<[Recovery; 2]> = const { Cell::new([Recovery::Keep; 2]) };
    /// Whether two selective sides tell each other that they are when they connect, or are to find out.
    pub static AGREES: Cell<bool> = const { Cell::new(true) };
    /// Nanoseconds in which nothing may be sent although something will be.
    pub static QUIET_MAX: Cell<u64> = const { Cell::new(u64::MAX) };
    /// Whether sides that go back repeat of READs what Linux's rxe does, and no more.
    pub static PARTICULAR: Cell<bool> = const { Cell::new(false) };
    /// How what is in the middle of messages is taken.
    pub static ROWS: Cell<Rows> = const { Cell::new(Rows::Own) };
}

/// The Q_Key of datagram QPs.
pub const QKEY: Qkey = Qkey(0x1234);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub qp_type: QpType,
    pub mtu: Mtu,
    pub psn: [u32; 2],
    pub rd_atomic: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub access: Access,
    pub cap: QpCap,
    pub sq_sig_all: bool,
    pub memory: usize,
    pub window_bytes: u32,
    pub window_packets_min: u32,
    pub destination_bytes: u32,
    pub destination_bytes_beside: u32,
    pub read_chunk_bytes: u32,
    pub limits: RunLimits,
    pub batch_bytes: usize,
    pub secret: u64,
    pub icrc: IcrcPolicy,
    pub pace_burst_bytes: u32,
    pub window_packets: u32,
    pub window_packets_start: u32,
    /// What each side does about losses.
    pub recovery: [Recovery; 2],
    /// The sides are neighbours on one host.
    pub neighbours: bool,
    /// Every message asks for an ACK.
    pub all_ask: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            qp_type: QpType::Rc,
            mtu: Mtu::Mtu256,
            psn: [0x100, 0x200],
            rd_atomic: 4,
            timeout: 10,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            access: Access(0xf),
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 256,
            },
            sq_sig_all: false,
            memory: 1 << 20,
            window_bytes: 64 << 10,
            window_packets_min: 4,
            destination_bytes: u32::MAX,
            destination_bytes_beside: u32::MAX,
            read_chunk_bytes: 2048,
            limits: RunLimits {
                segments_max: 64,
                bytes_max: RunLimits::UDP_PAYLOAD_MAX,
            },
            batch_bytes: 128 << 10,
            secret: 1,
            icrc: IcrcPolicy::SolveIdent,
            pace_burst_bytes: 0,
            window_packets: 1024,
            window_packets_start: u32::MAX,
            recovery: RECOVERY.get(),
            neighbours: false,
            all_ask: false,
        }
    }
}

impl Node {
    pub fn new(side: u8, s: &Settings) -> Node {
        let secret = s.secret.wrapping_mul(2).wrapping_add(u64::from(side));
        let mut shard = Shard::new(ShardConfig {
            secret,
            window_bytes: s.window_bytes,
            window_packets_min: s.window_packets_min,
            destination_bytes: s.destination_bytes,
            destination_bytes_beside: s.destination_bytes_beside,
            read_chunk_bytes: s.read_chunk_bytes,
            icrc: s.icrc,
            pace_burst_bytes: s.pace_burst_bytes,
            window_packets: s.window_packets,
            window_packets_start: s.window_packets_start,
            all_ask: s.all_ask,
            recovery: s.recovery[usize::from(side)],
            ..ShardConfig::default()
        });
        let mut mrs = MrTable::new(secret ^ 0x55);
        let keys = mrs
            .register(MrInit {
                pd: PD,
                access: Access(0x30f),
                host_addr: 0,
                iova: IOVA,
                len: s.memory as u64,
                remote_invalidate: false,
            })
            .expect("registers");
        let init = QpInit {
            pd: PD,
            qp_type: s.qp_type,
            send_cq: SEND_CQ,
            recv_cq: RECV_CQ,
            cap: s.cap,
            sq_sig_all: s.sq_sig_all,
            srq: None,
            xrcd: None,
            block_self_mcast_lb: false,
        };
        let (qp, qpn) = shard.create_qp(&init).expect("creates");
        Node {
            shard,
            mrs,
            memory: VecMemory::new(s.memory),
            cqs: Cqs {
                queues: BTreeMap::new(),
                capacity: 1 << 20,
            },
            addr: IpAddr::V4(Ipv4Addr::new(10, 0, 0, side + 1)),
            qp,
            qpn,
            keys,
            batch: TxBatch::new(s.batch_bytes, s.limits),
            late: Late::default(),
        }
    }

    pub fn with_env<R>(
        &mut self,
        now: Time,
        f: impl FnOnce(&mut Shard, &mut Env<'_, VecMemory, Cqs>) -> R,
    ) -> R {
        let mut env = Env {
            now,
            mrs: &mut self.mrs,
            memory: &self.memory,
            cqs: &mut self.cqs,
            late: Some(&self.late),
        };
        f(&mut self.shard, &mut env)
    }

    pub fn modify(&mut self, attr: &QpAttr, mask: AttrMask) {
        let qp = self.qp;
        self.with_env(Time::ZERO, |s, env| s.modify_qp(qp, attr, mask, env))
            .expect("modifies");
    }

    /// Goes to the next state with those of the attributes that the service takes.
    fn advance(&mut self, s: &Settings, attr: &QpAttr, mask: AttrMask) {
        let entry = transition(s.qp_type, self.state(), attr.qp_state).expect("a transition");
        let taken = entry.required | entry.optional | AttrMask::STATE;
        self.modify(attr, AttrMask(mask.0 & taken.0));
    }

    /// RESET to RTS towards a peer.
    pub fn connect(&mut self, s: &Settings, side: usize, peer: IpAddr, peer_qpn: Qpn) {
        let mut attr = QpAttr {
            qp_state: QpState::Init,
            qp_access_flags: s.access,
            qkey: QKEY,
            ..QpAttr::default()
        };
        self.advance(
            s,
            &attr,
            AttrMask::STATE
                | AttrMask::PKEY_INDEX
                | AttrMask::PORT
                | AttrMask::ACCESS_FLAGS
                | AttrMask::QKEY,
        );
        attr.qp_state = QpState::Rtr;
        attr.path_mtu = s.mtu;
        attr.dest_qp_num = peer_qpn;
        attr.rq_psn = Psn::new(s.psn[1 - side]);
        attr.max_dest_rd_atomic = s.rd_atomic;
        attr.min_rnr_timer = s.min_rnr_timer;
        attr.ah_attr = Some(AddressVector {
            local: self.addr,
            remote: peer,
            traffic_class: 0,
            hop_limit: 64,
        });
        self.advance(
            s,
            &attr,
            AttrMask::STATE
                | AttrMask::AV
                | AttrMask::PATH_MTU
                | AttrMask::DEST_QPN
                | AttrMask::RQ_PSN
                | AttrMask::MAX_DEST_RD_ATOMIC
                | AttrMask::MIN_RNR_TIMER,
        );
        attr.qp_state = QpState::Rts;
        attr.sq_psn = Psn::new(s.psn[side]);
        attr.timeout = s.timeout;
        attr.retry_cnt = s.retry_cnt;
        attr.rnr_retry = s.rnr_retry;
        attr.max_rd_atomic = s.rd_atomic;
        self.advance(
            s,
            &attr,
            AttrMask::STATE
                | AttrMask::SQ_PSN
                | AttrMask::TIMEOUT
                | AttrMask::RETRY_CNT
                | AttrMask::RNR_RETRY
                | AttrMask::MAX_QP_RD_ATOMIC,
        );
        self.agree(s);
        self.shard.set_takes_pairs(self.qp, s.neighbours);
    }

    /// The two sides tell each other that both are selective, if they are and do.
    pub fn agree(&mut self, s: &Settings) {
        if s.recovery == [Recovery::Selective; 2] && AGREES.get() {
            self.shard.set_selective_peer(self.qp);
        }
    }

    pub fn state(&self) -> QpState {
        self.shard.query_qp(self.qp).expect("exists").0.qp_state
    }

    pub fn take(&mut self, cq: CqId) -> Vec<Cqe> {
        self.cqs.queues.entry(cq).or_default().drain(..).collect()
    }
}

/// What the wire does to packets, each in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u64,
    pub duplicate: u64,
    pub corrupt: u64,
    pub reorder: u64,
    /// Mean delay in nanoseconds.
    pub delay_ns: u64,
    /// Packets arrive only at multiples of this, together: a node hears of many before
    /// it can answer, as one that is scheduled out does. 0 for each at its own time.
    pub batch_ns: u64,
    /// A switch marks packets (CE), by 1000.
    pub congest: u64,
}

/// What a filter says about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Pass,
    Drop,
}

type Filter = Box<dyn FnMut(usize, &[u8]) -> Verdict>;

/// The byte of the BTH that switches may change.
const NOT_IN_CRC: usize = 4;

/// A packet on its way.
pub struct Travelling {
    to: usize,
    ident: u16,
    bytes: Vec<u8>,
    is_damaged: bool,
}

/// Two nodes and the wire between them.
pub struct Pair {
    pub nodes: [Node; 2],
    pub now: Time,
    pub faults: Faults,
    pub rng: Rng,
    pub acks: AckMode,
    /// Sees every packet before the faults do; for scripted losses.
    pub filter: Option<Filter>,
    /// Packets sent by each side.
    pub sent: [u64; 2],
    /// What a side repeats of READs, if it is as particular as some adapters.
    repeats: [Option<Repeats>; 2],
    in_flight: BTreeMap<(Time, u64), Travelling>,
    sequence: u64,
    /// How often the packets of a PSN were spoilt, by sender, kind and PSN.
    spoilt: BTreeMap<(usize, bool, u32), u32>,
    /// When something was sent or posted last.
    quiet_since: Time,
}

/// Faults to one PSN, and as many to its response: one more of both, and the retry counter of 7 would rightly run out.
const FAULTS_PER_PSN_MAX: u32 = 3;

impl Pair {
    pub fn new(s: &Settings, seed: u64) -> Pair {
        let mut pair = Pair::unconnected(s, seed);
        let nodes = &mut pair.nodes;
        let (a, b) = ((nodes[0].addr, nodes[0].qpn), (nodes[1].addr, nodes[1].qpn));
        nodes[0].connect(s, 0, b.0, b.1);
        nodes[1].connect(s, 1, a.0, a.1);
        pair
    }

    /// With QPs in RESET.
    pub fn unconnected(s: &Settings, seed: u64) -> Pair {
        Pair {
            nodes: [Node::new(0, s), Node::new(1, s)],
            now: Time::ZERO,
            faults: Faults {
                delay_ns: 1000,
                ..Faults::default()
            },
            rng: Rng(seed),
            acks: AckMode::Now,
            filter: None,
            sent: [0; 2],
            repeats: [0, 1].map(|side| {
                let answers = s.recovery[side] == Recovery::GoBackN && PARTICULAR.get();
                answers.then(|| Repeats::new(s.mtu.bytes(), Psn::new(s.psn[1 - side])))
            }),
            in_flight: BTreeMap::new(),
            sequence: 0,
            spoilt: BTreeMap::new(),
            quiet_since: Time::ZERO,
        }
    }

    pub fn post_send(&mut self, side: usize, wr: &SendWr<'_>) {
        let (now, qp) = (self.now, self.nodes[side].qp);
        self.quiet_since = now;
        self.nodes[side]
            .with_env(now, |s, env| s.post_send(qp, wr, env))
            .expect("posts");
    }

    pub fn post_recv(&mut self, side: usize, wr: &RecvWr<'_>) {
        let (now, qp) = (self.now, self.nodes[side].qp);
        self.quiet_since = now;
        self.nodes[side].serve_late(now);
        self.nodes[side]
            .with_env(now, |s, env| s.post_recv(qp, wr, env))
            .expect("posts");
    }

    /// A receive that is posted while the next packets are handled.
    pub fn post_recv_late(&self, side: usize, wr: &RecvWr<'_>) {
        let node = &self.nodes[side];
        let cap = node.shard.query_qp(node.qp).expect("exists").1.cap;
        node.late
            .post(Of::Qp(node.qp), cap.max_recv_sge as usize, wr);
    }

    /// Hands over everything that the shards want to send.
    pub fn transmit(&mut self) {
        for side in 0..2 {
            let (now, acks) = (self.now, self.acks);
            let mut more = true;
            while more {
                let node = &mut self.nodes[side];
                let mut batch =
                    std::mem::replace(&mut node.batch, TxBatch::new(0, RunLimits::SINGLE));
                more = node.with_env(now, |s, env| s.poll_transmit(env, &mut batch, acks));
                let packets: Vec<(u16, Vec<u8>)> = batch
                    .runs()
                    .iter()
                    .flat_map(|run| {
                        batch.bytes()[run.range.clone()]
                            .chunks(run.segment_size)
                            .enumerate()
                    })
                    .map(|(k, p)| (k as u16, p.to_vec()))
                    .collect();
                batch.clear();
                self.nodes[side].batch = batch;
                for (ident, packet) in packets {
                    self.launch(side, ident, packet);
                }
            }
        }
    }

    fn launch(&mut self, from: usize, ident: u16, mut packet: Vec<u8>) {
        self.sent[from] += 1;
        let quiet = self.now.since_ns(self.quiet_since);
        assert!(
            quiet <= QUIET_MAX.get(),
            "nothing was sent for {quiet} ns until {:?}",
            self.now
        );
        self.quiet_since = self.now;
        if let Some(filter) = &mut self.filter
            && filter(from, &packet) == Verdict::Drop
        {
            return;
        }
        let f = self.faults;
        let parsed = Packet::parse(&packet).expect("shards send packets");
        let key = (from, parsed.info().is_response(), parsed.bth().psn.get());
        let spoilt = self.spoilt.entry(key).or_default();
        let may_fail = *spoilt < FAULTS_PER_PSN_MAX;
        let lost = may_fail && self.rng.chance(f.lose);
        let corrupted = may_fail && !lost && self.rng.chance(f.corrupt);
        *spoilt += u32::from(lost || corrupted);
        if lost {
            return;
        }
        let mut is_damaged = corrupted;
        if corrupted {
            // One bit, so that a CRC must see it.
            let bit = self.rng.below(packet.len() as u64 * 8) as usize;
            packet[bit / 8] ^= 1 << (bit % 8);
            is_damaged = bit / 8 != NOT_IN_CRC;
        }
        let copies = if self.rng.chance(f.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let extra = if self.rng.chance(f.reorder) && may_fail {
                self.rng.below(20 * f.delay_ns)
            } else {
                0
            };
            // A response that is late looks lost, and costs a retry as well.
            if extra > 0 {
                *self.spoilt.entry(key).or_default() += 1;
            }
            self.sequence += 1;
            let mut at = self.now + f.delay_ns + extra;
            if f.batch_ns > 0 {
                at = Time(at.0.next_multiple_of(f.batch_ns));
            }
            let travelling = Travelling {
                to: 1 - from,
                ident,
                bytes: packet.clone(),
                is_damaged,
            };
            self.in_flight.insert((at, self.sequence), travelling);
        }
    }

    /// Moves to the next thing that happens; false if nothing will.
    pub fn step(&mut self) -> bool {
        self.transmit();
        let arrival = self.in_flight.keys().next().map(|k| k.0);
        let timers = self.nodes.iter().filter_map(|n| n.shard.next_timeout());
        let Some(next) = arrival.into_iter().chain(timers).min() else {
            return self.serve_late();
        };
        self.now = next.max(self.now);
        let now = self.now;
        let mut train: Option<Train> = None;
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let packet = entry.remove();
            if self.is_refused(&packet) {
                continue;
            }
            let next = match &mut train {
                Some(train) => train.push(packet),
                None => Err(packet),
            };
            if let Err(packet) = next
                && let Some(whole) = train.replace(Train::of(packet))
            {
                self.deliver_train(&whole);
            }
        }
        if let Some(whole) = train {
            self.deliver_train(&whole);
        }
        for node in &mut self.nodes {
            node.with_env(now, |s, env| s.handle_timeout(env));
        }
        self.serve_late();
        true
    }

    /// A READ request that some adapters drop.
    fn is_refused(&mut self, packet: &Travelling) -> bool {
        let repeats = self.repeats[packet.to].as_mut();
        let repeats = repeats.filter(|_| !packet.is_damaged);
        repeats.is_some_and(|repeats| repeats.refuse(&packet.bytes))
    }

    fn serve_late(&mut self) -> bool {
        let now = self.now;
        let each = self.nodes.each_mut();
        each.map(|node| node.serve_late(now)).contains(&true)
    }

    pub fn deliver_train(&mut self, train: &Train) {
        let (now, path) = (self.now, self.path_to(train.to));
        self.nodes[train.to].with_env(now, |s, env| train.handle(&path, s, env));
    }

    /// The path that a packet has come by, by a switch that perhaps marked it.
    fn path_to(&mut self, to: usize) -> RxPath {
        let congested = self.faults.congest > 0 && self.rng.chance(self.faults.congest);
        let ecn = if congested { 3 } else { 0 };
        let (source, local) = (self.nodes[1 - to].addr, self.nodes[to].addr);
        match ROWS.get() {
            Rows::Shared => RxPath::in_memory(source, local, ecn),
            _ => RxPath::new(source, 4791, local, ecn),
        }
    }

    pub fn deliver(&mut self, to: usize, ident: u16, packet: &[u8]) {
        let (now, path) = (self.now, self.path_to(to));
        self.nodes[to].with_env(now, |s, env| s.handle_packet(&path, ident, packet, env));
    }

    /// Steps until nothing is left to happen.
    pub fn run(&mut self) {
        let mut steps = 0u64;
        while self.step() {
            steps += 1;
            assert!(
                steps < 2_000_000,
                "no end after {steps} steps, {:?}",
                self.now
            );
        }
    }

    /// Steps until the time has come.
    pub fn run_until(&mut self, until: Time) {
        loop {
            self.transmit();
            let arrival = self.in_flight.keys().next().map(|k| k.0);
            let timers = self.nodes.iter().filter_map(|n| n.shard.next_timeout());
            match arrival.into_iter().chain(timers).min() {
                Some(next) if next <= until => {
                    self.step();
                }
                _ => break,
            }
        }
        self.now = until;
    }
}
