//! UC: every message arrives whole, in order, at most once, or not at all; and all that
//! nothing was lost of arrive. WRITEs leave what they say or a part of it; faults of
//! either side cost what they must and nothing else.

use std::collections::VecDeque;

use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::error::{Fault, WcStatus};
use urxe_core::mr::Access;
use urxe_core::qp::attr::{AttrMask, Mtu, QpAttr};
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_wire::{Lkey, Rkey};

use crate::suite::{Run, Service};
use crate::support::*;

pub(crate) const UC: Service = Service {
    name: "uc",
    programs: 3_000,
    run: run_program,
};

const LOCAL: u64 = 0;
const TARGET: u64 = 256 << 10;
const RECV: u64 = 512 << 10;
const SLOT: u64 = 4 << 10;

/// What is done wrong with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    Nothing,
    /// Its receive is too short for it; it stays for the next message.
    TooLong,
    /// Its rkey opens nothing.
    RemoteKey,
    /// Its local entry names no region: SQE.
    LocalKey,
}

#[derive(Debug)]
struct Message {
    opcode: WrOpcode,
    data: Vec<u8>,
    mistake: Mistake,
}

struct World {
    pair: Pair,
    messages: Vec<Message>,
    /// Receives that are posted: where, and how long.
    waiting: VecDeque<(u64, u32)>,
    posted_receives: u64,
    /// Messages that arrived, by their number.
    arrived: Vec<u64>,
}

fn run_program(seed: u64) -> Run {
    let mut rng = Rng(seed);
    let settings = Settings {
        qp_type: QpType::Uc,
        mtu: rng.pick(&[Mtu::Mtu256, Mtu::Mtu1024]),
        psn: [rng.next() as u32 & 0xff_ffff, 0],
        secret: rng.next(),
        batch_bytes: rng.pick(&[8 << 10, 128 << 10]),
        access: rng.pick(&[Access(0xf), Access(0xf), Access::LOCAL_WRITE]),
        ..Settings::default()
    };
    let is_lossy = rng.chance(600);
    let mut w = World {
        pair: Pair::new(&settings, rng.next()),
        messages: Vec::new(),
        waiting: VecDeque::new(),
        posted_receives: 0,
        arrived: Vec::new(),
    };
    w.pair.faults = Faults {
        lose: if is_lossy { rng.below(100) } else { 0 },
        corrupt: if is_lossy { rng.below(40) } else { 0 },
        delay_ns: 500 + rng.below(5_000),
        batch_ns: rng.pick(&[0, 20_000]),
        ..Faults::default()
    };
    let count = 5 + rng.below(30);
    for n in 0..count {
        let message = random_message(&mut rng);
        // Now and then there is no receive for it.
        let needs = message.opcode.takes_credit();
        let has_receive = needs && (rng.chance(900) || !w.waiting.is_empty());
        let is_written = settings.access.contains(Access::REMOTE_WRITE);
        let must_arrive = !is_lossy
            && has_receive
            && message.mistake == Mistake::Nothing
            && (message.opcode != WrOpcode::RdmaWriteWithImm || is_written);
        if has_receive && w.waiting.is_empty() {
            let short = message.mistake == Mistake::TooLong;
            let length = if short { 100 } else { SLOT as u32 };
            w.post_receive(length);
        }
        w.messages.push(message);
        w.post(n, settings.access);
        w.pair.run();
        let before = w.arrived.len();
        w.collect();
        let came = w.arrived.len() > before;
        // A receive that was too short for an earlier message may be for this one too.
        let fits = w.messages[n as usize].data.len() <= 100;
        if must_arrive && fits {
            assert!(came, "message {n} of {count} did not arrive");
        }
        assert!(!came || w.arrived.last() == Some(&n));
        if came || rng.chance(300) {
            w.replace_receive();
        }
    }
    assert_eq!(w.pair.sent[1], 0, "nothing is answered");
    assert_eq!(w.pair.nodes[1].state(), QpState::Rts);
    Run::new(count, w.pair.now, &w.pair.nodes)
}

fn random_message(rng: &mut Rng) -> Message {
    let opcode = rng.pick(&[
        WrOpcode::Send,
        WrOpcode::SendWithImm,
        WrOpcode::RdmaWrite,
        WrOpcode::RdmaWriteWithImm,
    ]);
    let sends = matches!(opcode, WrOpcode::Send | WrOpcode::SendWithImm);
    let mistake = match rng.below(12) {
        0 if sends => Mistake::TooLong,
        0 | 1 if !sends => Mistake::RemoteKey,
        2 => Mistake::LocalKey,
        _ => Mistake::Nothing,
    };
    let len = match (mistake, rng.below(4)) {
        (Mistake::Nothing, 0) => rng.below(100),
        _ => 101 + rng.below(SLOT - 101),
    };
    Message {
        opcode,
        data: rng.bytes(len as usize),
        mistake,
    }
}

impl World {
    fn post_receive(&mut self, length: u32) {
        let wr_id = self.posted_receives;
        self.posted_receives += 1;
        let sges = [Sge {
            addr: IOVA + RECV + wr_id * SLOT,
            length,
            lkey: self.pair.nodes[1].keys.lkey,
        }];
        self.pair.post_recv(1, &RecvWr { wr_id, sges: &sges });
        self.waiting.push_back((wr_id, length));
    }

    /// A long one, behind what may be too short.
    fn replace_receive(&mut self) {
        if self.waiting.iter().all(|&(_, length)| length < 200) && self.waiting.len() < 3 {
            self.post_receive(SLOT as u32);
        }
    }

    /// Posts message `n`, alone in the queue, and follows it out.
    fn post(&mut self, n: u64, access: Access) {
        let message = &self.messages[n as usize];
        let node = &self.pair.nodes[0];
        node.memory.write(LOCAL, &message.data);
        let lkey = match message.mistake {
            Mistake::LocalKey => Lkey(7),
            _ => node.keys.lkey,
        };
        let sges = [Sge {
            addr: IOVA + LOCAL,
            length: message.data.len() as u32,
            lkey,
        }];
        let mut wr = SendWr::new(n, message.opcode, WrData::Sges(&sges));
        wr.flags = SendFlags::SIGNALED;
        wr.imm = (n as u32).to_be_bytes();
        wr.remote_addr = IOVA + TARGET + n * SLOT;
        wr.rkey = match message.mistake {
            Mistake::RemoteKey => Rkey(7),
            _ => self.pair.nodes[1].keys.rkey,
        };
        self.pair.post_send(0, &wr);
        self.pair.transmit();
        let done = self.pair.nodes[0].take(SEND_CQ);
        assert_eq!(done.len(), 1, "a send completes when it has left");
        let is_local = message.mistake == Mistake::LocalKey && !message.data.is_empty();
        let expected = if is_local {
            Fault::LocalKey
        } else {
            Fault::None
        };
        assert_eq!((done[0].wr_id, done[0].fault), (n, expected));
        if is_local {
            self.leave_sqe(access);
        }
    }

    /// The send queue stopped, and nothing else did.
    fn leave_sqe(&mut self, qp_access_flags: Access) {
        let now = self.pair.now;
        let node = &mut self.pair.nodes[0];
        assert_eq!(node.state(), QpState::Sqe);
        let attr = QpAttr {
            qp_state: QpState::Rts,
            qp_access_flags,
            ..QpAttr::default()
        };
        let qp = node.qp;
        node.with_env(now, |s, env| s.modify_qp(qp, &attr, AttrMask::STATE, env))
            .expect("SQE to RTS");
    }

    fn collect(&mut self) {
        for cqe in self.pair.nodes[1].take(RECV_CQ) {
            self.check_receive(&cqe);
        }
        self.check_writes();
    }

    fn check_receive(&mut self, cqe: &Cqe) {
        assert_eq!(cqe.status, WcStatus::Success, "{cqe:?}");
        let (wr_id, _) = self.waiting.pop_front().expect("a receive was posted");
        assert_eq!(cqe.wr_id, wr_id, "receives complete in order");
        let n = self.messages.len() as u64 - 1;
        let message = &self.messages[n as usize];
        assert_eq!(cqe.byte_len as usize, message.data.len());
        if cqe.opcode == WcOpcode::Recv {
            let at = RECV + wr_id * SLOT;
            let got = self.pair.nodes[1].memory.read(at, message.data.len());
            assert!(got == message.data, "message {n}: other bytes");
        }
        let has_imm = matches!(
            message.opcode,
            WrOpcode::SendWithImm | WrOpcode::RdmaWriteWithImm
        );
        assert_eq!(cqe.imm, has_imm.then_some((n as u32).to_be_bytes()));
        self.arrived.push(n);
    }

    /// A WRITE leaves its bytes from the start, all or some; one that was refused, none.
    fn check_writes(&self) {
        let n = self.messages.len() as u64 - 1;
        let message = &self.messages[n as usize];
        let writes = matches!(
            message.opcode,
            WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm
        );
        let len = message.data.len();
        let got = self.pair.nodes[1].memory.read(TARGET + n * SLOT, len);
        let same = got
            .iter()
            .zip(&message.data)
            .take_while(|(a, b)| a == b)
            .count();
        if !writes || message.mistake != Mistake::Nothing {
            assert!(got.iter().all(|&b| b == 0), "message {n} left something");
        } else {
            assert!(
                got[same..].iter().all(|&b| b == 0),
                "message {n}: other bytes"
            );
        }
    }
}
