//! Rules of the transport, one test each: what travels, in which order, and what a
//! peer may do that urxe itself would not.

use std::cell::RefCell;
use std::rc::Rc;

use crate::script::*;
use crate::support::*;
use urxe_core::error::WcStatus;
use urxe_core::event::AsyncEvent;
use urxe_core::qp::attr::{AttrMask, Mtu, QpAttr};
use urxe_core::qp::state::QpState;
use urxe_core::work::{SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{AckMode, Time};
use urxe_wire::{Aeth, Bth, CreditCode, Headers, Msn, Opcode, Packet, Psn, Syndrome, SyndromeKind};

#[test]
fn a_message_is_cut_at_the_mtu_and_asks_for_one_ack() {
    let mut p = Pair::new(&Settings::default(), 1);
    receive(&mut p, 1, 1);
    let log = record(&mut p);
    post(&mut p, 1, WrOpcode::Send, 700, SendFlags::SIGNALED);
    p.run();
    assert_eq!(
        lines(&log, 0),
        ["SEND First 100", "SEND Middle 101", "SEND Last 102 A"]
    );
    assert_eq!(lines(&log, 1), ["Acknowledge 102"]);
}

#[test]
fn psns_wrap_within_a_message() {
    let mut p = Pair::new(
        &Settings {
            psn: [0xff_fffe, 0],
            ..Settings::default()
        },
        1,
    );
    let log = record(&mut p);
    post(&mut p, 1, WrOpcode::RdmaWrite, 1000, SendFlags::SIGNALED);
    p.run();
    assert_eq!(
        lines(&log, 0),
        [
            "RDMA WRITE First fffffe",
            "RDMA WRITE Middle ffffff",
            "RDMA WRITE Middle 0",
            "RDMA WRITE Last 1 A"
        ]
    );
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::Success)]);
}

#[test]
fn many_messages_share_one_ack() {
    let mut p = Pair::new(&Settings::default(), 1);
    let log = record(&mut p);
    for id in 0..20 {
        post(&mut p, id, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    }
    p.run();
    assert_eq!(lines(&log, 1), ["Acknowledge 113"]);
    assert_eq!(statuses(&mut p, 0).len(), 20);
}

#[test]
fn a_lost_packet_draws_one_nak_and_all_from_there_again() {
    let mut p = Pair::new(&Settings::default(), 1);
    let log = lose(&mut p, 0, 1);
    post(&mut p, 1, WrOpcode::RdmaWrite, 1200, SendFlags::SIGNALED);
    p.run();
    assert_eq!(
        lines(&log, 1),
        ["Acknowledge 101", "Acknowledge 104"],
        "a NAK, then an ACK"
    );
    assert_eq!(lines(&log, 0).len(), 5 + 4);
    assert_eq!(lines(&log, 0)[5], "RDMA WRITE Middle 101");
    let stats = p.nodes[0].shard.stats();
    assert_eq!(
        (
            stats.rcvd_seq_err,
            stats.retransmitted_pkts,
            stats.ack_timeout
        ),
        (1, 4, 0)
    );
}

#[test]
fn a_lost_read_response_is_asked_for_from_where_it_is_missing() {
    let mut p = Pair::new(
        &Settings {
            read_chunk_bytes: 4096,
            ..Settings::default()
        },
        1,
    );
    let data: Vec<u8> = (0..1200u32).map(|i| i as u8).collect();
    p.nodes[1].memory.write(0x1000, &data);
    let log = lose(&mut p, 1, 2);
    post(&mut p, 1, WrOpcode::RdmaRead, 1200, SendFlags::SIGNALED);
    p.run();
    assert_eq!(
        lines(&log, 0),
        ["RDMA READ Request 100 A", "RDMA READ Request 102 A"]
    );
    assert_eq!(
        lines(&log, 1)[5..],
        [
            "RDMA READ Response First 102",
            "RDMA READ Response Middle 103",
            "RDMA READ Response Last 104"
        ]
    );
    assert_eq!(p.nodes[0].memory.read(0x8000, 1200), data);
    assert_eq!(
        p.nodes[0].shard.stats().implied_nak,
        2,
        "both later responses say so"
    );
}

#[test]
fn a_peer_like_rdma_rxe_gets_middle_and_last_when_it_asks_again() {
    let mut p = Pair::new(
        &Settings {
            read_chunk_bytes: 4096,
            ..Settings::default()
        },
        1,
    );
    // rdma_rxe never sets MigReq: clear it in what node 0 sends, before it arrives.
    let log = Rc::new(RefCell::new(Vec::new()));
    let sink = log.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        sink.borrow_mut().push((from, bytes.to_vec()));
        Verdict::Drop
    }));
    post(&mut p, 1, WrOpcode::RdmaRead, 1200, SendFlags::SIGNALED);
    p.transmit();
    let as_rxe = |p: &Pair, psn: u32, skip: u32| {
        let mut bth = Bth::new(Opcode::RC_READ_REQUEST, p.nodes[1].qpn, Psn::new(psn));
        bth.mig_req = false;
        forge(p, 0, &bth, |w| {
            w.reth(&urxe_wire::Reth {
                va: IOVA + 0x1000 + u64::from(skip),
                rkey: p.nodes[1].keys.rkey,
                dma_len: 1200 - skip,
            });
        })
    };
    for (psn, skip) in [(0x100, 0), (0x103, 768)] {
        let request = as_rxe(&p, psn, skip);
        p.deliver(1, 0, &request);
        p.transmit();
    }
    let answers: Vec<String> = log
        .borrow()
        .iter()
        .filter(|(from, _)| *from == 1)
        .map(|(_, b)| line(b))
        .collect();
    assert_eq!(
        answers[5..],
        [
            "RDMA READ Response Middle 103",
            "RDMA READ Response Last 104"
        ]
    );
}

#[test]
fn a_peer_like_rdma_rxe_gets_no_ack_for_a_read_but_its_data() {
    let mut p = Pair::new(&Settings::default(), 1);
    let log = Rc::new(RefCell::new(Vec::new()));
    let sink = log.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        sink.borrow_mut().push((from, line(bytes)));
        Verdict::Drop
    }));
    let (rkey, qpn) = (p.nodes[1].keys.rkey, p.nodes[1].qpn);
    let as_rxe = |p: &mut Pair, opcode: Opcode, psn: u32| {
        let mut bth = Bth::new(opcode, qpn, Psn::new(psn));
        (bth.mig_req, bth.ack_req) = (false, true);
        let request = forge(p, 0, &bth, |w| {
            w.reth(&urxe_wire::Reth {
                va: IOVA + 0x1000,
                rkey,
                dma_len: if opcode == Opcode::RC_READ_REQUEST {
                    8
                } else {
                    0
                },
            });
        });
        p.deliver(1, 0, &request);
        p.transmit();
    };
    as_rxe(&mut p, Opcode::RC_WRITE_ONLY, 0x100);
    as_rxe(&mut p, Opcode::RC_READ_REQUEST, 0x101);
    as_rxe(&mut p, Opcode::RC_READ_REQUEST, 0x102);
    // All answers were lost. The WRITE is repeated first: its ACK must not be taken for one
    // of the READs.
    log.borrow_mut().clear();
    as_rxe(&mut p, Opcode::RC_WRITE_ONLY, 0x100);
    as_rxe(&mut p, Opcode::RC_READ_REQUEST, 0x101);
    assert_eq!(
        lines(&log, 1),
        [
            "Acknowledge 100",
            "RDMA READ Response Only 101",
            "RDMA READ Response Only 102"
        ]
    );
}

#[test]
fn an_atomic_is_executed_once_however_often_it_arrives() {
    let mut p = Pair::new(&Settings::default(), 1);
    p.nodes[1].memory.write(0x1000, &7u64.to_ne_bytes());
    let log = lose(&mut p, 1, 0);
    let sges = [sge(&p, 0, 0x8000, 8)];
    let mut wr = SendWr::new(1, WrOpcode::AtomicFetchAndAdd, WrData::Sges(&sges));
    (wr.remote_addr, wr.rkey, wr.compare_add) = (IOVA + 0x1000, p.nodes[1].keys.rkey, 5);
    p.post_send(0, &wr);
    p.run();
    assert_eq!(
        lines(&log, 1),
        ["ATOMIC Acknowledge 100", "ATOMIC Acknowledge 100"]
    );
    assert_eq!(p.nodes[1].memory.read(0x1000, 8), 12u64.to_ne_bytes());
    assert_eq!(p.nodes[0].memory.read(0x8000, 8), 7u64.to_ne_bytes());
}

#[test]
fn max_rd_atomic_reads_are_under_way_and_no_more() {
    let mut p = Pair::new(
        &Settings {
            rd_atomic: 2,
            ..Settings::default()
        },
        1,
    );
    let log = record(&mut p);
    for id in 0..5 {
        post(&mut p, id, WrOpcode::RdmaRead, 100, SendFlags::SIGNALED);
    }
    p.transmit();
    assert_eq!(lines(&log, 0).len(), 2);
    p.run();
    assert_eq!(statuses(&mut p, 0).len(), 5);
}

#[test]
fn a_fenced_request_waits_for_reads_and_an_unfenced_one_does_not() {
    for (flags, sent_at_once) in [(SendFlags::NONE, 2), (SendFlags::FENCE, 1)] {
        let mut p = Pair::new(&Settings::default(), 1);
        let log = record(&mut p);
        post(&mut p, 1, WrOpcode::RdmaRead, 100, SendFlags::SIGNALED);
        post(&mut p, 2, WrOpcode::RdmaWrite, 100, flags);
        p.transmit();
        assert_eq!(lines(&log, 0).len(), sent_at_once, "{flags:?}");
        p.run();
        assert_eq!(lines(&log, 0).len(), 2);
    }
}

#[test]
fn a_long_read_is_asked_for_in_pieces() {
    let mut p = Pair::new(
        &Settings {
            read_chunk_bytes: 1024,
            window_bytes: 2048,
            ..Settings::default()
        },
        1,
    );
    let log = record(&mut p);
    post(&mut p, 1, WrOpcode::RdmaRead, 4000, SendFlags::SIGNALED);
    p.transmit();
    assert_eq!(
        lines(&log, 0),
        ["RDMA READ Request 100 A", "RDMA READ Request 104 A"],
        "as much as the window holds"
    );
    p.run();
    assert_eq!(
        lines(&log, 0)[2..],
        ["RDMA READ Request 108 A", "RDMA READ Request 10c A"]
    );
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::Success)]);
}

#[test]
fn credits_are_given_and_obeyed() {
    let mut p = Pair::new(&Settings::default(), 1);
    receive(&mut p, 1, 0);
    receive(&mut p, 1, 1);
    let credits = Rc::new(RefCell::new(Vec::new()));
    let sink = credits.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        let packet = Packet::parse(bytes).expect("a packet");
        if let (1, Some(aeth)) = (from, packet.aeth())
            && let SyndromeKind::Ack(code) = aeth.syndrome.decode()
        {
            sink.borrow_mut().push((aeth.msn.get(), code.credits()));
        }
        Verdict::Pass
    }));
    for id in 0..4 {
        post(&mut p, id, WrOpcode::Send, 8, SendFlags::SIGNALED);
    }
    p.transmit();
    assert_eq!(
        p.sent[0], 1,
        "the first message is a probe: nothing is known yet"
    );
    let deadline = p.now + 2 * 1000;
    p.run_until(deadline);
    assert_eq!(credits.borrow()[0], (1, Some(1)));
    p.transmit();
    // One credit, and one beyond it as the next probe, which finds no receive.
    assert_eq!(p.sent[0], 3);
    let deadline = p.now + 100_000;
    p.run_until(deadline);
    assert!(p.nodes[1].shard.stats().send_rnr_err > 0);
    receive(&mut p, 1, 2);
    receive(&mut p, 1, 3);
    p.run();
    assert_eq!(statuses(&mut p, 0).len(), 4);
    assert_eq!(credits.borrow().last(), Some(&(4, Some(0))));
}

#[test]
fn new_receives_are_announced_to_a_peer_that_was_told_none() {
    let mut p = Pair::new(&Settings::default(), 1);
    receive(&mut p, 1, 0);
    post(&mut p, 1, WrOpcode::Send, 8, SendFlags::SIGNALED);
    p.run();
    let log = record(&mut p);
    receive(&mut p, 1, 1);
    receive(&mut p, 1, 2);
    p.run();
    assert_eq!(
        lines(&log, 1),
        ["Acknowledge 100"],
        "the last ACK again, with credits"
    );
    post(&mut p, 2, WrOpcode::Send, 8, SendFlags::SIGNALED);
    post(&mut p, 3, WrOpcode::Send, 8, SendFlags::SIGNALED);
    p.transmit();
    assert_eq!(lines(&log, 0).len(), 2, "both may go at once");
}

#[test]
fn an_rnr_wait_ends_when_the_timer_does() {
    let mut p = Pair::new(
        &Settings {
            min_rnr_timer: 14,
            ..Settings::default()
        },
        1,
    );
    post(&mut p, 1, WrOpcode::Send, 8, SendFlags::SIGNALED);
    let at = p.now + 900_000;
    p.run_until(at);
    assert_eq!(p.sent[0], 1);
    receive(&mut p, 1, 0);
    p.run();
    assert_eq!(p.sent[0], 2, "once more after 1.28 ms");
    assert!(p.now >= Time(1_280_000));
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::Success)]);
}

#[test]
fn a_sequence_nak_after_an_rnr_nak_does_not_cut_the_wait_short() {
    let mut p = Pair::new(
        &Settings {
            min_rnr_timer: 14,
            ..Settings::default()
        },
        1,
    );
    receive(&mut p, 1, 0);
    post(&mut p, 1, WrOpcode::Send, 8, SendFlags::SIGNALED);
    post(&mut p, 2, WrOpcode::Send, 8, SendFlags::SIGNALED);
    let soon = p.now + 10_000;
    p.run_until(soon);
    let nak = forge_ack(&p, 0x101, Syndrome::nak(urxe_wire::NakCode::PsnSequence), 1);
    p.deliver(0, 0, &nak);
    p.transmit();
    assert_eq!(p.sent[0], 2, "still waiting");
    receive(&mut p, 1, 1);
    p.run();
    assert_eq!(statuses(&mut p, 0).len(), 2);
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_ignored() {
    let mut p = Pair::new(&Settings::default(), 1);
    p.filter = Some(Box::new(|_, _| Verdict::Drop));
    post(&mut p, 1, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    p.transmit();
    for psn in [0x101, 0x200, 0xff, 0x80_0100] {
        let ack = forge_ack(&p, psn, Syndrome::ack(CreditCode::UNLIMITED), 1);
        p.deliver(0, 0, &ack);
    }
    let reserved = forge_ack(&p, 0x100, Syndrome(0x5f), 1);
    p.deliver(0, 0, &reserved);
    assert_eq!(statuses(&mut p, 0), []);
    assert_eq!(p.nodes[0].state(), QpState::Rts);
    let ack = forge_ack(&p, 0x100, Syndrome::ack(CreditCode::UNLIMITED), 1);
    p.deliver(0, 0, &ack);
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::Success)]);
}

#[test]
fn a_response_that_does_not_answer_the_request_is_a_bad_response() {
    let mut p = Pair::new(&Settings::default(), 1);
    p.filter = Some(Box::new(|_, _| Verdict::Drop));
    post(&mut p, 1, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    p.transmit();
    let bth = Bth::new(
        Opcode::RC_READ_RESPONSE_ONLY,
        p.nodes[0].qpn,
        Psn::new(0x100),
    );
    let syndrome = Syndrome::ack(CreditCode::UNLIMITED);
    let bytes = forge(&p, 1, &bth, |w| {
        w.aeth(&Aeth {
            syndrome,
            msn: Msn::new(1),
        })
    });
    p.deliver(0, 0, &bytes);
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::BadRespErr)]);
}

#[test]
fn a_read_response_of_the_wrong_length_is_a_length_error() {
    let mut p = Pair::new(&Settings::default(), 1);
    p.filter = Some(Box::new(|_, _| Verdict::Drop));
    post(&mut p, 1, WrOpcode::RdmaRead, 8, SendFlags::SIGNALED);
    p.transmit();
    let bth = Bth::new(
        Opcode::RC_READ_RESPONSE_ONLY,
        p.nodes[0].qpn,
        Psn::new(0x100),
    );
    let syndrome = Syndrome::ack(CreditCode::UNLIMITED);
    let bytes = forge(&p, 1, &bth, |w| {
        w.aeth(&Aeth {
            syndrome,
            msn: Msn::new(1),
        })
    });
    p.deliver(0, 0, &bytes);
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::LocLenErr)]);
}

#[test]
fn opcodes_out_of_sequence_are_invalid_requests() {
    for opcode in [
        Opcode::RC_ACKNOWLEDGE, // no request at all: ignored
        Opcode::RC_FLUSH,       // not supported by this QP
    ] {
        let mut p = Pair::new(&Settings::default(), 1);
        receive(&mut p, 1, 0);
        let bth = Bth::new(opcode, p.nodes[1].qpn, Psn::new(0x100));
        let info = opcode.info().expect("assigned");
        let bytes = forge(&p, 0, &bth, |w| {
            if info.headers.contains(Headers::FETH) {
                w.feth(&urxe_wire::Feth {
                    placement: 1,
                    selectivity: 0,
                    reserved: 0,
                });
            }
            if info.headers.contains(Headers::RETH) {
                w.reth(&urxe_wire::Reth {
                    va: 0,
                    rkey: urxe_wire::Rkey(0),
                    dma_len: 0,
                });
            }
            if info.headers.contains(Headers::AETH) {
                w.aeth(&Aeth {
                    syndrome: Syndrome(0),
                    msn: Msn::ZERO,
                });
            }
        });
        p.deliver(1, 0, &bytes);
        let refused = !info.is_response();
        assert_eq!(p.nodes[1].state() == QpState::Err, refused, "{opcode:?}");
        assert_eq!(p.nodes[1].shard.has_work(), refused, "the NAK is owed");
    }
}

#[test]
fn a_deferred_ack_leaves_before_the_next_request() {
    let mut p = Pair::new(&Settings::default(), 1);
    receive(&mut p, 1, 0);
    receive(&mut p, 0, 0);
    let log = record(&mut p);
    p.acks = AckMode::Defer;
    post(&mut p, 1, WrOpcode::Send, 8, SendFlags::SIGNALED);
    let at = p.now + 5000;
    p.run_until(at);
    assert_eq!(lines(&log, 1), [] as [&str; 0]);
    assert!(p.nodes[1].shard.has_work(), "the ACK is owed");
    let sges = [sge(&p, 1, 0, 8)];
    let mut wr = SendWr::new(1, WrOpcode::RdmaWrite, WrData::Sges(&sges));
    (wr.remote_addr, wr.rkey) = (IOVA, p.nodes[0].keys.rkey);
    p.post_send(1, &wr);
    p.transmit();
    assert_eq!(lines(&log, 1), ["Acknowledge 100", "RDMA WRITE Only 200 A"]);
    for _ in 0..4 {
        p.post_send(1, &wr);
    }
    p.transmit();
    let more = &lines(&log, 1)[2..];
    assert!(
        more.iter().all(|line| line.starts_with("RDMA WRITE")),
        "{more:?}"
    );
}

#[test]
fn sqd_finishes_what_was_started_reports_it_and_goes_on_at_rts() {
    let mut p = Pair::new(&Settings::default(), 1);
    post(&mut p, 1, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    p.transmit();
    let attr = QpAttr {
        qp_state: QpState::Sqd,
        en_sqd_async_notify: true,
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY);
    post(&mut p, 2, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    p.run();
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::Success)]);
    assert_eq!(
        p.nodes[0].shard.poll_event(),
        Some(AsyncEvent::SqDrained(p.nodes[0].qp))
    );
    let attr = QpAttr {
        qp_state: QpState::Rts,
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::STATE);
    p.run();
    assert_eq!(statuses(&mut p, 0), [(2, WcStatus::Success)]);
}

#[test]
fn the_first_packet_in_rtr_is_reported_once() {
    let s = Settings::default();
    let mut nodes = [Node::new(0, &s), Node::new(1, &s)];
    let (a, b) = ((nodes[0].addr, nodes[0].qpn), (nodes[1].addr, nodes[1].qpn));
    nodes[0].connect(&s, 0, b.0, b.1);
    // Node 1 stays in RTR.
    let mut attr = QpAttr {
        qp_state: QpState::Init,
        qp_access_flags: s.access,
        ..QpAttr::default()
    };
    let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    nodes[1].modify(&attr, init);
    attr.qp_state = QpState::Rtr;
    attr.path_mtu = Mtu::Mtu256;
    attr.dest_qp_num = a.1;
    attr.rq_psn = Psn::new(s.psn[0]);
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr = Some(urxe_core::qp::attr::AddressVector {
        local: b.0,
        remote: a.0,
        traffic_class: 0,
        hop_limit: 1,
    });
    nodes[1].modify(
        &attr,
        AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER,
    );
    let mut p = Pair::new(&s, 1);
    p.nodes = nodes;
    for id in 0..2 {
        post(&mut p, id, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
        p.run();
    }
    assert_eq!(statuses(&mut p, 0).len(), 2, "a QP in RTR answers");
    assert_eq!(
        p.nodes[1].shard.poll_event(),
        Some(AsyncEvent::CommEst(p.nodes[1].qp))
    );
    assert_eq!(p.nodes[1].shard.poll_event(), None);
}

#[test]
fn reset_forgets_everything_without_completions() {
    let mut p = Pair::new(&Settings::default(), 1);
    p.filter = Some(Box::new(|_, _| Verdict::Drop));
    post(&mut p, 1, WrOpcode::RdmaWrite, 3000, SendFlags::SIGNALED);
    receive(&mut p, 0, 1);
    p.transmit();
    let attr = QpAttr {
        qp_state: QpState::Reset,
        ..QpAttr::default()
    };
    p.nodes[0].modify(&attr, AttrMask::STATE);
    p.run();
    assert_eq!(statuses(&mut p, 0), []);
    assert_eq!(p.nodes[0].take(RECV_CQ), []);
    let s = Settings::default();
    let (peer, qpn) = (p.nodes[1].addr, p.nodes[1].qpn);
    p.nodes[0].connect(&s, 0, peer, qpn);
    p.filter = None;
    post(&mut p, 2, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    p.run();
    assert_eq!(statuses(&mut p, 0), [(2, WcStatus::Success)]);
}

#[test]
fn a_destroyed_qp_is_gone_and_its_neighbours_go_on() {
    let mut p = Pair::new(&Settings::default(), 1);
    let qp = p.nodes[1].qp;
    assert!(p.nodes[1].shard.destroy_qp(qp));
    assert!(!p.nodes[1].shard.destroy_qp(qp));
    post(&mut p, 1, WrOpcode::RdmaWrite, 8, SendFlags::SIGNALED);
    p.run();
    assert_eq!(statuses(&mut p, 0), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn the_longest_message_is_two_to_the_31() {
    let mut p = Pair::new(&Settings::default(), 1);
    let sges = [
        Sge {
            addr: IOVA,
            length: 1 << 30,
            lkey: p.nodes[0].keys.lkey,
        },
        Sge {
            addr: IOVA,
            length: (1 << 30) + 1,
            lkey: p.nodes[0].keys.lkey,
        },
    ];
    let (now, qp) = (p.now, p.nodes[0].qp);
    let mut attempt = |sges: &[Sge]| {
        p.nodes[0].with_env(now, |s, env| {
            s.post_send(qp, &SendWr::new(1, WrOpcode::Send, WrData::Sges(sges)), env)
        })
    };
    assert!(attempt(&sges).is_err());
    assert!(attempt(&[sges[0], sges[0]]).is_ok());
}
