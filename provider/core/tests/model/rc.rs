//! RC: programs of SENDs, WRITEs, READs and atomics in both directions. What one side
//! posts is executed by the model one after the other; memory, results, completions
//! and their order must come out the same.

use std::collections::VecDeque;

use urxe_core::AckMode;
use urxe_core::congestion::{CongestionControl, DcqcnParams, DelayParams, Rate};
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::error::WcStatus;
use urxe_core::qp::attr::Mtu;
use urxe_core::qp::state::QpState;
use urxe_core::transmit::RunLimits;
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};

use crate::suite::{Run, Service};
use crate::support::*;

pub(crate) const RC: Service = Service {
    name: "rc",
    programs: 10_000,
    run: run_program,
};

const SHARED: u64 = 0;
const SHARED_LEN: u64 = 16 << 10;
const LOCAL: u64 = 64 << 10;
const LOCAL_SLOT: u64 = 8 << 10;
const RECV: u64 = 512 << 10;
const RECV_SLOT: u64 = 8 << 10;
const MESSAGE_MAX: u64 = 6 << 10;
const OPS_MAX: u64 = 24;

/// One work request, and the outcome that the model demands.
#[derive(Debug)]
struct Op {
    opcode: WrOpcode,
    flags: SendFlags,
    inline: bool,
    len: u64,
    /// Bytes at the start of the local slot that are not part of the list.
    lead: u64,
    pieces: Vec<u32>,
    remote: u64,
    imm: [u8; 4],
    compare_add: u64,
    swap: u64,
    data: Vec<u8>,
    /// READ data or an atomic's original value.
    result: Vec<u8>,
}

/// A receive: content (of a SEND), length, immediate data, opcode, solicited.
type Expected = (Option<Vec<u8>>, u32, Option<[u8; 4]>, WcOpcode, bool);

/// What one side does, and what the other side must see.
#[derive(Debug, Default)]
struct Program {
    ops: Vec<Op>,
    /// Content of the peer's shared area at the end.
    shared: Vec<u8>,
    receives: Vec<Expected>,
}

impl Program {
    fn random(rng: &mut Rng, s: &Settings, shared: Vec<u8>) -> Program {
        let mut p = Program {
            shared,
            ..Program::default()
        };
        // Ranges that READs under way may still look at: changing one needs a fence.
        let mut read_ranges: Vec<(u64, u64)> = Vec::new();
        // A stream is long enough that each side learns what the other does about losses, READs and atomics included.
        let is_stream = rng.chance(100);
        let ops = if is_stream {
            OPS_MAX
        } else {
            1 + rng.below(OPS_MAX)
        };
        for _ in 0..ops {
            let op = p.random_op(rng, s, is_stream, &mut read_ranges);
            p.execute(op);
        }
        p
    }

    fn random_op(
        &self,
        rng: &mut Rng,
        s: &Settings,
        is_stream: bool,
        reads: &mut Vec<(u64, u64)>,
    ) -> Op {
        use WrOpcode::*;
        let any = rng.pick(&[
            Send,
            Send,
            SendWithImm,
            RdmaWrite,
            RdmaWrite,
            RdmaWriteWithImm,
            RdmaRead,
            RdmaRead,
            AtomicCmpAndSwp,
            AtomicFetchAndAdd,
        ]);
        let is_odd = self.ops.len() % 2 == 1;
        let opcode = match any.is_read_or_atomic() && is_stream && is_odd {
            true => RdmaWrite,
            false => any,
        };
        let mtu = u64::from(s.mtu.bytes());
        let len = match opcode {
            AtomicCmpAndSwp | AtomicFetchAndAdd => 8,
            _ if is_stream => MESSAGE_MAX - 1,
            _ => match rng.below(6) {
                0 => 0,
                1 => rng.below(64),
                2 => (mtu * rng.below(4) + rng.below(3)).saturating_sub(1),
                _ => rng.below(MESSAGE_MAX),
            },
        }
        .min(MESSAGE_MAX);
        let inline = len <= 256 && !opcode.is_read_or_atomic() && rng.chance(300);
        let remote = if opcode.is_atomic() {
            8 * rng.below(SHARED_LEN / 8)
        } else {
            rng.below(SHARED_LEN - len)
        };
        let mut flags = SendFlags(0);
        if rng.chance(600) {
            flags = flags | SendFlags::SIGNALED;
        }
        if rng.chance(200) {
            flags = flags | SendFlags::SOLICITED;
        }
        let changes = matches!(
            opcode,
            RdmaWrite | RdmaWriteWithImm | AtomicCmpAndSwp | AtomicFetchAndAdd
        );
        let overlaps = reads
            .iter()
            .any(|&(at, n)| at < remote + len && remote < at + n);
        if (changes && overlaps) || rng.chance(50) {
            flags = flags | SendFlags::FENCE;
            reads.clear();
        }
        if opcode == RdmaRead {
            reads.push((remote, len));
        }
        let mut pieces = Vec::new();
        let mut left = len;
        while left > 0 && pieces.len() < 3 && !opcode.is_atomic() {
            let piece = if rng.chance(500) {
                left
            } else {
                rng.below(left + 1)
            };
            pieces.push(piece as u32);
            left -= piece;
        }
        if left > 0 {
            pieces.push(left as u32);
        }
        let compare_add = if opcode == AtomicCmpAndSwp && rng.chance(700) {
            u64::from_ne_bytes(self.shared[remote as usize..][..8].try_into().expect("8"))
        } else {
            rng.next()
        };
        Op {
            opcode,
            flags,
            inline,
            len,
            lead: rng.below(16),
            pieces,
            remote,
            imm: (rng.next() as u32).to_be_bytes(),
            compare_add,
            swap: rng.next(),
            data: rng.bytes(if opcode.is_read_or_atomic() {
                0
            } else {
                len as usize
            }),
            result: Vec::new(),
        }
    }

    /// The model: operations happen one after the other.
    fn execute(&mut self, mut op: Op) {
        use WrOpcode::*;
        let place = op.remote as usize..(op.remote + op.len) as usize;
        let solicited = op.flags.contains(SendFlags::SOLICITED);
        let len = op.len as u32;
        match op.opcode {
            Send | SendWithImm | SendWithInv => {
                let imm = (op.opcode == SendWithImm).then_some(op.imm);
                self.receives
                    .push((Some(op.data.clone()), len, imm, WcOpcode::Recv, solicited));
            }
            RdmaWrite | RdmaWriteWithImm => {
                self.shared[place].copy_from_slice(&op.data);
                if op.opcode == RdmaWriteWithImm {
                    let kind = WcOpcode::RecvRdmaWithImm;
                    self.receives
                        .push((None, len, Some(op.imm), kind, solicited));
                }
            }
            RdmaRead => op.result = self.shared[place].to_vec(),
            _ => {
                op.result = self.shared[place.clone()].to_vec();
                let old = u64::from_ne_bytes(op.result[..].try_into().expect("8"));
                let new = match op.opcode {
                    AtomicFetchAndAdd => old.wrapping_add(op.compare_add),
                    _ if old == op.compare_add => op.swap,
                    _ => old,
                };
                self.shared[place].copy_from_slice(&new.to_ne_bytes());
            }
        }
        self.ops.push(op);
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let near_wrap = |rng: &mut Rng| (0xff_ffff - rng.below(40) as u32 + 20) & 0xff_ffff;
    let neighbours = rng.chance(400);
    Settings {
        neighbours,
        // Messages to a neighbour may be silent where nothing times out soon.
        timeout: if neighbours { 12 } else { 10 },
        mtu: rng.pick(&[Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu4096]),
        psn: [
            near_wrap(rng),
            if rng.chance(500) {
                near_wrap(rng)
            } else {
                rng.next() as u32
            },
        ],
        rd_atomic: 1 + rng.below(6) as u8,
        window_bytes: rng.pick(&[1 << 10, 8 << 10, 64 << 10]),
        window_packets_start: rng.pick(&[4, u32::MAX]),
        read_chunk_bytes: rng.pick(&[256, 1024, 64 << 10]),
        limits: RunLimits {
            segments_max: rng.pick(&[1, 2, 64]),
            bytes_max: 65_507,
        },
        batch_bytes: rng.pick(&[8 << 10, 128 << 10]),
        secret: rng.next(),
        ..Settings::default()
    }
}

/// A side's program on its way through the pair.
struct Runner {
    side: usize,
    program: Program,
    next_op: usize,
    next_recv: usize,
    sends_done: Vec<Cqe>,
    receives_done: VecDeque<Cqe>,
}

impl Runner {
    fn local(&self, n: usize) -> u64 {
        LOCAL + n as u64 * LOCAL_SLOT
    }

    fn post_op(&mut self, pair: &mut Pair) {
        let n = self.next_op;
        self.next_op += 1;
        let op = &self.program.ops[n];
        let node = &pair.nodes[self.side];
        let base = self.local(n) + op.lead;
        node.memory.write(base, &op.data);
        let mut at = base;
        let lkey = node.keys.lkey;
        let sges: Vec<Sge> = op
            .pieces
            .iter()
            .map(|&length| {
                let sge = Sge {
                    addr: IOVA + at,
                    length,
                    lkey,
                };
                at += u64::from(length);
                sge
            })
            .collect();
        let data = if op.inline {
            WrData::Inline(&op.data)
        } else {
            WrData::Sges(&sges)
        };
        let mut wr = SendWr::new(n as u64, op.opcode, data);
        wr.flags = op.flags;
        wr.remote_addr = IOVA + SHARED + op.remote;
        wr.rkey = pair.nodes[1 - self.side].keys.rkey;
        wr.imm = op.imm;
        wr.compare_add = op.compare_add;
        wr.swap = op.swap;
        pair.post_send(self.side, &wr);
    }

    /// Posts the receive that the peer's message `next_recv` of this program needs.
    fn post_recv(&mut self, pair: &mut Pair, is_late: bool) {
        let n = self.next_recv;
        self.next_recv += 1;
        let to = 1 - self.side;
        let lkey = pair.nodes[to].keys.lkey;
        let at = IOVA + RECV + n as u64 * RECV_SLOT;
        // Two pieces, longer than any message.
        let first = (n as u32 * 37) % 300;
        let sges = [
            Sge {
                addr: at,
                length: first,
                lkey,
            },
            Sge {
                addr: at + u64::from(first),
                length: RECV_SLOT as u32 - first,
                lkey,
            },
        ];
        let wr = RecvWr {
            wr_id: n as u64,
            sges: &sges,
        };
        if is_late {
            pair.post_recv_late(to, &wr);
        } else {
            pair.post_recv(to, &wr);
        }
    }

    fn check(&self, pair: &Pair) {
        let (me, peer) = (&pair.nodes[self.side], &pair.nodes[1 - self.side]);
        let shared = peer.memory.read(SHARED, SHARED_LEN as usize);
        assert!(
            shared == self.program.shared,
            "the peer's memory differs from the model's"
        );
        for (n, op) in self.program.ops.iter().enumerate() {
            let got = me.memory.read(self.local(n) + op.lead, op.result.len());
            assert_eq!(got, op.result, "result of op {n}: {:?}", op.opcode);
        }
        let signaled: Vec<u64> = (0..)
            .zip(&self.program.ops)
            .filter(|(_, op)| op.flags.contains(SendFlags::SIGNALED))
            .map(|(n, _)| n)
            .collect();
        let done: Vec<u64> = self.sends_done.iter().map(|c| c.wr_id).collect();
        assert_eq!(done, signaled, "send completions and their order");
        assert!(
            self.sends_done
                .iter()
                .all(|c| c.status == WcStatus::Success)
        );
        assert_eq!(self.receives_done.len(), self.program.receives.len());
        for (n, (cqe, expected)) in self
            .receives_done
            .iter()
            .zip(&self.program.receives)
            .enumerate()
        {
            let (content, len, imm, opcode, solicited) = expected;
            assert_eq!(cqe.status, WcStatus::Success);
            assert_eq!(cqe.wr_id, n as u64, "receives complete in order");
            assert_eq!(
                (cqe.byte_len, cqe.imm, cqe.opcode, cqe.solicited),
                (*len, *imm, *opcode, *solicited)
            );
            if let Some(content) = content {
                let at = RECV + n as u64 * RECV_SLOT;
                assert_eq!(&peer.memory.read(at, content.len()), content, "receive {n}");
            }
        }
    }
}

/// Runs the program that belongs to a seed.
fn run_program(seed: u64) -> Run {
    let mut rng = Rng(seed);
    let s = settings(&mut rng);
    let mut pair = Pair::new(&s, rng.next());
    let harsh = rng.chance(700);
    let rate = |rng: &mut Rng, max: u64| if harsh { rng.below(max) } else { 0 };
    pair.faults = Faults {
        lose: rate(&mut rng, 120),
        duplicate: rate(&mut rng, 100),
        corrupt: rate(&mut rng, 60),
        reorder: rate(&mut rng, 150),
        delay_ns: 500 + rng.below(20_000),
        batch_ns: rng.pick(&[0, 0, 10_000, 100_000]),
        congest: rng.pick(&[0, 0, 5, 200]),
    };
    for side in 0..2 {
        let (qp, now) = (pair.nodes[side].qp, pair.now);
        let control = congestion_control(&mut rng);
        let set = pair.nodes[side]
            .shard
            .set_congestion_control(qp, control, now);
        set.expect("sensible parameters");
    }
    pair.acks = rng.pick(&[
        AckMode::Now,
        AckMode::Now,
        AckMode::Defer,
        AckMode::Answered,
    ]);
    let mut runners: Vec<Runner> = (0..2)
        .map(|side| {
            let start = rng.bytes(SHARED_LEN as usize);
            pair.nodes[1 - side].memory.write(SHARED, &start);
            let program = Program::random(&mut rng, &s, start);
            Runner {
                side,
                program,
                next_op: 0,
                next_recv: 0,
                sends_done: Vec::new(),
                receives_done: VecDeque::new(),
            }
        })
        .collect();
    let mut stuck = 0;
    loop {
        let mut busy = false;
        for r in &mut runners {
            if r.next_op < r.program.ops.len() {
                busy = true;
                if rng.chance(600) {
                    r.post_op(&mut pair);
                }
            }
            if r.next_recv < r.program.receives.len() {
                busy = true;
                if rng.chance(400) {
                    r.post_recv(&mut pair, rng.chance(250));
                }
            }
        }
        let until = pair.now + 1 + rng.below(30_000);
        if busy {
            pair.run_until(until);
        } else {
            pair.acks = AckMode::Now;
            pair.run();
        }
        for r in &mut runners {
            r.sends_done.extend(pair.nodes[r.side].take(SEND_CQ));
            r.receives_done.extend(pair.nodes[1 - r.side].take(RECV_CQ));
        }
        if !busy {
            break;
        }
        stuck += 1;
        assert!(stuck < 10_000, "the program never ends");
    }
    for r in &runners {
        let failed = r
            .sends_done
            .iter()
            .chain(&r.receives_done)
            .find(|c| c.status != WcStatus::Success);
        assert_eq!(
            pair.nodes[r.side].state(),
            QpState::Rts,
            "{failed:?} {:?}",
            pair.nodes[r.side].shard.stats()
        );
        r.check(&pair);
    }
    let operations = runners.iter().map(|r| r.program.ops.len() as u64).sum();
    Run::new(operations, pair.now, &pair.nodes)
}

/// Any way to react to congestion, most often none. Rates from 0.1 to 100 Gbit/s.
fn congestion_control(rng: &mut Rng) -> CongestionControl {
    match rng.below(8) {
        0 => CongestionControl::Window {
            bytes: 1 + rng.below(64 << 10) as u32,
        },
        1 => CongestionControl::Dcqcn(DcqcnParams::at(Rate::from_bps(
            100_000_000 << rng.below(11),
        ))),
        2 => CongestionControl::Delay(DelayParams::target(500 + rng.below(100_000))),
        3 => CongestionControl::Path,
        4 | 5 => CongestionControl::Auto,
        _ => CongestionControl::None,
    }
}
