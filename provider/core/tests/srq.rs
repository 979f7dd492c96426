//! Shared receive queues on the virtual wire: rule by rule, and random programs with
//! faults against a simple model.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::support::late::Of;
use crate::support::{Faults, IOVA, PD, Pair, RECV_CQ, Rng, SEND_CQ, Settings, Verdict};
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::error::{DropReason, Fault, WcStatus};
use urxe_core::event::AsyncEvent;
use urxe_core::mr::{Access, MrInit, PdId};
use urxe_core::qp::attr::{AttrMask, QpAttr};
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::srq::{SrqAttr, SrqAttrMask, SrqError, SrqId, SrqInit};
use urxe_core::table::QpIndex;
use urxe_core::work::{PostError, RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{CreateQpError, QpInit, Time};
use urxe_wire::{Lkey, Packet, Psn, Qpn, SyndromeKind};

const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// A pair in which the receiver has an SRQ, and QPs that take from it.
struct Shared {
    pair: Pair,
    srq: SrqId,
    /// QPs of both sides.
    qps: Vec<[(QpIndex, Qpn); 2]>,
    settings: Settings,
}

fn attr(max_wr: u32, srq_limit: u32) -> SrqAttr {
    SrqAttr {
        max_wr,
        max_sge: 2,
        srq_limit,
    }
}

impl Shared {
    fn new(settings: &Settings, seed: u64, qps: usize, attr: SrqAttr) -> Shared {
        Shared::in_pd(settings, seed, qps, attr, PD)
    }

    fn in_pd(settings: &Settings, seed: u64, qps: usize, attr: SrqAttr, pd: PdId) -> Shared {
        let mut pair = Pair::new(settings, seed);
        let init = SrqInit {
            pd,
            attr,
            xrc: None,
            tm: None,
        };
        let (srq, _) = pair.nodes[RECEIVER].shard.create_srq(&init).expect("fits");
        let mut shared = Shared {
            pair,
            srq,
            qps: Vec::new(),
            settings: *settings,
        };
        for n in 0..qps {
            shared.add_qp(n as u32);
        }
        shared
    }

    /// One more connection; its receiver takes from the SRQ.
    fn add_qp(&mut self, n: u32) {
        let made = [SENDER, RECEIVER].map(|side| {
            let init = QpInit {
                pd: PD,
                qp_type: self.settings.qp_type,
                send_cq: SEND_CQ,
                recv_cq: RECV_CQ,
                cap: self.settings.cap,
                sq_sig_all: false,
                srq: (side == RECEIVER).then_some(self.srq),
                xrcd: None,
                block_self_mcast_lb: false,
            };
            let node = &mut self.pair.nodes[side];
            node.shard.create_qp(&init).expect("creates")
        });
        let addrs = [self.pair.nodes[0].addr, self.pair.nodes[1].addr];
        let settings = Settings {
            psn: [0x1000 * (n + 1), 0x2000 * (n + 1)],
            ..self.settings
        };
        for side in [SENDER, RECEIVER] {
            let peer = 1 - side;
            self.pair.nodes[side].qp = made[side].0;
            self.pair.nodes[side].connect(&settings, side, addrs[peer], made[peer].1);
        }
        self.qps.push(made);
    }

    fn send(&mut self, qp: usize, wr: &SendWr<'_>) {
        self.pair.nodes[SENDER].qp = self.qps[qp][SENDER].0;
        self.pair.post_send(SENDER, wr);
    }

    fn try_post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), PostError> {
        let wr = RecvWr { wr_id, sges };
        self.pair.nodes[RECEIVER].shard.post_srq_recv(self.srq, &wr)
    }

    /// A receive of `len` bytes; its place follows from its id.
    fn post(&mut self, wr_id: u64, len: u32) {
        let sges = [self.sge(RECEIVER, place(wr_id), len)];
        self.try_post(wr_id, &sges).expect("room");
    }

    fn sge(&self, side: usize, at: u64, length: u32) -> Sge {
        Sge {
            addr: IOVA + at,
            length,
            lkey: self.pair.nodes[side].keys.lkey,
        }
    }

    fn received(&mut self) -> Vec<Cqe> {
        self.pair.nodes[RECEIVER].take(RECV_CQ)
    }

    fn sent(&mut self) -> Vec<Cqe> {
        self.pair.nodes[SENDER].take(SEND_CQ)
    }

    fn events(&mut self) -> Vec<AsyncEvent> {
        let shard = &mut self.pair.nodes[RECEIVER].shard;
        std::iter::from_fn(|| shard.poll_event()).collect()
    }

    fn fail_receiver(&mut self, qp: usize) {
        self.pair.nodes[RECEIVER].qp = self.qps[qp][RECEIVER].0;
        let err = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::default()
        };
        self.pair.nodes[RECEIVER].modify(&err, AttrMask::STATE);
    }

    fn waiting(&self) -> u32 {
        self.pair.nodes[RECEIVER].shard.srq_len(self.srq)
    }
}

const PLACE: u64 = 4096;

fn place(wr_id: u64) -> u64 {
    (wr_id % 64) * PLACE
}

fn inline(text: &[u8]) -> SendWr<'_> {
    SendWr::new(1, WrOpcode::Send, WrData::Inline(text))
}

#[test]
fn receives_are_taken_in_posted_order_by_whichever_qp_needs_one() {
    let mut s = Shared::new(&Settings::default(), 1, 3, attr(16, 0));
    (0..6).for_each(|id| s.post(id, 64));
    for (qp, text) in [(2, b"one"), (0, b"two"), (2, b"tri")] {
        s.send(qp, &inline(text));
        s.pair.run();
    }
    let got = s.received();
    let expected = [(0, 2, b"one"), (1, 0, b"two"), (2, 2, b"tri")];
    assert_eq!(got.len(), 3);
    for (cqe, (wr_id, qp, text)) in got.iter().zip(expected) {
        assert_eq!((cqe.wr_id, cqe.status), (wr_id, WcStatus::Success));
        assert_eq!(cqe.qpn, s.qps[qp][RECEIVER].1);
        assert_eq!(cqe.src_qp, s.qps[qp][SENDER].1);
        let bytes = s.pair.nodes[RECEIVER].memory.read(place(wr_id), 3);
        assert_eq!(bytes, text);
    }
    assert_eq!(s.waiting(), 3);
}

#[test]
fn receives_that_are_posted_meanwhile_are_found() {
    let mut s = Shared::new(&Settings::default(), 1, 2, attr(16, 0));
    for id in 0..2 {
        let sges = [s.sge(RECEIVER, place(id), 64)];
        let wr = RecvWr {
            wr_id: id,
            sges: &sges,
        };
        s.pair.nodes[RECEIVER].late.post(Of::Srq(s.srq), 2, &wr);
    }
    s.send(0, &inline(b"one"));
    s.send(1, &inline(b"two"));
    s.pair.transmit();
    s.pair.run();
    let got: Vec<u64> = s.received().iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(got, [0, 1]);
    let stats = s.pair.nodes[RECEIVER].shard.stats();
    assert_eq!(stats.send_rnr_err, 0, "both were there in time");
}

/// A receive belongs to a QP from the first packet of its message on.
#[test]
fn messages_of_several_qps_fill_different_receives_at_once() {
    let mut s = Shared::new(&Settings::default(), 1, 2, attr(16, 0));
    (0..2).for_each(|id| s.post(id, 1024));
    let text: Vec<Vec<u8>> = (0..2).map(|n| Rng(n).bytes(1000)).collect();
    // The last packet of each message is held back until both have begun.
    let begun = Rc::new(RefCell::new([0; 2]));
    let seen = begun.clone();
    let senders = [s.qps[0][RECEIVER].1, s.qps[1][RECEIVER].1];
    s.pair.filter = Some(Box::new(move |from, bytes| {
        let packet = Packet::parse(bytes).expect("parses");
        if from == RECEIVER {
            return Verdict::Pass;
        }
        let to = packet.bth().dest_qp;
        let qp = senders.iter().position(|&q| q == to).expect("known");
        let mut seen = seen.borrow_mut();
        let others = seen[1 - qp];
        if packet.info().name.contains("Last") && others == 0 {
            return Verdict::Drop;
        }
        seen[qp] += 1;
        Verdict::Pass
    }));
    for (qp, text) in text.iter().enumerate() {
        s.pair.nodes[SENDER].memory.write(place(qp as u64), text);
        let sges = [s.sge(SENDER, place(qp as u64), 1000)];
        s.send(
            qp,
            &SendWr::new(qp as u64, WrOpcode::Send, WrData::Sges(&sges)),
        );
        s.pair.run_until(s.pair.now + 100_000);
    }
    s.pair.run();
    assert!(begun.borrow().iter().all(|&n| n >= 4));
    let got = s.received();
    assert_eq!(got.len(), 2);
    for cqe in got {
        let qp = (0..2).find(|&n| s.qps[n][RECEIVER].1 == cqe.qpn);
        let qp = qp.expect("one of them");
        // Both began in the order of posting.
        assert_eq!((cqe.wr_id, cqe.byte_len), (qp as u64, 1000));
        let bytes = s.pair.nodes[RECEIVER].memory.read(place(cqe.wr_id), 1000);
        assert_eq!(bytes, text[qp]);
    }
}

#[test]
fn an_empty_queue_makes_rnr_naks_and_posting_needs_no_other_call() {
    let mut s = Shared::new(&Settings::default(), 1, 1, attr(4, 0));
    s.send(0, &inline(b"patience"));
    s.pair.run_until(Time(5_000_000));
    assert!(s.received().is_empty());
    assert!(s.pair.nodes[RECEIVER].shard.stats().send_rnr_err > 0);
    s.post(9, 64);
    s.pair.run();
    assert_eq!(s.received()[0].wr_id, 9);
    assert_eq!(s.sent()[0].status, WcStatus::Success);
}

#[test]
fn rnr_retries_run_out_on_an_empty_queue() {
    let settings = Settings {
        rnr_retry: 2,
        ..Settings::default()
    };
    let mut s = Shared::new(&settings, 1, 1, attr(4, 0));
    s.send(0, &inline(b"nobody"));
    s.pair.run();
    assert_eq!(s.sent()[0].status, WcStatus::RnrRetryExcErr);
}

/// IBTA 9.7.7.2: no credits can be promised from a shared queue.
#[test]
fn acks_of_a_qp_with_an_srq_say_no_limit() {
    let mut s = Shared::new(&Settings::default(), 1, 1, attr(16, 0));
    (0..8).for_each(|id| s.post(id, 64));
    let codes = Rc::new(RefCell::new(Vec::new()));
    let seen = codes.clone();
    s.pair.filter = Some(Box::new(move |from, bytes| {
        if from == RECEIVER
            && let Some(aeth) = Packet::parse(bytes).expect("parses").aeth()
            && let SyndromeKind::Ack(code) = aeth.syndrome.decode()
        {
            seen.borrow_mut().push((aeth.syndrome, code.credits()));
        }
        Verdict::Pass
    }));
    (0..8).for_each(|_| s.send(0, &inline(b"x")));
    s.pair.run();
    let codes = codes.borrow();
    assert!(!codes.is_empty());
    assert!(codes.iter().all(|&(_, credits)| credits.is_none()));
}

#[test]
fn the_limit_raises_one_event_each_time_that_it_is_armed() {
    let mut s = Shared::new(&Settings::default(), 1, 2, attr(16, 3));
    let limit = AsyncEvent::SrqLimitReached(s.srq);
    (0..5).for_each(|id| s.post(id, 64));
    let message = |s: &mut Shared, qp| {
        s.send(qp, &inline(b"x"));
        s.pair.run();
        s.events()
    };
    assert_eq!(message(&mut s, 0), [], "4 left");
    assert_eq!(message(&mut s, 1), [], "3 left: not fewer than 3");
    assert_eq!(message(&mut s, 0), [limit], "2 left");
    let shard = &mut s.pair.nodes[RECEIVER].shard;
    assert_eq!(shard.query_srq(s.srq).expect("exists").srq_limit, 0);
    assert_eq!(message(&mut s, 0), [], "it is disarmed");
    let shard = &mut s.pair.nodes[RECEIVER].shard;
    shard
        .modify_srq(s.srq, &attr(0, 1), SrqAttrMask::LIMIT)
        .expect("arms");
    assert_eq!(message(&mut s, 1), [limit], "none left");
}

#[test]
fn a_failed_qp_completes_only_the_receive_that_it_holds() {
    let mut s = Shared::new(&Settings::default(), 1, 2, attr(16, 0));
    (0..4).for_each(|id| s.post(id, 1024));
    // The message never gets its end.
    s.pair.filter = Some(Box::new(|from, bytes| {
        let packet = Packet::parse(bytes).expect("parses");
        match from == SENDER && packet.info().name.contains("Last") {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }));
    let sges = [s.sge(SENDER, 0, 600)];
    s.send(0, &SendWr::new(1, WrOpcode::Send, WrData::Sges(&sges)));
    s.pair.run_until(Time(100_000));
    assert_eq!(s.waiting(), 3, "the first packet took one");
    s.fail_receiver(0);
    let got = s.received();
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].wr_id, got[0].status), (0, WcStatus::WrFlushErr));
    assert_eq!(got[0].qpn, s.qps[0][RECEIVER].1);
    let index = s.qps[0][RECEIVER].0;
    assert_eq!(s.events(), [AsyncEvent::QpLastWqeReached(index)]);
    s.fail_receiver(0);
    assert_eq!(s.events(), [], "once");
    // The others are still there for the other QP.
    s.pair.filter = None;
    s.send(1, &inline(b"lives"));
    s.pair.run();
    assert_eq!(s.received()[0].wr_id, 1);
}

#[test]
fn a_message_too_long_fails_its_receive_and_says_that_it_was_the_last() {
    let mut s = Shared::new(&Settings::default(), 1, 1, attr(16, 0));
    (0..2).for_each(|id| s.post(id, 8));
    s.send(0, &inline(b"nine byte"));
    s.pair.run();
    let got = s.received();
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].wr_id, got[0].fault), (0, Fault::RecvTooShort));
    assert_eq!(s.sent()[0].status, WcStatus::RemInvReqErr);
    let index = s.qps[0][RECEIVER].0;
    assert_eq!(s.events(), [AsyncEvent::QpLastWqeReached(index)]);
    assert_eq!(s.waiting(), 1);
}

#[test]
fn a_qp_with_an_srq_takes_no_receives_of_its_own() {
    let mut s = Shared::new(&Settings::default(), 1, 1, attr(16, 0));
    let qp = s.qps[0][RECEIVER].0;
    let wr = RecvWr {
        wr_id: 1,
        sges: &[],
    };
    let result = s.pair.nodes[RECEIVER].with_env(Time::ZERO, |shard, env| {
        shard.post_recv(qp, &wr, env).map(|()| shard.rq_len(qp))
    });
    assert_eq!(result, Err(PostError::HasSrq));
}

/// Receives of an SRQ are checked in its PD, not in the QP's.
#[test]
fn receives_are_checked_in_the_protection_domain_of_the_srq() {
    let other = PdId(77);
    for (registered_in, status) in [(other, WcStatus::Success), (PD, WcStatus::RemOpErr)] {
        let mut s = Shared::in_pd(&Settings::default(), 1, 1, attr(16, 0), other);
        let keys = s.pair.nodes[RECEIVER].mrs.register(MrInit {
            pd: registered_in,
            access: Access::LOCAL_WRITE,
            host_addr: 0,
            iova: IOVA,
            len: 4096,
            remote_invalidate: false,
        });
        let lkey = keys.expect("registers").lkey;
        let sge = Sge {
            addr: IOVA,
            length: 64,
            lkey,
        };
        s.try_post(1, &[sge]).expect("room");
        s.send(0, &inline(b"hello"));
        s.pair.run();
        assert_eq!(s.sent()[0].status, status);
        let expected = match status {
            WcStatus::Success => Fault::None,
            _ => Fault::LocalPd,
        };
        assert_eq!(s.received()[0].fault, expected);
    }
}

#[test]
fn the_size_changes_around_the_receives_that_wait() {
    let mut s = Shared::new(&Settings::default(), 1, 1, attr(4, 0));
    (0..4).for_each(|id| s.post(id, 64));
    assert_eq!(s.try_post(4, &[]), Err(PostError::QueueFull(4)));
    let resize = |s: &mut Shared, max_wr| {
        let shard = &mut s.pair.nodes[RECEIVER].shard;
        shard.modify_srq(s.srq, &attr(max_wr, 0), SrqAttrMask::MAX_WR)
    };
    resize(&mut s, 6).expect("grows");
    (4..6).for_each(|id| s.post(id, 64));
    assert_eq!(s.try_post(6, &[]), Err(PostError::QueueFull(6)));
    let too_small = SrqError::Value {
        name: "max_wr",
        value: 5,
        min: 6,
        max: 1 << 15,
    };
    assert_eq!(resize(&mut s, 5), Err(too_small));
    for _ in 0..3 {
        s.send(0, &inline(b"x"));
    }
    s.pair.run();
    resize(&mut s, 3).expect("shrinks");
    for _ in 0..3 {
        s.send(0, &inline(b"x"));
    }
    s.pair.run();
    let ids: Vec<u64> = s.received().iter().map(|cqe| cqe.wr_id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn attributes_out_of_range_are_refused_and_change_nothing() {
    let mut s = Shared::new(&Settings::default(), 1, 0, attr(4, 2));
    let shard = &mut s.pair.nodes[RECEIVER].shard;
    let both = SrqAttrMask::MAX_WR | SrqAttrMask::LIMIT;
    for (new, mask) in [
        (attr(0, 0), SrqAttrMask::MAX_WR),
        (attr(1 << 16, 0), SrqAttrMask::MAX_WR),
        (attr(0, 5), SrqAttrMask::LIMIT),
        // The limit in force would be beyond the new size.
        (attr(1, 0), SrqAttrMask::MAX_WR),
        (attr(9, 10), both),
    ] {
        let refused = shard.modify_srq(s.srq, &new, mask);
        assert!(matches!(refused, Err(SrqError::Value { .. })), "{new:?}");
        assert_eq!(shard.query_srq(s.srq), Some(attr(4, 2)));
    }
    let unknown = SrqAttrMask(4);
    let refused = shard.modify_srq(s.srq, &attr(4, 0), unknown);
    assert_eq!(refused, Err(SrqError::Mask(4)));
    let init = SrqInit {
        pd: PD,
        attr: SrqAttr {
            max_sge: 33,
            ..attr(1, 0)
        },
        xrc: None,
        tm: None,
    };
    assert!(shard.create_srq(&init).is_err());
    let nowhere = SrqId(99);
    assert_eq!(
        shard.modify_srq(nowhere, &attr(4, 0), both),
        Err(SrqError::NoSrq)
    );
    let wr = RecvWr {
        wr_id: 1,
        sges: &[],
    };
    assert_eq!(shard.post_srq_recv(nowhere, &wr), Err(PostError::NoSrq));
    let long = [Sge {
        addr: 0,
        length: 0,
        lkey: Lkey(0),
    }; 3];
    let wr = RecvWr {
        wr_id: 1,
        sges: &long,
    };
    let refused = shard.post_srq_recv(s.srq, &wr);
    assert_eq!(refused, Err(PostError::TooManySges { given: 3, max: 2 }));
}

#[test]
fn an_srq_in_use_cannot_be_destroyed() {
    let mut s = Shared::new(&Settings::default(), 1, 2, attr(4, 0));
    let shard = &mut s.pair.nodes[RECEIVER].shard;
    assert_eq!(shard.destroy_srq(s.srq), Err(SrqError::InUse(2)));
    for qp in &s.qps {
        assert!(shard.destroy_qp(qp[RECEIVER].0));
    }
    assert_eq!(shard.destroy_srq(s.srq), Ok(()));
    assert_eq!(shard.destroy_srq(s.srq), Err(SrqError::NoSrq));
    let init = QpInit {
        pd: PD,
        qp_type: QpType::Rc,
        send_cq: SEND_CQ,
        recv_cq: RECV_CQ,
        cap: s.settings.cap,
        sq_sig_all: false,
        srq: Some(s.srq),
        xrcd: None,
        block_self_mcast_lb: false,
    };
    let refused = shard.create_qp(&init);
    assert!(matches!(refused, Err(CreateQpError::Srq(_))), "{refused:?}");
}

/// A message of an unreliable connection that is never ended leaves its receive with the
/// QP, which uses it for its next message; the others' are not touched.
#[test]
fn an_unreliable_connection_keeps_the_receive_of_a_lost_message() {
    let settings = Settings {
        qp_type: QpType::Uc,
        ..Settings::default()
    };
    let mut s = Shared::new(&settings, 1, 2, attr(16, 0));
    (0..3).for_each(|id| s.post(id, 1024));
    s.pair.filter = Some(Box::new(|_, bytes| {
        let packet = Packet::parse(bytes).expect("parses");
        match packet.info().name.contains("Last") {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }));
    let sges = [s.sge(SENDER, 0, 600)];
    s.send(0, &SendWr::new(1, WrOpcode::Send, WrData::Sges(&sges)));
    s.pair.run();
    assert_eq!((s.waiting(), s.received().len()), (2, 0));
    s.send(1, &inline(b"other"));
    s.pair.run();
    s.send(0, &inline(b"again"));
    s.pair.run();
    let got: Vec<_> = s.received().iter().map(|c| (c.wr_id, c.byte_len)).collect();
    assert_eq!(got, [(1, 5), (0, 5)]);
    assert_eq!(s.pair.nodes[RECEIVER].memory.read(place(0), 5), b"again");
    // Nothing is left: the message is dropped, without a completion.
    s.send(0, &inline(b"third"));
    s.send(1, &inline(b"fourth"));
    s.pair.run();
    let ids: Vec<u64> = s.received().iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, [2]);
    let stats = s.pair.nodes[RECEIVER].shard.stats();
    assert_eq!(stats.dropped_for(DropReason::NoReceive), 1);
}

/// A message that was sent, in the order of its QP.
struct Message {
    opcode: WcOpcode,
    bytes: Vec<u8>,
    imm: Option<[u8; 4]>,
}

/// Random messages on several QPs, receives posted now and then, faults on. The model:
/// every message arrives once, whole, in the order of its QP; and the receives used are
/// the first that were posted, each once.
pub(crate) fn random_program(seed: u64) -> (u64, Time) {
    let mut rng = Rng(seed);
    let settings = Settings {
        secret: rng.next(),
        ..Settings::default()
    };
    let qps = 1 + rng.below(4) as usize;
    let limit = rng.below(6) as u32;
    let mut s = Shared::new(&settings, rng.next(), qps, attr(64, limit));
    s.pair.faults = Faults {
        lose: rng.below(80),
        duplicate: rng.below(80),
        corrupt: rng.below(20),
        reorder: rng.below(150),
        delay_ns: 1000,
        batch_ns: rng.pick(&[0, 20_000]),
        ..Faults::default()
    };
    let mut model: Vec<Vec<Message>> = (0..qps).map(|_| Vec::new()).collect();
    let (mut posted, mut needed) = (0u64, 0u64);
    for round in 0..30 {
        let qp = rng.below(qps as u64) as usize;
        let sizes = [0, 1, 255, 256, 257, 900, PLACE];
        let len = rng.pick(&sizes).min(PLACE);
        let bytes = rng.bytes(len as usize);
        let at = (64 + round) * PLACE;
        s.pair.nodes[SENDER].memory.write(at, &bytes);
        let sges = [s.sge(SENDER, at, len as u32)];
        let kinds = [
            WrOpcode::Send,
            WrOpcode::SendWithImm,
            WrOpcode::RdmaWriteWithImm,
            WrOpcode::RdmaWrite,
        ];
        let opcode = rng.pick(&kinds);
        let mut wr = SendWr::new(round, opcode, WrData::Sges(&sges));
        wr.imm = (round as u32).to_be_bytes();
        wr.remote_addr = IOVA + at;
        wr.rkey = s.pair.nodes[RECEIVER].keys.rkey;
        s.send(qp, &wr);
        if opcode.takes_credit() {
            needed += 1;
            model[qp].push(Message {
                opcode: match opcode {
                    WrOpcode::RdmaWriteWithImm => WcOpcode::RecvRdmaWithImm,
                    _ => WcOpcode::Recv,
                },
                bytes,
                imm: (opcode != WrOpcode::Send).then_some(wr.imm),
            });
        }
        for _ in 0..rng.below(3) {
            s.post(posted, PLACE as u32);
            posted += 1;
        }
        s.pair.run_until(s.pair.now + rng.below(200_000));
    }
    while posted < needed {
        s.post(posted, PLACE as u32);
        posted += 1;
        s.pair.run_until(s.pair.now + rng.below(500_000));
    }
    s.pair.run();

    let sent = s.sent();
    assert_eq!(sent.len(), 30, "seed {seed}");
    for cqe in sent {
        assert_eq!(cqe.status, WcStatus::Success, "seed {seed}: {cqe:?}");
    }
    let got = s.received();
    let mut ids: Vec<u64> = got.iter().map(|cqe| cqe.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, Vec::from_iter(0..needed), "seed {seed}");
    assert_eq!(u64::from(s.waiting()), posted - needed, "seed {seed}");
    let mut by_qp: BTreeMap<Qpn, std::vec::IntoIter<Message>> = BTreeMap::new();
    for (qp, messages) in s.qps.iter().zip(model) {
        by_qp.insert(qp[RECEIVER].1, messages.into_iter());
    }
    for cqe in got {
        let expected = by_qp.get_mut(&cqe.qpn).and_then(Iterator::next);
        let expected = expected.unwrap_or_else(|| panic!("seed {seed}: {cqe:?} too many"));
        assert_eq!(cqe.status, WcStatus::Success, "seed {seed}");
        assert_eq!(cqe.opcode, expected.opcode, "seed {seed}: {cqe:?}");
        assert_eq!(cqe.imm, expected.imm, "seed {seed}: {cqe:?}");
        let len = expected.bytes.len();
        assert_eq!(cqe.byte_len as usize, len, "seed {seed}");
        if cqe.opcode == WcOpcode::Recv {
            let bytes = s.pair.nodes[RECEIVER].memory.read(place(cqe.wr_id), len);
            assert!(bytes == expected.bytes, "seed {seed}: {cqe:?}");
        }
    }
    let events = s.events().len() as u64;
    let reached = limit > 0 && needed > 0;
    assert!(
        events <= u64::from(reached),
        "seed {seed}: the limit is armed once"
    );
    (30, s.pair.now)
}

#[test]
fn random_programs_on_a_shared_queue_agree_with_the_model() {
    for seed in 0..400 {
        random_program(seed);
    }
}

/// PSNs of different QPs have nothing to do with each other.
#[test]
fn each_qp_keeps_its_own_sequence() {
    let mut s = Shared::new(&Settings::default(), 1, 3, attr(16, 0));
    (0..3).for_each(|id| s.post(id, 64));
    let psns = Rc::new(RefCell::new(Vec::new()));
    let seen = psns.clone();
    s.pair.filter = Some(Box::new(move |from, bytes| {
        if from == SENDER {
            let packet = Packet::parse(bytes).expect("parses");
            seen.borrow_mut().push(packet.bth().psn);
        }
        Verdict::Pass
    }));
    (0..3).for_each(|qp| s.send(qp, &inline(b"x")));
    s.pair.run();
    let firsts = [0x1000, 0x2000, 0x3000].map(Psn::new);
    assert_eq!(*psns.borrow(), firsts);
    assert_eq!(s.received().len(), 3);
}
