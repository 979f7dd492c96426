//! Extended reliable connection on the virtual wire: rule by rule, and random programs
//! with faults against a simple model.

use std::cell::RefCell;
use std::rc::Rc;

use crate::support::*;
use urxe_core::cq::{CqId, Cqe, WcOpcode};
use urxe_core::error::{DropReason, WcStatus};
use urxe_core::event::AsyncEvent;
use urxe_core::flush::{Flush, Placement, Selectivity};
use urxe_core::mr::{Access, MrInit, MrKeys, PdId};
use urxe_core::qp::attr::{AddressVector, AttrMask, QpAttr};
use urxe_core::qp::state::{ModifyError, QpState, QpType, transition};
use urxe_core::srq::{SrqAttr, SrqId, SrqInit, SrqXrc};
use urxe_core::table::QpIndex;
use urxe_core::work::{PostError, RecvWr, SendWr, Sge, WrData, WrOpcode};
use urxe_core::xrc::XrcdId;
use urxe_core::{CreateQpError, QpInit, Time};
use urxe_wire::{
    Bth, Opcode, Packet, PacketWriter, PathHeader, Psn, Qpn, Rkey, Service, SyndromeKind, XrcEth,
    packet_len,
};

const INI: usize = 0;
const TGT: usize = 1;
const DOMAIN: XrcdId = XrcdId(5);
/// The target has none of its own.
const NO_PD: PdId = PdId(0);

/// One of the target's queues, with memory in its own domain.
#[derive(Clone, Copy)]
struct Queue {
    srq: SrqId,
    srqn: Qpn,
    cq: CqId,
    keys: MrKeys,
}

/// An initiator and a target, and shared receive queues at the target.
struct Xrc {
    pair: Pair,
    qps: [(QpIndex, Qpn); 2],
    queues: Vec<Queue>,
}

fn init(qp_type: QpType, settings: &Settings) -> QpInit {
    QpInit {
        pd: if qp_type == QpType::XrcRecv {
            NO_PD
        } else {
            PD
        },
        qp_type,
        send_cq: SEND_CQ,
        recv_cq: RECV_CQ,
        cap: settings.cap,
        sq_sig_all: false,
        srq: None,
        xrcd: (qp_type == QpType::XrcRecv).then_some(DOMAIN),
        block_self_mcast_lb: false,
    }
}

impl Xrc {
    fn new(settings: &Settings, seed: u64, queues: u32) -> Xrc {
        let mut pair = Pair::new(settings, seed);
        let qps = [(INI, QpType::XrcSend), (TGT, QpType::XrcRecv)].map(|(side, qp_type)| {
            let made = pair.nodes[side].shard.create_qp(&init(qp_type, settings));
            let made = made.expect("creates");
            pair.nodes[side].qp = made.0;
            made
        });
        let mut xrc = Xrc {
            pair,
            qps,
            queues: Vec::new(),
        };
        for side in [INI, TGT] {
            xrc.connect(side, settings);
        }
        for n in 0..queues {
            let queue = xrc.queue(DOMAIN, n);
            xrc.queues.push(queue);
        }
        xrc
    }

    /// RESET to RTS, with exactly the attributes that each transition needs.
    fn connect(&mut self, side: usize, s: &Settings) {
        let peer = 1 - side;
        let attr = QpAttr {
            qp_access_flags: s.access,
            path_mtu: s.mtu,
            dest_qp_num: self.qps[peer].1,
            rq_psn: Psn::new(s.psn[peer]),
            sq_psn: Psn::new(s.psn[side]),
            max_rd_atomic: s.rd_atomic,
            max_dest_rd_atomic: s.rd_atomic,
            min_rnr_timer: s.min_rnr_timer,
            timeout: s.timeout,
            retry_cnt: s.retry_cnt,
            rnr_retry: s.rnr_retry,
            ah_attr: Some(AddressVector {
                local: self.pair.nodes[side].addr,
                remote: self.pair.nodes[peer].addr,
                traffic_class: 0,
                hop_limit: 64,
            }),
            ..QpAttr::default()
        };
        let qp_type = [QpType::XrcSend, QpType::XrcRecv][side];
        let mut from = QpState::Reset;
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let needed = transition(qp_type, from, to).expect("exists").required;
            let attr = QpAttr {
                qp_state: to,
                ..attr
            };
            self.pair.nodes[side].modify(&attr, needed | AttrMask::STATE);
            from = to;
        }
        self.pair.nodes[side].agree(s);
    }

    /// A shared receive queue of a domain, and all memory registered for it.
    fn queue(&mut self, xrcd: XrcdId, n: u32) -> Queue {
        let (pd, cq) = (PdId(100 + n), CqId(200 + n));
        let node = &mut self.pair.nodes[TGT];
        let made = node.shard.create_srq(&SrqInit {
            pd,
            attr: SrqAttr::default(),
            xrc: Some(SrqXrc { xrcd, cq }),
            tm: None,
        });
        let (srq, srqn) = made.expect("fits");
        let keys = node.mrs.register(MrInit {
            pd,
            access: Access(0xf),
            host_addr: 0,
            iova: IOVA,
            len: 1 << 20,
            remote_invalidate: false,
        });
        Queue {
            srq,
            srqn,
            cq,
            keys: keys.expect("registers"),
        }
    }

    fn post_recv(&mut self, n: usize, wr_id: u64, at: u64, length: u32) {
        let queue = self.queues[n];
        let sges = [Sge {
            addr: IOVA + at,
            length,
            lkey: queue.keys.lkey,
        }];
        let wr = RecvWr { wr_id, sges: &sges };
        let shard = &mut self.pair.nodes[TGT].shard;
        shard.post_srq_recv(queue.srq, &wr).expect("room");
    }

    /// A request to one of the queues.
    fn wr<'a>(&self, n: usize, wr_id: u64, opcode: WrOpcode, data: WrData<'a>) -> SendWr<'a> {
        let mut wr = SendWr::new(wr_id, opcode, data);
        wr.srqn = Some(self.queues[n].srqn);
        wr.rkey = self.queues[n].keys.rkey;
        wr.remote_addr = IOVA;
        wr
    }

    fn send(&mut self, n: usize, text: &[u8]) {
        let wr = self.wr(n, 1, WrOpcode::Send, WrData::Inline(text));
        self.pair.post_send(INI, &wr);
    }

    fn local(&self, at: u64, length: u32) -> [Sge; 1] {
        [Sge {
            addr: IOVA + at,
            length,
            lkey: self.pair.nodes[INI].keys.lkey,
        }]
    }

    fn received(&mut self, n: usize) -> Vec<Cqe> {
        let cq = self.queues[n].cq;
        self.pair.nodes[TGT].take(cq)
    }

    fn sent(&mut self) -> Vec<Cqe> {
        self.pair.nodes[INI].take(SEND_CQ)
    }

    /// A packet to one side that urxe itself would not send.
    fn inject(&mut self, to: usize, opcode: Opcode, psn: u32, srqn: Option<Qpn>, payload: &[u8]) {
        let bth = Bth::new(opcode, self.qps[to].1, Psn::new(psn));
        let info = opcode.info().expect("assigned");
        let mut bytes = vec![0; packet_len(info, payload.len())];
        let mut writer = PacketWriter::new(&mut bytes, &bth);
        match srqn {
            Some(srqn) => writer.xrceth(&XrcEth { reserved: 0, srqn }),
            None => writer.aeth(&urxe_wire::Aeth {
                syndrome: urxe_wire::Syndrome::ack(urxe_wire::CreditCode::UNLIMITED),
                msn: urxe_wire::Msn::new(1),
            }),
        }
        writer.payload_mut(payload.len()).copy_from_slice(payload);
        let (from, to_addr) = ([10, 0, 0, 2 - to as u8], [10, 0, 0, to as u8 + 1]);
        let path = PathHeader::V4 {
            src: from,
            dst: to_addr,
            sport: 4791,
            dport: 4791,
        };
        writer.finish(&urxe_wire::IcrcSeed::new(&path), 0);
        self.pair.deliver(to, 0, &bytes);
    }
}

#[test]
fn one_connection_serves_all_queues_of_the_domain() {
    let mut x = Xrc::new(&Settings::default(), 1, 3);
    for n in 0..3 {
        x.post_recv(n, 70 + n as u64, 0x1000 * n as u64, 64);
    }
    for (n, text) in [(2, b"two"), (0, b"nil"), (1, b"one")] {
        x.send(n, text);
    }
    x.pair.run();
    assert_eq!(x.sent().len(), 3);
    for (n, text) in [(0, b"nil"), (1, b"one"), (2, b"two")] {
        let got = x.received(n);
        assert_eq!(got.len(), 1, "each queue has its own CQ");
        let cqe = got[0];
        assert_eq!((cqe.wr_id, cqe.status), (70 + n as u64, WcStatus::Success));
        assert_eq!((cqe.qpn, cqe.src_qp), (x.qps[TGT].1, x.qps[INI].1));
        let bytes = x.pair.nodes[TGT].memory.read(0x1000 * n as u64, 3);
        assert_eq!(bytes, text);
    }
    assert!(x.pair.nodes[TGT].take(RECV_CQ).is_empty());
}

/// Requests have an XRCETH after the BTH and opcodes from 0xa0 on; responses have
/// neither credits nor an XRCETH.
#[test]
fn what_travels() {
    let mut x = Xrc::new(&Settings::default(), 1, 1);
    x.post_recv(0, 1, 0, 1000);
    let log = Rc::new(RefCell::new(Vec::new()));
    let sink = log.clone();
    let srqn = x.queues[0].srqn;
    x.pair.filter = Some(Box::new(move |from, bytes| {
        let packet = Packet::parse(bytes).expect("parses");
        assert_eq!(packet.info().service, Service::Xrc);
        assert_eq!(
            packet.xrceth().map(|eth| eth.srqn),
            (from == INI).then_some(srqn)
        );
        if let Some(aeth) = packet.aeth()
            && let SyndromeKind::Ack(code) = aeth.syndrome.decode()
        {
            assert_eq!(code.credits(), None);
        }
        sink.borrow_mut().push(packet.info().name);
        Verdict::Pass
    }));
    let sges = x.local(0, 600);
    let word = x.local(0, 8);
    x.pair
        .post_send(INI, &x.wr(0, 1, WrOpcode::Send, WrData::Sges(&sges)));
    x.pair
        .post_send(INI, &x.wr(0, 2, WrOpcode::RdmaRead, WrData::Sges(&sges)));
    let mut add = x.wr(0, 3, WrOpcode::AtomicFetchAndAdd, WrData::Sges(&word));
    add.compare_add = 5;
    x.pair.post_send(INI, &add);
    x.pair.run();
    let expected = [
        "XRC SEND First",
        "XRC SEND Middle",
        "XRC SEND Last",
        "XRC RDMA READ Request",
        "XRC FetchAdd",
        "XRC RDMA READ Response First",
        "XRC RDMA READ Response Middle",
        "XRC RDMA READ Response Last",
        "XRC ATOMIC Acknowledge",
    ];
    assert_eq!(*log.borrow(), expected);
    assert!(x.sent().iter().all(|c| c.status == WcStatus::Success));
    assert_eq!(x.pair.nodes[TGT].memory.read(0, 1), [5]);
}

/// Whatever its operation, a request must name a queue of the target's domain.
#[test]
fn a_queue_that_is_unknown_or_of_another_domain_is_an_invalid_request() {
    for opcode in [WrOpcode::Send, WrOpcode::RdmaWrite, WrOpcode::RdmaRead] {
        for kind in 0..3 {
            let mut x = Xrc::new(&Settings::default(), 1, 1);
            x.post_recv(0, 1, 0, 64);
            let wrong = match kind {
                0 => Qpn::new(x.queues[0].srqn.get() ^ 1),
                1 => x.queue(XrcdId(6), 9).srqn,
                _ => {
                    let basic = SrqInit {
                        pd: PD,
                        attr: SrqAttr::default(),
                        xrc: None,
                        tm: None,
                    };
                    let made = x.pair.nodes[TGT].shard.create_srq(&basic);
                    made.expect("fits").1
                }
            };
            let sges = x.local(0, 8);
            let mut wr = x.wr(0, 1, opcode, WrData::Sges(&sges));
            wr.srqn = Some(wrong);
            x.pair.post_send(INI, &wr);
            x.pair.run();
            assert_eq!(
                x.sent()[0].status,
                WcStatus::RemInvReqErr,
                "{opcode:?} {kind}"
            );
            assert_eq!(x.pair.nodes[TGT].state(), QpState::Err);
            assert!(x.received(0).is_empty());
            let event = x.pair.nodes[TGT].shard.poll_event();
            assert_eq!(event, Some(AsyncEvent::QpReqErr(x.qps[TGT].0)));
            let node = &x.pair.nodes[TGT];
            let left = node.shard.srq_len(x.queues[0].srq);
            assert_eq!(left, 1, "no receive was used");
            let detail = node.shard.last_error(node.qp).expect("it failed");
            let number = format!("{:#x}", wrong.get());
            assert!(detail.found.contains(&number), "{detail:?}");
        }
    }
}

#[test]
fn a_message_stays_with_one_queue() {
    let mut x = Xrc::new(&Settings::default(), 1, 2);
    (0..2).for_each(|n| x.post_recv(n, n as u64, 0, 1024));
    let psn = Settings::default().psn[INI];
    let (first, other) = (x.queues[0].srqn, x.queues[1].srqn);
    x.inject(TGT, Opcode::XRC_SEND_FIRST, psn, Some(first), &[1; 256]);
    assert_eq!(x.pair.nodes[TGT].state(), QpState::Rts);
    x.inject(TGT, Opcode::XRC_SEND_LAST, psn + 1, Some(other), &[1; 10]);
    assert_eq!(x.pair.nodes[TGT].state(), QpState::Err);
    let got = x.received(0);
    assert_eq!((got.len(), got[0].status), (1, WcStatus::RemInvReqErr));
    assert!(x.received(1).is_empty());
}

/// The memory of a request is checked in the domain of the queue that it names.
#[test]
fn rkeys_belong_to_the_protection_domain_of_the_queue() {
    for (key_of, status) in [(0, WcStatus::Success), (1, WcStatus::RemAccessErr)] {
        for opcode in [WrOpcode::RdmaWrite, WrOpcode::RdmaRead] {
            let mut x = Xrc::new(&Settings::default(), 1, 2);
            let sges = x.local(0, 8);
            let mut wr = x.wr(0, 1, opcode, WrData::Sges(&sges));
            wr.rkey = x.queues[key_of].keys.rkey;
            x.pair.post_send(INI, &wr);
            x.pair.run();
            assert_eq!(x.sent()[0].status, status, "{opcode:?}");
        }
    }
}

/// A READ is answered again from the domain that it was asked in, though the last
/// request was for another queue.
#[test]
fn a_repeated_read_keeps_its_protection_domain() {
    let mut x = Xrc::new(&Settings::default(), 1, 2);
    x.pair.nodes[TGT].memory.write(0, b"what was asked for");
    let sges = x.local(0x9000, 18);
    let read = x.wr(0, 1, WrOpcode::RdmaRead, WrData::Sges(&sges));
    x.pair.post_send(INI, &read);
    let mut write = x.wr(1, 2, WrOpcode::RdmaWrite, WrData::Inline(b"later"));
    write.remote_addr = IOVA + 0x2000;
    x.pair.post_send(INI, &write);
    let mut lost = false;
    x.pair.filter = Some(Box::new(move |from, bytes| {
        let is_answer = Packet::parse(bytes)
            .expect("parses")
            .info()
            .name
            .contains("READ");
        let lose = from == TGT && is_answer && !lost;
        lost |= lose;
        if lose { Verdict::Drop } else { Verdict::Pass }
    }));
    x.pair.run();
    let sent = x.sent();
    assert_eq!(sent.len(), 2);
    assert!(
        sent.iter().all(|c| c.status == WcStatus::Success),
        "{sent:?}"
    );
    assert_eq!(
        x.pair.nodes[INI].memory.read(0x9000, 18),
        b"what was asked for"
    );
    assert!(x.pair.nodes[TGT].shard.stats().duplicate_request > 0);
}

#[test]
fn an_initiator_answers_nothing_and_a_target_takes_no_answers() {
    let mut x = Xrc::new(&Settings::default(), 1, 1);
    let s = Settings::default();
    let srqn = x.queues[0].srqn;
    x.inject(INI, Opcode::XRC_SEND_ONLY, s.psn[TGT], Some(srqn), b"hi");
    x.inject(TGT, Opcode::XRC_ACKNOWLEDGE, s.psn[TGT], None, b"");
    // A reliable connection's packet is none of either's.
    x.inject(TGT, Opcode::RC_ACKNOWLEDGE, s.psn[TGT], None, b"");
    for (side, dropped) in [(INI, 1), (TGT, 2)] {
        let stats = x.pair.nodes[side].shard.stats();
        assert_eq!(stats.dropped_for(DropReason::Service), dropped);
        assert_eq!(x.pair.nodes[side].state(), QpState::Rts);
    }
    x.pair.run();
    assert_eq!(x.pair.sent, [0, 0]);
}

#[test]
fn posts_that_are_refused() {
    let mut x = Xrc::new(&Settings::default(), 1, 1);
    let [(ini, _), (tgt, _)] = x.qps;
    let good = x.wr(0, 1, WrOpcode::Send, WrData::Inline(b"x"));
    let nameless = SendWr { srqn: None, ..good };
    let flush = Flush {
        placement: Placement::GLOBAL,
        selectivity: Selectivity::Range,
        length: 8,
    };
    let mut flush = SendWr::flush(1, IOVA, Rkey(1), flush);
    flush.srqn = good.srqn;
    let mut send = |side: usize, qp, wr: &SendWr<'_>| {
        x.pair.nodes[side].with_env(Time::ZERO, |s, env| s.post_send(qp, wr, env))
    };
    assert_eq!(send(INI, ini, &good), Ok(()));
    assert_eq!(send(INI, ini, &nameless), Err(PostError::NoSrqn));
    let (opcode, qp_type) = (WrOpcode::Flush, QpType::XrcSend);
    let refused = PostError::NotCarried { opcode, qp_type };
    assert_eq!(send(INI, ini, &flush), Err(refused));
    let no_queue = PostError::NoQueue(QpType::XrcRecv);
    assert_eq!(send(TGT, tgt, &good), Err(no_queue));
    for (side, qp, qp_type) in [(INI, ini, QpType::XrcSend), (TGT, tgt, QpType::XrcRecv)] {
        let wr = RecvWr {
            wr_id: 1,
            sges: &[],
        };
        let result = x.pair.nodes[side].with_env(Time::ZERO, |s, env| s.post_recv(qp, &wr, env));
        assert_eq!(result, Err(PostError::NoQueue(qp_type)));
    }
}

#[test]
fn qps_that_cannot_be() {
    let mut x = Xrc::new(&Settings::default(), 1, 1);
    let settings = Settings::default();
    let shard = &mut x.pair.nodes[TGT].shard;
    let mut create = |change: &dyn Fn(&mut QpInit)| {
        let mut init = init(QpType::XrcRecv, &settings);
        change(&mut init);
        shard.create_qp(&init)
    };
    assert!(create(&|_| ()).is_ok());
    assert_eq!(create(&|i| i.xrcd = None), Err(CreateQpError::Xrcd));
    for qp_type in [QpType::Rc, QpType::XrcSend, QpType::Ud] {
        let refused = create(&|i| i.qp_type = qp_type);
        assert_eq!(
            refused,
            Err(CreateQpError::Xrcd),
            "{qp_type:?} has no domain"
        );
    }
    let srq = x.queues[0].srq;
    let refused = create(&|i| i.srq = Some(srq));
    assert!(matches!(refused, Err(CreateQpError::Srq(_))));
    // A queue of type XRC is not for a reliable connection.
    let refused = create(&|i| {
        (i.qp_type, i.xrcd, i.srq) = (QpType::Rc, None, Some(srq));
    });
    assert!(matches!(refused, Err(CreateQpError::Srq(_))));
}

/// `man ibv_modify_qp`: a target has no retries of its own to configure.
#[test]
fn a_target_goes_to_rts_with_a_timeout_and_no_retries() {
    let mut x = Xrc::new(&Settings::default(), 1, 0);
    let made = x.pair.nodes[TGT]
        .shard
        .create_qp(&init(QpType::XrcRecv, &Settings::default()));
    x.pair.nodes[TGT].qp = made.expect("creates").0;
    let qp = x.pair.nodes[TGT].qp;
    let mut to = |qp_state, mask: AttrMask| {
        let attr = QpAttr {
            qp_state,
            dest_qp_num: Qpn::new(5),
            ah_attr: Some(AddressVector {
                local: "10.0.0.2".parse().expect("an address"),
                remote: "10.0.0.1".parse().expect("an address"),
                traffic_class: 0,
                hop_limit: 64,
            }),
            ..QpAttr::default()
        };
        let mask = mask | AttrMask::STATE;
        let node = &mut x.pair.nodes[TGT];
        node.with_env(Time::ZERO, |s, env| s.modify_qp(qp, &attr, mask, env))
    };
    let needs = |from, to| {
        transition(QpType::XrcRecv, from, to)
            .expect("exists")
            .required
    };
    to(QpState::Init, needs(QpState::Reset, QpState::Init)).expect("to INIT");
    to(QpState::Rtr, needs(QpState::Init, QpState::Rtr)).expect("to RTR");
    let too_much = AttrMask::SQ_PSN | AttrMask::TIMEOUT | AttrMask::RETRY_CNT;
    let refused = to(QpState::Rts, too_much);
    assert!(matches!(
        refused,
        Err(ModifyError::Excess {
            excess: AttrMask::RETRY_CNT,
            ..
        })
    ));
    to(QpState::Rts, AttrMask::SQ_PSN | AttrMask::TIMEOUT).expect("to RTS");
}

#[test]
fn an_empty_queue_makes_rnr_naks_and_the_limit_an_event() {
    let mut x = Xrc::new(&Settings::default(), 1, 2);
    x.post_recv(1, 1, 0, 64);
    x.send(0, b"waits");
    x.pair.run_until(Time(3_000_000));
    assert!(x.pair.nodes[TGT].shard.stats().send_rnr_err > 0);
    let limit = SrqAttr {
        srq_limit: 2,
        ..SrqAttr::default()
    };
    let (shard, srq) = (&mut x.pair.nodes[TGT].shard, x.queues[0].srq);
    let mask = urxe_core::srq::SrqAttrMask::LIMIT;
    shard.modify_srq(srq, &limit, mask).expect("arms");
    x.post_recv(0, 2, 0, 64);
    x.pair.run();
    assert_eq!(x.received(0)[0].wr_id, 2);
    let event = x.pair.nodes[TGT].shard.poll_event();
    assert_eq!(event, Some(AsyncEvent::SrqLimitReached(srq)));
}

/// Its receives make no completions, not even the one that is being filled.
#[test]
fn a_queue_is_destroyed_in_the_middle_of_a_message() {
    let mut x = Xrc::new(&Settings::default(), 1, 1);
    x.post_recv(0, 1, 0, 1024);
    let (psn, srqn) = (Settings::default().psn[INI], x.queues[0].srqn);
    x.inject(TGT, Opcode::XRC_SEND_FIRST, psn, Some(srqn), &[1; 256]);
    let shard = &mut x.pair.nodes[TGT].shard;
    shard
        .destroy_srq(x.queues[0].srq)
        .expect("no QP is tied to it");
    x.inject(TGT, Opcode::XRC_SEND_LAST, psn + 1, Some(srqn), &[1; 10]);
    assert_eq!(x.pair.nodes[TGT].state(), QpState::Err);
    assert!(x.received(0).is_empty());
}

/// Random requests of a peer that keeps to no rule, to one target after the other: no
/// receive completes twice, none is lost, and no memory changes but that of the regions.
#[test]
fn whatever_a_peer_sends_a_target_stays_whole() {
    let (mut failed, mut received) = (0, 0);
    for seed in 0..2000 {
        let mut rng = Rng(seed);
        let settings = Settings {
            secret: rng.next(),
            icrc: urxe_wire::IcrcPolicy::Skip,
            ..Settings::default()
        };
        let mut x = Xrc::new(&settings, 1, 2);
        for id in 0..8 {
            x.post_recv(id as usize % 2, id, 0x400 * id, rng.pick(&[0, 100, 1024]));
        }
        let base = settings.psn[INI];
        let mut psn = base;
        for _ in 0..rng.below(40) {
            let opcodes = [0xa0, 0xa2, 0xa4, 0xa5, 0xa6, 0xaa, 0xab, 0xac, 0xb3, 0xb6];
            let code = match rng.chance(800) {
                true => rng.pick(&opcodes),
                false => rng.next() as u8,
            };
            let Some(info) = Opcode(code).info() else {
                continue;
            };
            let len = rng.pick(&[0, 8, 100, 256, 256, 600]);
            let mut packet = vec![code, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0x80, 0, 0, 0];
            packet[5..8].copy_from_slice(&x.qps[TGT].1.get().to_be_bytes()[1..]);
            let at = if rng.chance(850) {
                psn
            } else {
                psn + rng.below(5) as u32
            };
            packet[9..12].copy_from_slice(&at.to_be_bytes()[1..]);
            let mut headers = rng.bytes(info.header_len as usize - 12);
            let n = rng.below(2) as usize;
            let key = x.queues[n].keys.rkey.0;
            if headers.len() >= 4 && rng.chance(950) {
                headers[..4].copy_from_slice(&x.queues[n].srqn.get().to_be_bytes());
            }
            if headers.len() >= 20 && rng.chance(900) {
                headers[4..12].copy_from_slice(&(IOVA + 0x4000).to_be_bytes());
                headers[12..16].copy_from_slice(&key.to_be_bytes());
                headers[16..20].copy_from_slice(&(len as u32).to_be_bytes());
            }
            packet.extend(headers);
            packet.extend(std::iter::repeat_n(7, len + 4));
            x.pair.deliver(TGT, 0, &packet);
            psn += u32::from(rng.chance(700));
            x.pair.transmit();
        }
        let mut done: Vec<u64> = Vec::new();
        for n in 0..2 {
            done.extend(x.received(n).iter().map(|cqe| cqe.wr_id));
        }
        received += done.len();
        let waiting: u32 = (0..2)
            .map(|n| x.pair.nodes[TGT].shard.srq_len(x.queues[n].srq))
            .sum();
        let node = &x.pair.nodes[TGT];
        let filling = node.shard.rq_len(node.qp);
        let total = done.len() + (waiting + filling) as usize;
        assert_eq!(total, 8, "seed {seed}: every receive is somewhere");
        done.sort_unstable();
        done.dedup();
        assert_eq!(
            done.len() + (waiting + filling) as usize,
            8,
            "seed {seed}: twice"
        );
        failed += u32::from(node.state() == QpState::Err);
    }
    println!("{failed} of 2000 targets failed, {received} receives completed");
    assert!(failed > 500 && received > 500, "{failed} {received}");
}

/// Random SENDs, WRITEs and READs to random queues of the domain, with faults. The model:
/// every queue's receives are used in order, and hold its messages in order.
pub(crate) fn random_program(seed: u64) -> (u64, Time) {
    let mut rng = Rng(seed);
    let settings = Settings {
        psn: [rng.next() as u32 & 0xff_ffff, 0xff_fff8],
        secret: rng.next(),
        rd_atomic: 1 + rng.below(4) as u8,
        ..Settings::default()
    };
    let queues = 1 + rng.below(4) as usize;
    let mut x = Xrc::new(&settings, rng.next(), queues as u32);
    x.pair.faults = Faults {
        lose: rng.below(80),
        duplicate: rng.below(80),
        corrupt: rng.below(20),
        reorder: rng.below(150),
        delay_ns: 1000,
        ..Faults::default()
    };
    // Places: 256 bytes for receive k of queue n, in 64 KiB for each queue.
    let place = |n: usize, k: u64| 0x10000 * n as u64 + 0x400 * k;
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); queues];
    let mut posted = vec![0u64; queues];
    let mut counter = 0u64;
    let count = 30u64;
    for id in 0..count {
        let n = rng.below(queues as u64) as usize;
        let at = 0x80000 + 0x400 * id;
        if rng.chance(250) {
            // A number that every queue's domain reaches at the same address.
            let sges = x.local(at, 8);
            let mut wr = x.wr(n, id, WrOpcode::AtomicFetchAndAdd, WrData::Sges(&sges));
            wr.remote_addr = IOVA + 0xff000;
            wr.compare_add = rng.next();
            counter = counter.wrapping_add(wr.compare_add);
            x.pair.post_send(INI, &wr);
        } else {
            let len = rng.pick(&[0, 1, 256, 257, 1000]);
            let bytes = rng.bytes(len);
            x.pair.nodes[INI].memory.write(at, &bytes);
            let sges = x.local(at, len as u32);
            let wr = x.wr(n, id, WrOpcode::Send, WrData::Sges(&sges));
            x.pair.post_send(INI, &wr);
            expected[n].push(bytes);
        }
        for (n, posted) in posted.iter_mut().enumerate() {
            if rng.chance(300) {
                x.post_recv(n, *posted, place(n, *posted), 0x400);
                *posted += 1;
            }
        }
        x.pair.run_until(x.pair.now + rng.below(100_000));
    }
    for (n, posted) in posted.iter_mut().enumerate() {
        while (*posted as usize) < expected[n].len() {
            x.post_recv(n, *posted, place(n, *posted), 0x400);
            *posted += 1;
        }
    }
    x.pair.run();
    let sent = x.sent();
    assert_eq!(sent.len() as u64, count, "seed {seed}");
    let ok = sent.iter().all(|c| c.status == WcStatus::Success);
    assert!(ok, "seed {seed}: {sent:?}");
    for (n, messages) in expected.iter().enumerate() {
        let got = x.received(n);
        assert_eq!(got.len(), messages.len(), "seed {seed}: queue {n}");
        for (k, (cqe, message)) in got.iter().zip(messages).enumerate() {
            assert_eq!(
                (cqe.wr_id, cqe.opcode),
                (k as u64, WcOpcode::Recv),
                "seed {seed}"
            );
            assert_eq!(cqe.byte_len as usize, message.len(), "seed {seed}");
            let bytes = x.pair.nodes[TGT]
                .memory
                .read(place(n, k as u64), message.len());
            assert!(&bytes == message, "seed {seed}: message {k} of queue {n}");
        }
    }
    let number = x.pair.nodes[TGT].memory.read(0xff000, 8);
    assert_eq!(number, counter.to_ne_bytes(), "seed {seed}");
    (count, x.pair.now)
}

#[test]
fn random_programs_agree_with_the_model() {
    for seed in 0..400 {
        random_program(seed);
    }
}
