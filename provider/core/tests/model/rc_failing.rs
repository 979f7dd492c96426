//! RC, when something goes wrong: one mistake a program, by the application, its peer,
//! its memory or the wire. What was posted before the mistake must have been done, what
//! was posted after it must not, and every side must be told what the standard says.

use urxe_core::cq::Cqe;
use urxe_core::error::{Fault, Side, WcStatus};
use urxe_core::event::AsyncEvent;
use urxe_core::mr::{Access, MrInit, MrKeys};
use urxe_core::qp::attr::{AttrMask, Mtu, QpAttr};
use urxe_core::qp::state::QpState;
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{Lkey, Packet, Rkey};

use crate::suite::{Run, Service};
use crate::support::*;

pub(crate) const RC_FAILING: Service = Service {
    name: "rc_failing",
    programs: 6_000,
    run: run_program,
};

const SLOT: u64 = 8 << 10;
const LOCAL: u64 = 0;
const TARGET: u64 = 256 << 10;
const RECV: u64 = 512 << 10;
/// Where memory that vanishes lies: above everything else.
const DOOMED: u64 = 960 << 10;
const LEN_MAX: u64 = 6000;

/// What goes wrong, at the operation of the program's choice or at a random time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    /// The rkey is one that was never given out.
    RemoteKey,
    /// The QP does not allow READs.
    Operation,
    /// An atomic beside the 8-byte grid.
    Misaligned,
    /// The receive is one byte short.
    RecvTooShort,
    /// The receive names no region.
    RecvKey,
    /// A local entry names no region.
    LocalKey,
    /// The memory that is sent from is unmapped while it is sent.
    LocalMemoryGoes,
    /// The peer unmaps what is written, read or received into.
    PeerMemoryGoes,
    /// The peer deregisters what is written or read.
    PeerDeregisters,
    /// The receive is never posted.
    NoReceive,
    /// The wire goes dead.
    Silence,
    /// One packet never gets through, while others do.
    StuckPacket,
    /// The completion queue is too small.
    SmallCq,
    /// Not a mistake: SQD and on.
    Sqd,
    /// Not a mistake: reset and connect again, whatever is under way.
    Reset,
}

const MISTAKES: [Mistake; 15] = [
    Mistake::RemoteKey,
    Mistake::Operation,
    Mistake::Misaligned,
    Mistake::RecvTooShort,
    Mistake::RecvKey,
    Mistake::LocalKey,
    Mistake::LocalMemoryGoes,
    Mistake::PeerMemoryGoes,
    Mistake::PeerDeregisters,
    Mistake::NoReceive,
    Mistake::Silence,
    Mistake::StuckPacket,
    Mistake::SmallCq,
    Mistake::Sqd,
    Mistake::Reset,
];

#[derive(Clone, Debug)]
struct Op {
    opcode: WrOpcode,
    signaled: bool,
    data: Vec<u8>,
    /// Where it is sent from, or read to.
    local: u64,
    /// Where it goes in the peer's memory.
    target: u64,
    rkey: Rkey,
    lkey: Lkey,
    /// What a SEND or WRITE with immediate consumes: number of the receive.
    recv: Option<u64>,
}

struct Program {
    mistake: Mistake,
    /// The operation that it happens to.
    at: usize,
    ops: Vec<Op>,
    /// Packets may get lost, so that a NAK may too.
    is_lossy: bool,
    pair: Pair,
    settings: Settings,
    done: Vec<Cqe>,
    received: Vec<Cqe>,
    events: [Vec<AsyncEvent>; 2],
}

fn settings(rng: &mut Rng, mistake: Mistake, is_lossy: bool) -> Settings {
    let mut s = Settings {
        mtu: rng.pick(&[Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096]),
        psn: [rng.next() as u32 & 0xff_ffff, rng.next() as u32 & 0xff_ffff],
        rd_atomic: 1 + rng.below(4) as u8,
        // Few enough retries to see them used up; enough where the wire is bad.
        retry_cnt: if is_lossy { 7 } else { rng.below(5) as u8 },
        window_bytes: rng.pick(&[1 << 10, 16 << 10]),
        read_chunk_bytes: rng.pick(&[256, 4096]),
        secret: rng.next(),
        ..Settings::default()
    };
    match mistake {
        Mistake::Operation => s.access = Access(0xf & !Access::REMOTE_READ.0),
        Mistake::NoReceive => s.rnr_retry = rng.below(4) as u8,
        // Ghosts of the old connection draw NAKs from the new one.
        Mistake::Reset | Mistake::LocalMemoryGoes => s.retry_cnt = 7,
        _ => {}
    }
    s
}

impl Program {
    fn random(rng: &mut Rng) -> Program {
        let mistake = rng.pick(&MISTAKES);
        let is_lossy = rng.chance(500);
        let settings = settings(rng, mistake, is_lossy);
        let mut pair = Pair::new(&settings, rng.next());
        pair.faults.delay_ns = 500 + rng.below(10_000);
        pair.faults.batch_ns = rng.pick(&[0, 0, 10_000, 100_000]);
        if is_lossy {
            pair.faults.lose = rng.below(100);
            pair.faults.duplicate = rng.below(100);
            pair.faults.corrupt = rng.below(50);
            pair.faults.reorder = rng.below(100);
        }
        let count = 2 + rng.below(18) as usize;
        let at = rng.below(count as u64) as usize;
        let mut program = Program {
            mistake,
            at,
            ops: Vec::new(),
            is_lossy,
            pair,
            settings,
            done: Vec::new(),
            received: Vec::new(),
            events: Default::default(),
        };
        let mut receives = 0;
        for n in 0..count {
            let op = program.random_op(rng, n, &mut receives);
            program.ops.push(op);
        }
        program.spoil(rng);
        program
    }

    fn random_op(&self, rng: &mut Rng, n: usize, receives: &mut u64) -> Op {
        use WrOpcode::*;
        let is_it = n == self.at;
        let kinds: &[WrOpcode] = match self.mistake {
            Mistake::Operation if is_it => &[RdmaRead],
            Mistake::Operation => &[Send, RdmaWrite, RdmaWriteWithImm, AtomicFetchAndAdd],
            Mistake::Misaligned if is_it => &[AtomicFetchAndAdd],
            Mistake::RecvTooShort | Mistake::RecvKey if is_it => &[Send],
            Mistake::NoReceive if is_it => &[Send, RdmaWriteWithImm],
            Mistake::LocalMemoryGoes if is_it => &[Send, RdmaWrite],
            Mistake::RemoteKey | Mistake::PeerDeregisters if is_it => {
                &[RdmaWrite, RdmaRead, AtomicFetchAndAdd]
            }
            Mistake::PeerMemoryGoes if is_it => &[Send, RdmaWrite, RdmaRead],
            Mistake::StuckPacket if is_it => &[Send, RdmaWrite],
            _ => &[
                Send,
                RdmaWrite,
                RdmaWriteWithImm,
                RdmaRead,
                AtomicFetchAndAdd,
            ],
        };
        let opcode = rng.pick(kinds);
        let len = match (opcode, rng.below(5)) {
            (AtomicFetchAndAdd, _) => 8,
            (_, 0) if !is_it => 0,
            (_, 1) => 1 + rng.below(64),
            _ => 1 + rng.below(LEN_MAX),
        };
        let recv = matches!(opcode, Send | RdmaWriteWithImm).then(|| {
            *receives += 1;
            *receives - 1
        });
        let node = &self.pair.nodes[0];
        Op {
            opcode,
            signaled: rng.chance(600),
            data: rng.bytes(len as usize),
            local: LOCAL + n as u64 * SLOT,
            target: match recv {
                Some(recv) if opcode == Send => RECV + recv * SLOT,
                _ => TARGET + n as u64 * SLOT,
            },
            rkey: self.pair.nodes[1].keys.rkey,
            lkey: node.keys.lkey,
            recv,
        }
    }

    /// Makes the mistake where it is one of the program; others come with time.
    fn spoil(&mut self, rng: &mut Rng) {
        let at = self.at;
        match self.mistake {
            Mistake::RemoteKey => self.ops[at].rkey = Rkey(rng.next() as u32),
            Mistake::Misaligned => self.ops[at].target += 1 + rng.below(7),
            Mistake::LocalKey => {
                self.ops[at].lkey = Lkey(rng.next() as u32);
                if self.ops[at].data.is_empty() {
                    self.ops[at].data.push(1);
                }
            }
            Mistake::LocalMemoryGoes => self.ops[at].local = DOOMED,
            Mistake::PeerMemoryGoes => self.ops[at].target = DOOMED,
            Mistake::SmallCq => {
                let signaled = self.ops.iter().filter(|op| op.signaled).count() as u64;
                self.pair.nodes[0].cqs.capacity = rng.below(signaled + 1) as usize;
            }
            Mistake::StuckPacket => self.block(rng),
            _ => {}
        }
    }

    /// No copy of one packet of the operation arrives, ever.
    fn block(&mut self, rng: &mut Rng) {
        let mtu = u64::from(self.settings.mtu.bytes());
        let packets = |op: &Op| (op.data.len() as u64).div_ceil(mtu).max(1);
        let before: u64 = self.ops[..self.at].iter().map(packets).sum();
        let within = rng.below(packets(&self.ops[self.at]));
        let psn = (u64::from(self.settings.psn[0]) + before + within) as u32 & 0xff_ffff;
        self.pair.filter = Some(Box::new(move |from, bytes| {
            let packet = Packet::parse(bytes).expect("shards send packets");
            if from == 0 && packet.bth().psn.get() == psn && !packet.info().is_response() {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        }));
    }

    fn post_receives(&mut self) {
        for n in 0..self.ops.len() {
            let Some(recv) = self.ops[n].recv else {
                continue;
            };
            let is_it = n == self.at;
            if is_it && self.mistake == Mistake::NoReceive {
                // Nor any later one: it would be taken for this message.
                return;
            }
            let op = &self.ops[n];
            let mut sge = Sge {
                addr: IOVA + op.target,
                length: LEN_MAX as u32,
                lkey: self.pair.nodes[1].keys.lkey,
            };
            match self.mistake {
                Mistake::RecvTooShort if is_it => sge.length = op.data.len() as u32 - 1,
                Mistake::RecvKey if is_it => sge.lkey = Lkey(5),
                _ => {}
            }
            let sges: &[Sge] = if op.opcode == WrOpcode::Send {
                &[sge]
            } else {
                &[]
            };
            self.pair.post_recv(1, &RecvWr { wr_id: recv, sges });
        }
    }

    fn post(&mut self, n: usize) {
        let op = self.ops[n].clone();
        let node = &self.pair.nodes[0];
        if !op.opcode.is_read_or_atomic() {
            node.memory.write(op.local, &op.data);
        } else {
            // READs and atomics find this there.
            self.pair.nodes[1].memory.write(op.target, &op.data);
        }
        let sges = [Sge {
            addr: IOVA + op.local,
            length: op.data.len() as u32,
            lkey: op.lkey,
        }];
        let mut wr = SendWr::new(n as u64, op.opcode, WrData::Sges(&sges));
        wr.flags = if op.signaled {
            SendFlags::SIGNALED
        } else {
            SendFlags::NONE
        };
        (wr.remote_addr, wr.rkey) = (IOVA + op.target, op.rkey);
        wr.compare_add = 1;
        self.pair.post_send(0, &wr);
    }

    fn collect(&mut self) {
        if self.mistake != Mistake::SmallCq {
            self.done.extend(self.pair.nodes[0].take(SEND_CQ));
        }
        self.received.extend(self.pair.nodes[1].take(RECV_CQ));
        for side in 0..2 {
            while let Some(event) = self.pair.nodes[side].shard.poll_event() {
                self.events[side].push(event);
            }
        }
    }

    /// True if completion `n` says that the operation was done.
    fn has_effect(&self, n: usize) -> bool {
        let op = &self.ops[n];
        let (me, peer) = (&self.pair.nodes[0].memory, &self.pair.nodes[1].memory);
        match op.opcode {
            WrOpcode::RdmaRead => me.read(op.local, op.data.len()) == op.data,
            WrOpcode::AtomicFetchAndAdd => {
                let old = u64::from_ne_bytes(op.data[..].try_into().expect("8 bytes"));
                me.read(op.local, 8) == op.data
                    && peer.read(op.target, 8) == old.wrapping_add(1).to_ne_bytes()
            }
            _ => peer.read(op.target, op.data.len()) == op.data,
        }
    }

    /// True if nothing of the operation was done.
    fn has_no_effect(&self, n: usize) -> bool {
        let op = &self.ops[n];
        let (me, peer) = (&self.pair.nodes[0].memory, &self.pair.nodes[1].memory);
        let untouched = |bytes: Vec<u8>| bytes.iter().all(|&b| b == 0);
        match op.opcode {
            WrOpcode::RdmaRead => untouched(me.read(op.local, op.data.len())),
            WrOpcode::AtomicFetchAndAdd => {
                untouched(me.read(op.local, 8)) && peer.read(op.target, 8) == op.data
            }
            _ => untouched(peer.read(op.target, op.data.len())),
        }
    }
}

fn run_program(seed: u64) -> Run {
    let mut rng = Rng(seed);
    let mut p = Program::random(&mut rng);
    let own = (p.mistake == Mistake::PeerDeregisters).then(|| lend(&mut p));
    p.post_receives();
    // The moment of what comes with time: after some posts, and a little later.
    let (mut when, mut later) = (rng.below(p.ops.len() as u64 + 1), rng.below(60_000));
    if rng.chance(600) {
        // While that very operation is under way.
        (when, later) = (p.at as u64 + 1, rng.below(12_000));
    }
    let mut deadline = None;
    for n in 0..p.ops.len() {
        p.post(n);
        if n as u64 + 1 == when {
            deadline = Some(p.pair.now + later);
        }
        let until = p.pair.now + rng.below(8_000);
        if let Some(at) = deadline
            && at <= until
        {
            deadline = None;
            p.pair.run_until(at);
            happen(&mut p, own);
        }
        p.pair.run_until(until.max(p.pair.now));
        p.collect();
    }
    if let Some(at) = deadline {
        p.pair.run_until(at);
        happen(&mut p, own);
    }
    p.pair.run();
    p.collect();
    check(&mut p);
    Run::new(p.ops.len() as u64, p.pair.now, &p.pair.nodes)
}

/// A region of its own, which will be deregistered under its operation.
fn lend(p: &mut Program) -> MrKeys {
    let op = &mut p.ops[p.at];
    let keys = p.pair.nodes[1].mrs.register(MrInit {
        pd: PD,
        access: Access(0xf),
        host_addr: op.target,
        iova: IOVA + op.target,
        len: SLOT,
        remote_invalidate: false,
    });
    let keys = keys.expect("registers");
    op.rkey = keys.rkey;
    keys
}

/// What comes with time.
fn happen(p: &mut Program, own: Option<MrKeys>) {
    match p.mistake {
        Mistake::LocalMemoryGoes => {
            p.pair.nodes[0].memory.gone_from.set(DOOMED);
            lose_answers(p);
        }
        Mistake::PeerMemoryGoes => p.pair.nodes[1].memory.gone_from.set(DOOMED),
        Mistake::PeerDeregisters => {
            let keys = own.expect("the region was made");
            assert!(p.pair.nodes[1].mrs.deregister(keys.lkey));
        }
        Mistake::Silence => {
            p.pair.filter = Some(Box::new(|_, _| Verdict::Drop));
        }
        Mistake::Sqd => drain_and_go_on(p),
        Mistake::Reset => reset_and_connect_again(p),
        _ => {}
    }
}

/// The next few answers get lost, so that what arrived already is sent again.
fn lose_answers(p: &mut Program) {
    let mut left = p.pair.rng.below(4);
    p.pair.filter = Some(Box::new(move |from, _| {
        if from == 0 || left == 0 {
            return Verdict::Pass;
        }
        left -= 1;
        Verdict::Drop
    }));
}

fn modify(p: &mut Program, side: usize, attr: &QpAttr, mask: AttrMask) {
    let now = p.pair.now;
    let node = &mut p.pair.nodes[side];
    let qp = node.qp;
    node.with_env(now, |s, env| s.modify_qp(qp, attr, mask, env))
        .expect("modifies");
}

fn drain_and_go_on(p: &mut Program) {
    let to = |qp_state| QpAttr {
        qp_state,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY;
    modify(p, 0, &to(QpState::Sqd), mask);
    p.pair.run();
    p.collect();
    let qp = p.pair.nodes[0].qp;
    assert_eq!(p.events[0], [AsyncEvent::SqDrained(qp)]);
    modify(p, 0, &to(QpState::Rts), AttrMask::STATE);
}

/// The old connection's packets are still on their way when the new one begins.
fn reset_and_connect_again(p: &mut Program) {
    p.collect();
    let reset = QpAttr::default();
    for side in 0..2 {
        modify(p, side, &reset, AttrMask::STATE);
    }
    let jump = p.pair.rng.next() as u32;
    for psn in &mut p.settings.psn {
        *psn = psn.wrapping_add(0x1_0000 + jump % 0xfe_0000) & 0xff_ffff;
    }
    let ends = [0, 1].map(|side| (p.pair.nodes[side].addr, p.pair.nodes[side].qpn));
    for side in 0..2 {
        let (addr, qpn) = ends[1 - side];
        p.pair.nodes[side].connect(&p.settings, side, addr, qpn);
    }
    // What was posted is forgotten; what is posted from now on goes by the new one.
    let sges = [Sge {
        addr: IOVA + RECV,
        length: LEN_MAX as u32,
        lkey: p.pair.nodes[1].keys.lkey,
    }];
    for n in 0..=p.ops.len() as u64 {
        let wr_id = 999 + n;
        p.pair.post_recv(1, &RecvWr { wr_id, sges: &sges });
    }
    let mut wr = SendWr::new(999, WrOpcode::Send, WrData::Sges(&[]));
    wr.flags = SendFlags::SIGNALED;
    p.pair.post_send(0, &wr);
}

/// What the operation's failure may be, if it fails at all.
fn allowed(p: &Program) -> &'static [Fault] {
    match p.mistake {
        Mistake::RemoteKey | Mistake::PeerDeregisters => &[Fault::NakRemoteAccess],
        Mistake::PeerMemoryGoes => &[Fault::NakRemoteAccess, Fault::NakRemoteOperational],
        Mistake::Operation | Mistake::Misaligned | Mistake::RecvTooShort => {
            &[Fault::NakInvalidRequest]
        }
        Mistake::RecvKey => &[Fault::NakRemoteOperational],
        Mistake::LocalKey => &[Fault::LocalKey],
        Mistake::LocalMemoryGoes => &[Fault::LocalMemory],
        Mistake::NoReceive => &[Fault::RnrExhausted],
        Mistake::Silence => &[Fault::AckTimeout],
        Mistake::StuckPacket => &[Fault::AckTimeout, Fault::SequenceExhausted],
        Mistake::SmallCq => &[Fault::CqOverrun],
        Mistake::Sqd | Mistake::Reset => &[],
    }
}

/// Whether the operation must fail, and be the first that does.
fn is_certain(mistake: Mistake) -> bool {
    use Mistake::*;
    matches!(
        mistake,
        RemoteKey
            | Operation
            | Misaligned
            | RecvTooShort
            | RecvKey
            | LocalKey
            | NoReceive
            | StuckPacket
    )
}

/// Whether operations after the failed one may have been done. The responder does not
/// know of a dead wire; what was sent whole and was lost cannot be sent again without its
/// memory, though all after it arrived; and a READ that loses its memory later was
/// accepted, so that WRITEs after it may be executed before it is answered (that is what
/// a fence is for).
fn may_be_overtaken(p: &Program) -> bool {
    match p.mistake {
        Mistake::Silence | Mistake::LocalMemoryGoes => true,
        Mistake::PeerMemoryGoes | Mistake::PeerDeregisters => {
            p.ops[p.at].opcode == WrOpcode::RdmaRead
        }
        _ => false,
    }
}

fn check(p: &mut Program) {
    match p.mistake {
        Mistake::SmallCq => return check_overrun(p),
        Mistake::Reset => return check_reset(p),
        _ => {}
    }
    let failed = p.done.iter().position(|c| c.status != WcStatus::Success);
    let context = format!("{:?} at {} of {}", p.mistake, p.at, p.ops.len());
    let Some(failed) = failed else {
        assert!(!is_certain(p.mistake), "{context}: no failure");
        return check_success(p, &context);
    };
    let cqe = p.done[failed];
    let n = cqe.wr_id as usize;
    let faults = allowed(p);
    let is_nak = faults.iter().any(|fault| fault.side() == Side::Remote);
    let nak_was_lost = is_nak && p.is_lossy && cqe.fault == Fault::AckTimeout;
    // Answers are lost on purpose where memory goes: with those that a bad wire loses they may be too many for an
    // operation before or behind it, which has its memory.
    let is_given_up = p.mistake == Mistake::LocalMemoryGoes
        && p.is_lossy
        && n != p.at
        && matches!(cqe.fault, Fault::AckTimeout | Fault::SequenceExhausted);
    assert!(
        faults.contains(&cqe.fault) || nak_was_lost || is_given_up,
        "{context}: {:?} of {n} instead of {faults:?}",
        cqe.fault
    );
    // With the NAK, ACKs of operations before it may have been lost.
    let is_it = n == p.at || is_given_up || (nak_was_lost && n < p.at);
    assert!(
        is_it || p.mistake == Mistake::Silence,
        "{context}: another operation failed: {cqe:?}"
    );
    check_order(p, failed, n, &context);
    let done = if nak_was_lost { p.at } else { n };
    for before in 0..done {
        let is_known = before < n || !p.ops[before].opcode.is_read_or_atomic();
        assert!(
            !is_known || p.has_effect(before),
            "{context}: {before} was not done"
        );
    }
    if !may_be_overtaken(p) {
        for after in done + 1..p.ops.len() {
            assert!(p.has_no_effect(after), "{context}: {after} was done");
        }
    }
    assert_eq!(p.pair.nodes[0].state(), QpState::Err, "{context}");
    check_peer(p, done, &context);
}

/// Signaled successes before the failure, then it, then everything posted after it.
fn check_order(p: &Program, failed: usize, n: usize, context: &str) {
    let signaled: Vec<u64> = (0..n as u64)
        .filter(|&n| p.ops[n as usize].signaled)
        .collect();
    let before: Vec<u64> = p.done[..failed].iter().map(|c| c.wr_id).collect();
    assert_eq!(
        before, signaled,
        "{context}: completions before the failure"
    );
    let rest: Vec<u64> = p.done[failed + 1..].iter().map(|c| c.wr_id).collect();
    let after: Vec<u64> = (n as u64 + 1..p.ops.len() as u64).collect();
    assert_eq!(rest, after, "{context}: completions after the failure");
    assert!(
        p.done[failed + 1..]
            .iter()
            .all(|c| c.fault == Fault::Flushed)
    );
}

/// What the responder says: nothing where it is not to blame, else an event or the
/// receive's own failure, and the rest flushed.
fn check_peer(p: &Program, n: usize, context: &str) {
    let qp = p.pair.nodes[1].qp;
    let (fault, events): (Option<Fault>, Vec<AsyncEvent>) = match p.mistake {
        Mistake::RemoteKey | Mistake::PeerDeregisters => (None, vec![AsyncEvent::QpAccessErr(qp)]),
        Mistake::Operation | Mistake::Misaligned => (None, vec![AsyncEvent::QpReqErr(qp)]),
        Mistake::RecvTooShort => (Some(Fault::RecvTooShort), vec![]),
        Mistake::RecvKey => (Some(Fault::LocalKey), vec![]),
        Mistake::PeerMemoryGoes if p.ops[n].opcode == WrOpcode::Send => {
            (Some(Fault::LocalMemory), vec![])
        }
        Mistake::PeerMemoryGoes => (None, vec![AsyncEvent::QpAccessErr(qp)]),
        _ => {
            assert_eq!(p.pair.nodes[1].state(), QpState::Rts, "{context}");
            assert_eq!(p.events[1], [], "{context}");
            return;
        }
    };
    let went_away = matches!(
        p.mistake,
        Mistake::PeerMemoryGoes | Mistake::PeerDeregisters
    );
    let was_answered = p.is_lossy && p.ops[n].opcode == WrOpcode::RdmaRead;
    if went_away && was_answered && p.pair.nodes[1].state() == QpState::Rts {
        // To the responder all is well: only the repetition of its answer was refused.
        assert_eq!(p.events[1], [], "{context}");
        return;
    }
    assert_eq!(p.pair.nodes[1].state(), QpState::Err, "{context}");
    assert_eq!(p.events[1], events, "{context}");
    let mut rest = p
        .received
        .iter()
        .skip_while(|c| c.status == WcStatus::Success);
    if let Some(fault) = fault {
        let first = rest.next().expect("the receive fails");
        assert_eq!(first.fault, fault, "{context}");
        assert_eq!(Some(first.wr_id), p.ops[n].recv, "{context}");
    }
    assert!(rest.all(|c| c.fault == Fault::Flushed), "{context}");
}

/// Nothing failed: all was done.
fn check_success(p: &Program, context: &str) {
    let signaled: Vec<u64> = (0..p.ops.len() as u64)
        .filter(|&n| p.ops[n as usize].signaled)
        .collect();
    let done: Vec<u64> = p.done.iter().map(|c| c.wr_id).collect();
    assert_eq!(done, signaled, "{context}");
    for n in 0..p.ops.len() {
        assert!(p.has_effect(n), "{context}: {n} was not done");
    }
    for side in 0..2 {
        assert_eq!(p.pair.nodes[side].state(), QpState::Rts, "{context}");
    }
}

/// Full is full: that many completions are there, in order, and the rest is told by
/// events.
fn check_overrun(p: &mut Program) {
    let capacity = p.pair.nodes[0].cqs.capacity;
    let signaled: Vec<u64> = (0..p.ops.len() as u64)
        .filter(|&n| p.ops[n as usize].signaled)
        .collect();
    let kept = p.pair.nodes[0].take(SEND_CQ);
    if signaled.len() <= capacity {
        assert_eq!(kept.len(), signaled.len());
        return;
    }
    let ids: Vec<u64> = kept.iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, signaled[..capacity]);
    let qp = p.pair.nodes[0].qp;
    assert!(p.events[0].contains(&AsyncEvent::CqErr(SEND_CQ)));
    assert!(p.events[0].contains(&AsyncEvent::QpFatal(qp)));
    assert_eq!(p.pair.nodes[0].state(), QpState::Err);
}

/// The first message after the reset was completed on both sides, and nothing of
/// before it is heard of after that.
fn check_reset(p: &Program) {
    for done in [&p.done, &p.received] {
        let again = done.iter().position(|c| c.wr_id == 999);
        let Some(again) = again else {
            // The moment never came: the program was over before.
            assert!(done.iter().all(|c| c.status == WcStatus::Success));
            continue;
        };
        assert_eq!(done[again].status, WcStatus::Success);
        let ids: Vec<u64> = done[again + 1..].iter().map(|c| c.wr_id).collect();
        assert!(ids.is_sorted(), "{ids:?}");
    }
}
