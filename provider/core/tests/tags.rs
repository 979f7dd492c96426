//! Tag matching on the virtual wire: rule by rule.

use crate::support::{IOVA, PD, Pair, RECV_CQ, Rng, SEND_CQ, Settings, Verdict};
use urxe_core::cq::{CqId, Cqe, TmFlags, WcOpcode};
use urxe_core::error::{Fault, WcStatus};
use urxe_core::event::AsyncEvent;
use urxe_core::mr::PdId;
use urxe_core::qp::attr::{AttrMask, QpAttr};
use urxe_core::qp::state::{QpState, QpType};
use urxe_core::srq::{SrqAttr, SrqError, SrqId, SrqInit, SrqXrc};
use urxe_core::table::QpIndex;
use urxe_core::tm::{SrqTm, TagHandle, TagOp, TagRecv, TagWr, TmCap};
use urxe_core::work::{PostError, RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_core::xrc::XrcdId;
use urxe_core::{CreateQpError, QpInit, Time};
use urxe_wire::{Packet, Qpn, Rkey, Rvh, Tmh, TmhOp};

const SENDER: usize = 0;
const RECEIVER: usize = 1;
/// Everything of the queue completes here.
const TM_CQ: CqId = CqId(9);
const ALL: u64 = u64::MAX;
/// Bytes between the places of receives.
const PLACE: u64 = 4096;
const MATCHED: TmFlags = TmFlags(TmFlags::MATCH.0 | TmFlags::DATA_VALID.0);

struct Tags {
    pair: Pair,
    srq: SrqId,
    /// QPs of both sides.
    qps: Vec<[(QpIndex, Qpn); 2]>,
    settings: Settings,
}

fn init(cap: TmCap) -> SrqInit {
    SrqInit {
        pd: PD,
        attr: SrqAttr::default(),
        xrc: None,
        tm: Some(SrqTm { cq: TM_CQ, cap }),
    }
}

fn message(op: u8, tag: u64, bytes: &[u8]) -> Vec<u8> {
    let tmh = Tmh {
        opcode: op,
        app_ctx: tag as u32 + 1000,
        tag,
        ..Tmh::default()
    };
    [&tmh.emit()[..], bytes].concat()
}

fn eager(tag: u64, bytes: &[u8]) -> Vec<u8> {
    message(TmhOp::Eager as u8, tag, bytes)
}

fn rendezvous(tag: u64, va: u64, rkey: Rkey, len: u32) -> Vec<u8> {
    message(TmhOp::Rndv as u8, tag, &Rvh { va, rkey, len }.emit())
}

impl Tags {
    fn new(qps: usize) -> Tags {
        Tags::with(&Settings::default(), qps, TmCap::default())
    }

    fn with(settings: &Settings, qps: usize, cap: TmCap) -> Tags {
        let mut pair = Pair::new(settings, 1);
        let srq = pair.nodes[RECEIVER].shard.create_srq(&init(cap));
        let mut tags = Tags {
            pair,
            srq: srq.expect("fits").0,
            qps: Vec::new(),
            settings: *settings,
        };
        (0..qps).for_each(|n| tags.add_qp(n as u32));
        (0..8).for_each(|n| tags.post(n));
        tags
    }

    fn qp_init(&self, side: usize) -> QpInit {
        QpInit {
            pd: PD,
            qp_type: QpType::Rc,
            send_cq: SEND_CQ,
            recv_cq: RECV_CQ,
            cap: match side {
                RECEIVER => self.settings.cap,
                _ => Settings::default().cap,
            },
            sq_sig_all: false,
            srq: (side == RECEIVER).then_some(self.srq),
            xrcd: None,
            block_self_mcast_lb: false,
        }
    }

    fn add_qp(&mut self, n: u32) {
        let made = [SENDER, RECEIVER].map(|side| {
            let init = self.qp_init(side);
            self.pair.nodes[side].shard.create_qp(&init).expect("fits")
        });
        let addrs = [self.pair.nodes[0].addr, self.pair.nodes[1].addr];
        let settings = Settings {
            psn: [0x1000 * (n + 1), 0x2000 * (n + 1)],
            ..self.settings
        };
        for side in [SENDER, RECEIVER] {
            self.pair.nodes[side].qp = made[side].0;
            self.pair.nodes[side].connect(&settings, side, addrs[1 - side], made[1 - side].1);
        }
        self.qps.push(made);
    }

    /// An ordinary receive of 1 KiB.
    fn post(&mut self, n: u64) {
        let sges = [self.sge(RECEIVER, n * PLACE, 1024)];
        let wr = RecvWr {
            wr_id: 100 + n,
            sges: &sges,
        };
        let shard = &mut self.pair.nodes[RECEIVER].shard;
        shard.post_srq_recv(self.srq, &wr).expect("room");
    }

    fn sge(&self, side: usize, at: u64, length: u32) -> Sge {
        Sge {
            addr: IOVA + at,
            length,
            lkey: self.pair.nodes[side].keys.lkey,
        }
    }

    fn op(
        &mut self,
        op: TagOp<'_>,
        unexpected_cnt: Option<u32>,
    ) -> Result<Option<TagHandle>, PostError> {
        let (srq, wr) = (
            self.srq,
            TagWr {
                wr_id: 7,
                op,
                is_signaled: true,
                unexpected_cnt,
            },
        );
        self.pair.nodes[RECEIVER]
            .with_env(Time::ZERO, |shard, env| shard.post_srq_op(srq, &wr, env))
    }

    /// A tag with memory at a place that follows from its id, 20 to 60; its completion is taken.
    fn add(&mut self, id: u64, tag: u64, mask: u64, len: u32) -> TagHandle {
        let sges = [self.sge(RECEIVER, id * PLACE, len)];
        let recv = TagRecv {
            recv_wr_id: id,
            tag,
            mask,
            sges: &sges,
        };
        let handle = self.op(TagOp::Add(recv), None).expect("room");
        let done = self.done();
        assert_eq!((done.len(), done[0].opcode), (1, WcOpcode::TmAdd));
        handle.expect("a tag was added")
    }

    fn send(&mut self, qp: usize, bytes: &[u8]) {
        self.pair.nodes[SENDER].memory.write(0, bytes);
        let sges = [self.sge(SENDER, 0, bytes.len() as u32)];
        self.pair.nodes[SENDER].qp = self.qps[qp][SENDER].0;
        let wr = SendWr::new(1, WrOpcode::Send, WrData::Sges(&sges));
        self.pair.post_send(SENDER, &wr);
    }

    /// Sends, and returns what completes at the receiver.
    fn exchange(&mut self, qp: usize, bytes: &[u8]) -> Vec<Cqe> {
        self.send(qp, bytes);
        self.pair.run();
        self.done()
    }

    fn done(&mut self) -> Vec<Cqe> {
        self.pair.nodes[RECEIVER].take(TM_CQ)
    }

    fn bytes(&self, id: u64, len: usize) -> Vec<u8> {
        self.pair.nodes[RECEIVER].memory.read(id * PLACE, len)
    }

    fn fail_receiver(&mut self, qp: usize) {
        self.pair.nodes[RECEIVER].qp = self.qps[qp][RECEIVER].0;
        let err = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::default()
        };
        self.pair.nodes[RECEIVER].modify(&err, AttrMask::STATE);
    }
}

/// wr_id, opcode, flags.
fn told(cqe: &Cqe) -> (u64, WcOpcode, TmFlags) {
    assert_eq!(cqe.status, WcStatus::Success);
    (cqe.wr_id, cqe.opcode, cqe.tm.flags)
}

#[test]
fn an_expected_message_goes_to_its_tag_without_the_header() {
    let mut t = Tags::new(2);
    t.add(20, 5, ALL, 64);
    t.add(21, 6, ALL, 64);
    let done = t.exchange(1, &eager(6, b"sixth"));
    assert_eq!(done.len(), 1);
    assert_eq!(told(&done[0]), (21, WcOpcode::TmRecv, MATCHED));
    assert_eq!((done[0].tm.tag, done[0].tm.app_ctx), (6, 1006));
    assert_eq!((done[0].byte_len, done[0].qpn), (5, t.qps[1][RECEIVER].1));
    assert_eq!(t.bytes(21, 6), b"sixth\0");
    let shard = &t.pair.nodes[RECEIVER].shard;
    assert_eq!((shard.srq_tags(t.srq), shard.srq_len(t.srq)), (1, 8));
    let empty = t.exchange(0, &eager(5, b""));
    assert_eq!((told(&empty[0]).0, empty[0].byte_len), (20, 0));
}

#[test]
fn a_long_expected_message_is_matched_at_once_and_complete_later() {
    let mut t = Tags::new(1);
    t.add(20, 5, ALL, 2000);
    let bytes = Rng(3).bytes(2000);
    let done = t.exchange(0, &eager(5, &bytes));
    assert_eq!(done.len(), 2);
    assert_eq!(told(&done[0]), (20, WcOpcode::TmRecv, TmFlags::MATCH));
    assert_eq!((done[0].tm.tag, done[0].byte_len), (5, 0));
    assert_eq!(told(&done[1]), (20, WcOpcode::TmRecv, TmFlags::DATA_VALID));
    assert_eq!((done[1].tm.tag, done[1].byte_len), (0, 2000));
    assert_eq!(t.bytes(20, 2000), bytes);
}

#[test]
fn what_is_not_expected_goes_whole_to_ordinary_receives() {
    let mut t = Tags::new(1);
    t.add(20, 5, ALL, 64);
    let unexpected = eager(4, b"who?");
    let cases = [
        (unexpected, WcOpcode::TmRecv),
        (message(0, 5, b"no tag"), WcOpcode::TmNoTag),
        (message(2, 5, b"fin"), WcOpcode::TmNoTag),
        (message(77, 5, b"kind 77"), WcOpcode::TmNoTag),
        (eager(5, b"")[..15].to_vec(), WcOpcode::TmNoTag),
        (Vec::new(), WcOpcode::TmNoTag),
    ];
    for (n, (bytes, opcode)) in (0..).zip(cases) {
        let done = t.exchange(0, &bytes);
        assert_eq!(done.len(), 1);
        assert_eq!(told(&done[0]), (100 + n, opcode, TmFlags::NONE));
        assert_eq!((done[0].tm.tag, done[0].byte_len), (0, bytes.len() as u32));
        assert_eq!(t.bytes(n, bytes.len()), bytes);
    }
    // Only the first was counted.
    t.op(TagOp::Sync, Some(1)).expect("posts");
    assert_eq!(told(&t.done()[0]), (7, WcOpcode::TmSync, TmFlags::NONE));
}

/// Of the tags of one mask and of several the oldest is taken.
#[test]
fn tags_are_taken_in_the_order_in_which_they_were_added() {
    let mut t = Tags::new(1);
    t.add(20, 0x10, 0xf0, 64);
    t.add(21, 0x11, ALL, 64);
    t.add(22, 0, 0, 64);
    t.add(23, 0x11, ALL, 64);
    let ids: Vec<u64> = (0..4)
        .map(|_| told(&t.exchange(0, &eager(0x11, b"x"))[0]).0)
        .collect();
    assert_eq!(ids, [20, 21, 22, 23]);
    assert_eq!(told(&t.exchange(0, &eager(0x11, b"x"))[0]).0, 100);
}

#[test]
fn a_tag_that_is_removed_takes_nothing() {
    let mut t = Tags::new(1);
    let (gone, taken) = (t.add(20, 5, ALL, 64), t.add(21, 6, ALL, 64));
    t.op(TagOp::Del(gone), None).expect("posts");
    assert_eq!(told(&t.done()[0]), (7, WcOpcode::TmDel, TmFlags::NONE));
    assert_eq!(told(&t.exchange(0, &eager(5, b"x"))[0]).0, 100);
    assert_eq!(told(&t.exchange(0, &eager(6, b"x"))[0]).0, 21);
    // Both are gone now, and that is told even unsignaled.
    for handle in [gone, taken] {
        let wr = TagWr {
            wr_id: 8,
            op: TagOp::Del(handle),
            is_signaled: false,
            unexpected_cnt: None,
        };
        let srq = t.srq;
        let posted =
            t.pair.nodes[RECEIVER].with_env(Time::ZERO, |s, env| s.post_srq_op(srq, &wr, env));
        assert_eq!(posted, Ok(None));
        let done = t.done();
        assert_eq!((done.len(), done[0].wr_id), (1, 8));
        assert_eq!(
            (done[0].status, done[0].fault),
            (WcStatus::TmErr, Fault::TagGone)
        );
    }
}

/// The rule that keeps messages of one sender in order: see the module.
#[test]
fn tags_added_while_an_unexpected_message_is_not_handled_wait() {
    let mut t = Tags::new(1);
    t.add(20, 1, ALL, 64);
    t.exchange(0, &eager(5, b"first"));
    let sges = [t.sge(RECEIVER, 30 * PLACE, 64)];
    let recv = TagRecv {
        recv_wr_id: 30,
        tag: 5,
        mask: ALL,
        sges: &sges,
    };
    // The program does not know of it yet.
    t.op(TagOp::Add(recv), Some(0)).expect("posts");
    assert_eq!(told(&t.done()[0]), (7, WcOpcode::TmAdd, TmFlags::SYNC_REQ));
    let second = t.exchange(0, &eager(5, b"second"));
    assert_eq!(told(&second[0]), (101, WcOpcode::TmRecv, TmFlags::SYNC_REQ));
    assert_eq!(
        told(&t.exchange(0, &eager(1, b"x"))[0]).0,
        20,
        "an older tag"
    );
    t.op(TagOp::Sync, Some(1)).expect("posts");
    assert_eq!(told(&t.done()[0]).2, TmFlags::SYNC_REQ);
    t.op(TagOp::Sync, Some(2)).expect("posts");
    assert_eq!(told(&t.done()[0]).2, TmFlags::NONE);
    assert_eq!(told(&t.exchange(0, &eager(5, b"third"))[0]).0, 30);
}

/// It counts from its first packet on, as later messages may overtake the rest of it.
#[test]
fn an_unexpected_message_counts_from_its_first_packet_until_it_fails() {
    let mut t = Tags::new(2);
    t.pair.filter = Some(Box::new(|from, bytes| {
        let packet = Packet::parse(bytes).expect("parses");
        match from == SENDER && packet.info().name.contains("Last") {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }));
    t.send(0, &eager(5, &[1; 600]));
    t.pair.run_until(Time(100_000));
    assert_eq!(t.pair.nodes[RECEIVER].shard.srq_len(t.srq), 7);
    t.op(TagOp::Sync, None).expect("posts");
    assert_eq!(told(&t.done()[0]).2, TmFlags::SYNC_REQ);
    t.fail_receiver(0);
    let flushed = t.done();
    assert_eq!((flushed.len(), flushed[0].wr_id), (1, 100));
    assert_eq!(flushed[0].status, WcStatus::WrFlushErr);
    t.op(TagOp::Sync, None).expect("posts");
    assert_eq!(
        told(&t.done()[0]).2,
        TmFlags::NONE,
        "the program will never see it"
    );
    t.pair.filter = None;
    t.add(20, 5, ALL, 64);
    assert_eq!(told(&t.exchange(1, &eager(5, b"lives"))[0]).0, 20);
}

#[test]
fn a_qp_that_fails_or_goes_takes_its_matched_tag_along() {
    for goes in [false, true] {
        let mut t = Tags::new(1);
        t.add(20, 5, ALL, 2000);
        t.pair.filter = Some(Box::new(|from, bytes| {
            let packet = Packet::parse(bytes).expect("parses");
            match from == SENDER && packet.info().name.contains("Last") {
                true => Verdict::Drop,
                false => Verdict::Pass,
            }
        }));
        t.send(0, &eager(5, &[1; 600]));
        t.pair.run_until(Time(100_000));
        assert_eq!(told(&t.done()[0]), (20, WcOpcode::TmRecv, TmFlags::MATCH));
        assert_eq!(t.pair.nodes[RECEIVER].shard.srq_tags(t.srq), 0);
        if goes {
            let shard = &mut t.pair.nodes[RECEIVER].shard;
            assert!(shard.destroy_qp(t.qps[0][RECEIVER].0));
            assert_eq!(shard.destroy_srq(t.srq), Ok(()));
            assert!(t.done().is_empty(), "a QP that goes completes nothing");
        } else {
            t.fail_receiver(0);
            let done = t.done();
            assert_eq!((done.len(), done[0].wr_id), (1, 20));
            assert_eq!(done[0].status, WcStatus::WrFlushErr);
        }
    }
}

#[test]
fn a_message_that_does_not_fit_its_tag_fails_the_qp() {
    let mut t = Tags::new(1);
    t.add(20, 5, ALL, 8);
    let done = t.exchange(0, &eager(5, b"nine byte"));
    assert_eq!((done.len(), done[0].wr_id), (1, 20));
    assert_eq!(done[0].fault, Fault::RecvTooShort);
    let sent = t.pair.nodes[SENDER].take(SEND_CQ);
    assert_eq!(sent[0].status, WcStatus::RemInvReqErr);
}

#[test]
fn without_an_ordinary_receive_the_peer_tries_again_and_may_be_expected_then() {
    let mut t = Tags::new(1);
    (0..8).for_each(|_| t.send(0, &message(0, 0, b"")));
    t.pair.run();
    assert_eq!(t.done().len(), 8);
    t.send(0, &eager(5, b"patience"));
    t.pair.run_until(Time(5_000_000));
    assert!(t.done().is_empty());
    assert!(t.pair.nodes[RECEIVER].shard.stats().send_rnr_err > 0);
    t.add(20, 5, ALL, 64);
    t.pair.run();
    let done = t.done();
    assert_eq!(done.len(), 1);
    assert_eq!(
        told(&done[0]),
        (20, WcOpcode::TmRecv, MATCHED),
        "and was not counted"
    );
}

#[test]
fn a_request_for_a_rendezvous_that_no_tag_matches_is_the_programs() {
    let mut t = Tags::new(1);
    let request = rendezvous(5, IOVA, Rkey(1), 10);
    let done = t.exchange(0, &request);
    assert_eq!(told(&done[0]), (100, WcOpcode::TmRecv, TmFlags::NONE));
    assert_eq!(t.bytes(0, 32), request);
}

impl Tags {
    /// A receive of the sender's QP, for the word that a message was fetched.
    fn post_for_fin(&mut self, qp: usize, n: u64) {
        let sges = [self.sge(SENDER, (60 + n) * PLACE, 64)];
        let wr = RecvWr {
            wr_id: 200 + n,
            sges: &sges,
        };
        self.pair.nodes[SENDER].qp = self.qps[qp][SENDER].0;
        self.pair.post_recv(SENDER, &wr);
    }

    /// A request for `len` bytes at `at` of the sender.
    fn request(&self, tag: u64, at: u64, len: u32) -> Vec<u8> {
        let rkey = self.pair.nodes[SENDER].keys.rkey;
        rendezvous(tag, IOVA + at, rkey, len)
    }
}

/// The tag's message is READ into its memory, and its sender is told with the headers of the request.
#[test]
fn a_rendezvous_fetches_its_message_and_says_so() {
    // A receiver that never posts a send has no places for any.
    let mut settings = Settings::default();
    settings.cap.max_send_wr = 0;
    for len in [0, 1, 256, 5000] {
        let mut t = Tags::new(1);
        t.settings = settings;
        t.add_qp(7);
        let bytes = Rng(len.into()).bytes(len as usize);
        t.pair.nodes[SENDER].memory.write(90 * PLACE, &bytes);
        t.add(20, 5, ALL, len + 10);
        for (qp, expected) in [(0, 20), (1, 21)] {
            if qp == 1 {
                t.add(21, 5, ALL, len);
            }
            t.post_for_fin(qp, 0);
            let request = t.request(5, 90 * PLACE, len);
            let done = t.exchange(qp, &request);
            assert_eq!(done.len(), 2, "{done:?}");
            assert_eq!(told(&done[0]), (expected, WcOpcode::TmRecv, TmFlags::MATCH));
            assert_eq!((done[0].tm.tag, done[0].tm.app_ctx), (5, 1005));
            assert_eq!(
                told(&done[1]),
                (expected, WcOpcode::TmRecv, TmFlags::DATA_VALID)
            );
            assert_eq!((done[1].tm.tag, done[1].byte_len), (0, len));
            assert_eq!(t.bytes(expected, len as usize), bytes);
            let fin = t.pair.nodes[SENDER].take(RECV_CQ);
            assert_eq!((fin.len(), fin[0].wr_id, fin[0].byte_len), (1, 200, 32));
            let mut headers = request;
            headers[0] = TmhOp::Fin as u8;
            assert_eq!(t.pair.nodes[SENDER].memory.read(60 * PLACE, 32), headers);
            assert!(t.pair.nodes[RECEIVER].take(SEND_CQ).is_empty());
        }
    }
}

/// As many as there are places are fetched at once, between the program's own requests; the others are left to it.
#[test]
fn rendezvous_beyond_the_places_are_left_to_the_program() {
    let mut t = Tags::new(1);
    let count = u64::from(TmCap::RNDV_MAX) + 8;
    for n in 0..count {
        let sges = [t.sge(RECEIVER, 64 * PLACE + n * 64, 64)];
        let recv = TagRecv {
            recv_wr_id: n,
            tag: n,
            mask: ALL,
            sges: &sges,
        };
        t.op(TagOp::Add(recv), None).expect("room");
        t.post_for_fin(0, n % 2);
    }
    t.done();
    // READs wait for an answer until all requests are there.
    t.pair.filter = Some(Box::new(|from, bytes| {
        let packet = Packet::parse(bytes).expect("parses");
        let reads = from == RECEIVER && packet.info().name.contains("READ");
        if reads { Verdict::Drop } else { Verdict::Pass }
    }));
    for n in 0..count {
        let request = t.request(n, 90 * PLACE, 40);
        t.pair.nodes[SENDER].memory.write(n * 64, &request);
        let sges = [t.sge(SENDER, n * 64, 32)];
        t.pair.nodes[SENDER].qp = t.qps[0][SENDER].0;
        let wr = SendWr::new(1, WrOpcode::Send, WrData::Sges(&sges));
        t.pair.post_send(SENDER, &wr);
    }
    t.pair.run_until(Time(300_000));
    let done = t.done();
    let left: Vec<_> = done
        .iter()
        .filter(|cqe| cqe.status == WcStatus::TmRndvIncomplete)
        .collect();
    assert_eq!((done.len() as u64, left.len()), (count, 8));
    assert!(left.iter().all(|cqe| cqe.wr_id >= 32 && cqe.byte_len == 32));
    let other = SendWr::new(77, WrOpcode::Send, WrData::Inline(b"own"));
    t.pair.nodes[RECEIVER].qp = t.qps[0][RECEIVER].0;
    t.pair.post_send(RECEIVER, &other);
    t.pair.filter = None;
    t.pair.run();
    let done = t.done();
    assert_eq!(done.len(), 32);
    for (n, cqe) in done.iter().enumerate() {
        assert_eq!(told(cqe), (n as u64, WcOpcode::TmRecv, TmFlags::DATA_VALID));
    }
    assert_eq!(t.pair.nodes[SENDER].take(RECV_CQ).len(), 33);
    let own = t.pair.nodes[RECEIVER].take(SEND_CQ);
    assert_eq!((own.len(), own[0].wr_id), (1, 77));
    // All places are free again.
    t.post_for_fin(0, 0);
    t.add(20, 5, ALL, 64);
    let request = t.request(5, 90 * PLACE, 40);
    assert_eq!(t.exchange(0, &request).len(), 2);
}

#[test]
fn a_rendezvous_that_does_not_fit_leaves_its_request_and_the_qp_lives() {
    for (room, got) in [(63, 32), (10, 10), (0, 0)] {
        let mut t = Tags::new(1);
        t.add(20, 5, ALL, room);
        let request = t.request(5, 90 * PLACE, 64);
        let done = t.exchange(0, &request);
        assert_eq!(done.len(), 1);
        assert_eq!(
            (done[0].wr_id, done[0].status),
            (20, WcStatus::TmRndvIncomplete)
        );
        assert_eq!((done[0].byte_len, done[0].tm.tag), (got, 5));
        assert_eq!(t.bytes(20, got as usize), request[..got as usize]);
        assert_eq!(told(&t.exchange(0, &eager(1, b"x"))[0]).0, 100);
    }
}

/// Whatever ends a rendezvous early, its tag completes once more, and only once.
#[test]
fn a_rendezvous_that_fails_completes_its_tag() {
    // The key is wrong: the READ is refused.
    let mut t = Tags::new(1);
    t.add(20, 5, ALL, 64);
    let done = t.exchange(0, &rendezvous(5, IOVA, Rkey(0x777), 10));
    assert_eq!(told(&done[0]), (20, WcOpcode::TmRecv, TmFlags::MATCH));
    assert_eq!((done.len(), done[1].wr_id), (2, 20));
    assert_eq!(done[1].fault, Fault::NakRemoteAccess);

    // The QP fails while the READ is under way.
    let mut t = Tags::new(1);
    t.add(20, 5, ALL, 64);
    t.pair.filter = Some(Box::new(|from, _| match from == RECEIVER {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    let request = t.request(5, 90 * PLACE, 64);
    t.send(0, &request);
    t.pair.run_until(Time(100_000));
    assert_eq!(told(&t.done()[0]).2, TmFlags::MATCH);
    t.fail_receiver(0);
    let done = t.done();
    assert_eq!((done.len(), done[0].wr_id), (1, 20));
    assert_eq!(done[0].status, WcStatus::WrFlushErr);

    // The sender has no receive for the word that its message was fetched.
    let settings = Settings {
        rnr_retry: 1,
        ..Settings::default()
    };
    let mut t = Tags::with(&settings, 1, TmCap::default());
    t.add(20, 5, ALL, 64);
    let request = t.request(5, 90 * PLACE, 64);
    let done = t.exchange(0, &request);
    assert_eq!(told(&done[1]), (20, WcOpcode::TmRecv, TmFlags::DATA_VALID));
    let index = t.qps[0][RECEIVER].0;
    let shard = &mut t.pair.nodes[RECEIVER].shard;
    let events: Vec<_> = std::iter::from_fn(|| shard.poll_event()).collect();
    assert!(events.contains(&AsyncEvent::QpFatal(index)), "{events:?}");
}

/// Losses of every packet in turn change nothing.
#[test]
fn a_rendezvous_survives_losses() {
    for lost in 0..12 {
        let mut t = Tags::new(1);
        let bytes = Rng(lost).bytes(1000);
        t.pair.nodes[SENDER].memory.write(90 * PLACE, &bytes);
        t.add(20, 5, ALL, 1000);
        t.post_for_fin(0, 0);
        let mut seen = 0;
        t.pair.filter = Some(Box::new(move |_, _| {
            seen += 1;
            if seen == lost + 1 {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        }));
        let request = t.request(5, 90 * PLACE, 1000);
        let done = t.exchange(0, &request);
        let flags: Vec<_> = done.iter().map(|cqe| told(cqe).2).collect();
        assert_eq!(flags, [TmFlags::MATCH, TmFlags::DATA_VALID], "lost {lost}");
        assert_eq!(t.bytes(20, 1000), bytes);
        assert_eq!(t.pair.nodes[SENDER].take(RECV_CQ).len(), 1);
    }
}

#[test]
fn other_requests_than_sends_are_not_looked_at() {
    let mut t = Tags::new(1);
    t.add(20, 5, ALL, 64);
    let bytes = eager(5, b"by WRITE");
    t.pair.nodes[SENDER].memory.write(0, &bytes);
    let sges = [t.sge(SENDER, 0, bytes.len() as u32)];
    let mut wr = SendWr::new(1, WrOpcode::RdmaWriteWithImm, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 50 * PLACE;
    wr.rkey = t.pair.nodes[RECEIVER].keys.rkey;
    t.pair.nodes[SENDER].qp = t.qps[0][SENDER].0;
    t.pair.post_send(SENDER, &wr);
    t.pair.run();
    let done = t.done();
    assert_eq!(
        told(&done[0]),
        (100, WcOpcode::RecvRdmaWithImm, TmFlags::NONE)
    );
    assert_eq!(t.bytes(50, bytes.len()), bytes);
}

#[test]
fn limits_and_wrong_uses_are_refused() {
    let mut t = Tags::with(
        &Settings::default(),
        0,
        TmCap {
            max_num_tags: 1,
            max_ops: 1,
        },
    );
    let recv = |sges| TagRecv {
        recv_wr_id: 1,
        tag: 1,
        mask: ALL,
        sges,
    };
    let many = [t.sge(RECEIVER, 0, 1); 5];
    let refused = t.op(TagOp::Add(recv(&many)), Some(1));
    assert_eq!(refused, Err(PostError::TooManySges { given: 5, max: 4 }));
    let huge = [t.sge(RECEIVER, 0, u32::MAX)];
    let refused = t.op(TagOp::Add(recv(&huge)), Some(1));
    assert_eq!(refused, Err(PostError::MessageTooLong(u32::MAX.into())));
    let refused = t.op(TagOp::Del(TagHandle(0)), Some(1));
    assert_eq!(refused, Err(PostError::NoTag(0)));
    // What is refused reports nothing either.
    t.add(20, 1, ALL, 8);
    assert_eq!(
        t.op(TagOp::Add(recv(&[])), None),
        Err(PostError::TagListFull(1))
    );
    assert!(t.done().is_empty());

    let plain = SrqInit {
        tm: None,
        ..init(TmCap::default())
    };
    let shard = &mut t.pair.nodes[RECEIVER].shard;
    t.srq = shard.create_srq(&plain).expect("fits").0;
    assert_eq!(t.op(TagOp::Sync, None), Err(PostError::NoTags));
    t.srq = SrqId(99);
    assert_eq!(t.op(TagOp::Sync, None), Err(PostError::NoSrq));
}

#[test]
fn queues_and_qps_that_cannot_be_are_refused() {
    let mut t = Tags::new(0);
    let shard = &mut t.pair.nodes[RECEIVER].shard;
    for (max_num_tags, max_ops) in [(0, 1), (1, 0), (16385, 1), (1, 16385)] {
        let cap = TmCap {
            max_num_tags,
            max_ops,
        };
        let made = shard.create_srq(&init(cap));
        assert!(matches!(made, Err(SrqError::Value { .. })), "{cap:?}");
    }
    let both = SrqInit {
        xrc: Some(SrqXrc {
            xrcd: XrcdId(1),
            cq: TM_CQ,
        }),
        ..init(TmCap::default())
    };
    assert_eq!(shard.create_srq(&both), Err(SrqError::TwoTypes));
    for (qp_type, pd) in [(QpType::Uc, PD), (QpType::Ud, PD), (QpType::Rc, PdId(77))] {
        let init = QpInit {
            qp_type,
            pd,
            ..t.qp_init(RECEIVER)
        };
        let made = t.pair.nodes[RECEIVER].shard.create_qp(&init);
        assert!(matches!(made, Err(CreateQpError::Srq(_))), "{made:?}");
    }
}
