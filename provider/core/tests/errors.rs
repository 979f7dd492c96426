//! Every way in which a request or a receive can fail: which side is told what, and what
//! becomes of both QPs.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::*;
use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::error::{DropReason, Fault, Side, WcStatus};
use urxe_core::event::AsyncEvent;
use urxe_core::mr::{Access, MrInit, PdId};
use urxe_core::qp::state::QpState;
use urxe_core::work::{RecvWr, SendFlags, SendWr, Sge, WrData, WrOpcode};
use urxe_core::{Recovery, RxPath, Time};
use urxe_wire::{Lkey, Rkey};

fn pair(change: impl FnOnce(&mut Settings)) -> Pair {
    let mut s = Settings::default();
    change(&mut s);
    Pair::new(&s, 1)
}

fn sge(pair: &Pair, side: usize, at: u64, length: u32) -> Sge {
    Sge {
        addr: IOVA + at,
        length,
        lkey: pair.nodes[side].keys.lkey,
    }
}

/// Posts a request of `len` bytes from node 0 to offset 0x1000 of node 1.
fn post(pair: &mut Pair, wr_id: u64, opcode: WrOpcode, len: u32) {
    let sges = [sge(pair, 0, 0x8000, len)];
    let mut wr = SendWr::new(wr_id, opcode, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = pair.nodes[1].keys.rkey;
    pair.post_send(0, &wr);
}

fn post_with(pair: &mut Pair, opcode: WrOpcode, change: impl FnOnce(&mut SendWr<'_>)) {
    let sges = [sge(pair, 0, 0x8000, 8)];
    let mut wr = SendWr::new(1, opcode, WrData::Sges(&sges));
    wr.remote_addr = IOVA + 0x1000;
    wr.rkey = pair.nodes[1].keys.rkey;
    change(&mut wr);
    pair.post_send(0, &wr);
}

fn receive(pair: &mut Pair, side: usize, wr_id: u64, len: u32) {
    let sges = [sge(pair, side, 0x20000 + wr_id * 0x1000, len)];
    pair.post_recv(side, &RecvWr { wr_id, sges: &sges });
}

/// Runs to the end; the requester's single failure, after which all is flushed.
fn failed(pair: &mut Pair) -> Cqe {
    pair.run();
    let done = pair.nodes[0].take(SEND_CQ);
    let (first, rest) = done.split_first().expect("one completion at least");
    for cqe in rest {
        assert_eq!(
            (cqe.status, cqe.fault),
            (WcStatus::WrFlushErr, Fault::Flushed)
        );
    }
    assert_ne!(first.status, WcStatus::Success);
    assert_eq!(pair.nodes[0].state(), QpState::Err);
    *first
}

fn events(pair: &mut Pair, side: usize) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| pair.nodes[side].shard.poll_event()).collect()
}

#[test]
fn operations_that_the_qp_does_not_allow_are_invalid_requests() {
    for (opcode, right) in [
        (WrOpcode::RdmaWrite, Access::REMOTE_WRITE),
        (WrOpcode::RdmaRead, Access::REMOTE_READ),
        (WrOpcode::AtomicFetchAndAdd, Access::REMOTE_ATOMIC),
        (WrOpcode::AtomicCmpAndSwp, Access::REMOTE_ATOMIC),
    ] {
        let mut p = pair(|s| s.access = Access(0xf & !right.0));
        post(&mut p, 7, opcode, 8);
        post(&mut p, 8, opcode, 8);
        let cqe = failed(&mut p);
        assert_eq!(
            (cqe.wr_id, cqe.status),
            (7, WcStatus::RemInvReqErr),
            "{opcode:?}"
        );
        assert_eq!(cqe.fault, Fault::NakInvalidRequest);
        assert_eq!(cqe.fault.side(), Side::Remote);
        assert_eq!(p.nodes[1].state(), QpState::Err);
        assert!(events(&mut p, 1).contains(&AsyncEvent::QpReqErr(p.nodes[1].qp)));
    }
}

#[test]
fn bad_remote_keys_bounds_and_rights_are_access_errors() {
    let check = |name: &str, opcode, change: &dyn Fn(&mut SendWr<'_>, &Pair)| {
        let mut p = pair(|_| ());
        let keys = p.nodes[1].keys;
        // A region that may only be read, for "lacks the right".
        let sges = [sge(&p, 0, 0x8000, 8)];
        let mut wr = SendWr::new(1, opcode, WrData::Sges(&sges));
        wr.remote_addr = IOVA + 0x1000;
        wr.rkey = keys.rkey;
        change(&mut wr, &p);
        p.post_send(0, &wr);
        let cqe = failed(&mut p);
        assert_eq!(
            (cqe.status, cqe.fault),
            (WcStatus::RemAccessErr, Fault::NakRemoteAccess),
            "{name}"
        );
        assert_eq!(p.nodes[1].state(), QpState::Err);
        assert!(
            events(&mut p, 1).contains(&AsyncEvent::QpAccessErr(p.nodes[1].qp)),
            "{name}"
        );
    };
    for opcode in [
        WrOpcode::RdmaWrite,
        WrOpcode::RdmaRead,
        WrOpcode::AtomicFetchAndAdd,
    ] {
        check("an lkey is no rkey", opcode, &|wr, p| {
            wr.rkey = Rkey(p.nodes[1].keys.lkey.0)
        });
        check("an rkey of nothing", opcode, &|wr, _| {
            wr.rkey = Rkey(wr.rkey.0 ^ 0x100)
        });
        check("below the region", opcode, &|wr, _| {
            wr.remote_addr = IOVA - 8
        });
        check("beyond the region", opcode, &|wr, _| {
            wr.remote_addr = IOVA + (1 << 20)
        });
        check("around the end of the space", opcode, &|wr, _| {
            wr.remote_addr = u64::MAX - 7
        });
    }
}

/// Whatever its length: of a WRITE of several packets, the first, which is refused, does not say that there will be
/// immediate data.
#[test]
fn a_refused_write_with_immediate_data_takes_no_receive() {
    for len in [0, 8, 3000] {
        let mut p = pair(|_| ());
        receive(&mut p, 1, 5, 64);
        let sges = [sge(&p, 0, 0x8000, len)];
        let mut wr = SendWr::new(1, WrOpcode::RdmaWriteWithImm, WrData::Sges(&sges));
        (wr.remote_addr, wr.rkey) = (IOVA, Rkey(p.nodes[1].keys.rkey.0 ^ 0x100));
        p.post_send(0, &wr);
        if len == 0 {
            // Without bytes there is nothing to be refused.
            p.run();
            assert_eq!(p.nodes[1].take(RECV_CQ)[0].status, WcStatus::Success);
            continue;
        }
        assert_eq!(failed(&mut p).status, WcStatus::RemAccessErr);
        let received = p.nodes[1].take(RECV_CQ);
        let [cqe] = &received[..] else {
            panic!("{received:?}");
        };
        assert_eq!((cqe.wr_id, cqe.status), (5, WcStatus::WrFlushErr), "{len}");
    }
}

#[test]
fn a_region_of_another_pd_or_without_the_right_refuses() {
    for (pd, access, opcode) in [
        (PdId(2), Access(0xf), WrOpcode::RdmaWrite),
        (PD, Access::REMOTE_READ, WrOpcode::RdmaWrite),
        (PD, Access::LOCAL_WRITE, WrOpcode::RdmaRead),
        (PD, Access::REMOTE_READ, WrOpcode::AtomicFetchAndAdd),
    ] {
        let mut p = pair(|_| ());
        let init = MrInit {
            pd,
            access,
            host_addr: 0,
            iova: 0,
            len: 4096,
            remote_invalidate: false,
        };
        let keys = p.nodes[1].mrs.register(init).expect("registers");
        post_with(&mut p, opcode, |wr| {
            (wr.rkey, wr.remote_addr) = (keys.rkey, 64)
        });
        let cqe = failed(&mut p);
        assert_eq!(
            cqe.status,
            WcStatus::RemAccessErr,
            "{opcode:?} {pd:?} {access:?}"
        );
    }
}

#[test]
fn nothing_lands_of_a_write_that_reaches_too_far() {
    let mut p = pair(|_| ());
    let end = 1 << 20;
    p.nodes[1].memory.write(end - 600, &[0xaa; 600]);
    let sges = [sge(&p, 0, 0x8000, 601)];
    let mut wr = SendWr::new(1, WrOpcode::RdmaWrite, WrData::Sges(&sges));
    (wr.remote_addr, wr.rkey) = (IOVA + end - 600, p.nodes[1].keys.rkey);
    p.post_send(0, &wr);
    assert_eq!(failed(&mut p).status, WcStatus::RemAccessErr);
    assert_eq!(p.nodes[1].memory.read(end - 600, 600), [0xaa; 600]);
}

#[test]
fn zero_bytes_need_no_key() {
    for opcode in [WrOpcode::RdmaWrite, WrOpcode::RdmaRead] {
        let mut p = pair(|_| ());
        let mut wr = SendWr::new(5, opcode, WrData::Sges(&[]));
        (wr.remote_addr, wr.rkey) = (u64::MAX, Rkey(0xdead_beef));
        p.post_send(0, &wr);
        p.run();
        let done = p.nodes[0].take(SEND_CQ);
        assert_eq!(
            (done.len(), done[0].status),
            (1, WcStatus::Success),
            "{opcode:?}"
        );
    }
}

#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    let mut p = pair(|_| ());
    post_with(&mut p, WrOpcode::AtomicFetchAndAdd, |wr| {
        wr.remote_addr += 4
    });
    assert_eq!(failed(&mut p).status, WcStatus::RemInvReqErr);
}

#[test]
fn local_faults_name_the_check_and_send_nothing() {
    let cases: [(&str, Sge, Fault); 4] = [
        (
            "key",
            Sge {
                addr: IOVA,
                length: 8,
                lkey: Lkey(1),
            },
            Fault::LocalKey,
        ),
        (
            "bounds",
            Sge {
                addr: IOVA + (1 << 20) - 4,
                length: 8,
                lkey: Lkey(0),
            },
            Fault::LocalBounds,
        ),
        (
            "pd",
            Sge {
                addr: 64,
                length: 8,
                lkey: Lkey(0),
            },
            Fault::LocalPd,
        ),
        (
            "right",
            Sge {
                addr: 64,
                length: 8,
                lkey: Lkey(0),
            },
            Fault::LocalAccess,
        ),
    ];
    for (name, mut sge, fault) in cases {
        let mut p = pair(|_| ());
        if sge.lkey == Lkey(0) {
            sge.lkey = p.nodes[0].keys.lkey;
        }
        let mut opcode = WrOpcode::Send;
        if matches!(fault, Fault::LocalPd | Fault::LocalAccess) {
            let pd = if fault == Fault::LocalPd { PdId(9) } else { PD };
            let init = MrInit {
                pd,
                access: Access::NONE,
                host_addr: 0,
                iova: 0,
                len: 4096,
                remote_invalidate: false,
            };
            sge.lkey = p.nodes[0].mrs.register(init).expect("registers").lkey;
            if fault == Fault::LocalAccess {
                opcode = WrOpcode::RdmaRead;
            }
        }
        let sges = [sge];
        let mut wr = SendWr::new(3, opcode, WrData::Sges(&sges));
        (wr.remote_addr, wr.rkey) = (IOVA, p.nodes[1].keys.rkey);
        p.post_send(0, &wr);
        let cqe = failed(&mut p);
        assert_eq!(
            (cqe.status, cqe.fault),
            (WcStatus::LocProtErr, fault),
            "{name}"
        );
        assert_eq!(cqe.fault.side(), Side::Local);
        assert_eq!(p.sent[0], 0, "{name}: nothing was sent");
        assert_eq!(
            p.nodes[1].state(),
            QpState::Rts,
            "the peer knows nothing of it"
        );
    }
}

#[test]
fn a_local_fault_waits_for_what_was_posted_before() {
    let mut p = pair(|_| ());
    post(&mut p, 1, WrOpcode::RdmaWrite, 3000);
    post_with(&mut p, WrOpcode::RdmaWrite, |wr| wr.wr_id = 0);
    let bad = [Sge {
        addr: IOVA,
        length: 8,
        lkey: Lkey(77),
    }];
    p.post_send(0, &SendWr::new(2, WrOpcode::Send, WrData::Sges(&bad)));
    post(&mut p, 3, WrOpcode::RdmaWrite, 8);
    p.run();
    let done: Vec<_> = p.nodes[0]
        .take(SEND_CQ)
        .iter()
        .map(|c| (c.wr_id, c.status))
        .collect();
    assert_eq!(
        done,
        [
            (1, WcStatus::Success),
            (0, WcStatus::Success),
            (2, WcStatus::LocProtErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
}

#[test]
fn an_atomic_needs_exactly_eight_local_bytes() {
    for len in [0, 4, 9] {
        let mut p = pair(|_| ());
        post(&mut p, 1, WrOpcode::AtomicFetchAndAdd, len);
        assert_eq!(failed(&mut p).fault, Fault::MessageTooLong, "{len}");
    }
}

#[test]
fn a_message_longer_than_its_receive_fails_both_sides() {
    for len in [101, 600] {
        let mut p = pair(|_| ());
        receive(&mut p, 1, 4, 100);
        receive(&mut p, 1, 5, 100);
        post(&mut p, 1, WrOpcode::Send, len);
        let cqe = failed(&mut p);
        assert_eq!(
            (cqe.status, cqe.fault),
            (WcStatus::RemInvReqErr, Fault::NakInvalidRequest)
        );
        let recv: Vec<_> = p.nodes[1]
            .take(RECV_CQ)
            .iter()
            .map(|c| (c.wr_id, c.status))
            .collect();
        assert_eq!(recv, [(4, WcStatus::LocLenErr), (5, WcStatus::WrFlushErr)]);
        assert_eq!(p.nodes[1].state(), QpState::Err);
    }
}

#[test]
fn a_bad_receive_list_is_a_remote_operation_error() {
    let mut p = pair(|_| ());
    let bad = [Sge {
        addr: IOVA,
        length: 64,
        lkey: Lkey(3),
    }];
    p.post_recv(
        1,
        &RecvWr {
            wr_id: 4,
            sges: &bad,
        },
    );
    post(&mut p, 1, WrOpcode::Send, 8);
    let cqe = failed(&mut p);
    assert_eq!(
        (cqe.status, cqe.fault),
        (WcStatus::RemOpErr, Fault::NakRemoteOperational)
    );
    let recv = p.nodes[1].take(RECV_CQ);
    assert_eq!(
        (recv[0].wr_id, recv[0].status, recv[0].fault),
        (4, WcStatus::LocProtErr, Fault::LocalKey)
    );
}

#[test]
fn no_receive_ends_in_rnr_retries_exhausted() {
    let mut p = pair(|s| s.rnr_retry = 3);
    post(&mut p, 1, WrOpcode::Send, 8);
    post(&mut p, 2, WrOpcode::Send, 8);
    let cqe = failed(&mut p);
    assert_eq!((cqe.wr_id, cqe.status), (1, WcStatus::RnrRetryExcErr));
    assert_eq!(p.nodes[1].shard.stats().send_rnr_err, 4);
    assert_eq!(p.nodes[1].state(), QpState::Rts);
}

#[test]
fn a_silent_peer_ends_in_retries_exhausted() {
    let mut p = pair(|s| s.retry_cnt = 3);
    p.filter = Some(Box::new(|from, _| {
        if from == 0 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }));
    post(&mut p, 1, WrOpcode::RdmaWrite, 8);
    let cqe = failed(&mut p);
    assert_eq!(
        (cqe.status, cqe.fault.side()),
        (WcStatus::RetryExcErr, Side::Network)
    );
    assert_eq!(p.sent[0], 4, "once and three retries");
}

#[test]
fn memory_that_vanishes_is_an_error_and_no_crash() {
    let mut local = pair(|_| ());
    local.nodes[0].memory.gone_from.set(0x8000);
    post(&mut local, 1, WrOpcode::RdmaWrite, 8);
    assert_eq!(failed(&mut local).fault, Fault::LocalMemory);

    for opcode in [
        WrOpcode::RdmaWrite,
        WrOpcode::RdmaRead,
        WrOpcode::AtomicFetchAndAdd,
    ] {
        let mut remote = pair(|_| ());
        remote.nodes[1].memory.gone_from.set(0x1000);
        post(&mut remote, 1, opcode, 8);
        assert_eq!(
            failed(&mut remote).status,
            WcStatus::RemAccessErr,
            "{opcode:?}"
        );
    }
}

/// The peer has all of it and its answers are lost. What is sent again is the oldest packet, which is there still, and not the newest.
#[test]
fn memory_that_vanishes_after_it_was_sent_stops_nothing_before_it() {
    let mut p = pair(|s| {
        s.recovery = [Recovery::Selective; 2];
        s.window_bytes = 16 * 256;
    });
    let is_deaf = Rc::new(Cell::new(true));
    let lost = is_deaf.clone();
    p.filter = Some(Box::new(move |from, _| match from == 1 && lost.get() {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    post(&mut p, 1, WrOpcode::AtomicFetchAndAdd, 8);
    post(&mut p, 2, WrOpcode::RdmaWrite, 8);
    post(&mut p, 3, WrOpcode::RdmaWrite, 14 * 256);
    p.run_until(p.now + 1_000_000);
    is_deaf.set(false);
    p.nodes[0].memory.gone_from.set(0x8000 + 13 * 256);
    p.run();
    let done = p.nodes[0].take(SEND_CQ);
    let done: Vec<_> = done.iter().map(|c| (c.wr_id, c.fault)).collect();
    assert_eq!(done, [1, 2, 3].map(|wr_id| (wr_id, Fault::None)));
}

#[test]
fn a_read_whose_region_goes_away_under_way_is_refused() {
    let mut p = pair(|_| ());
    post(&mut p, 1, WrOpcode::RdmaRead, 100);
    // The request arrives; before the response leaves, the region is gone.
    p.transmit();
    let now = p.now + 5000;
    let lkey = p.nodes[1].keys.lkey;
    while p.now < now && p.nodes[1].shard.stats().rcvd_pkts == 0 {
        // One step delivers, and its transmit comes with the next.
        p.step();
    }
    assert!(p.nodes[1].mrs.deregister(lkey));
    assert_eq!(failed(&mut p).status, WcStatus::RemAccessErr);
}

#[test]
fn send_with_invalidate_takes_the_key() {
    let mut p = pair(|_| ());
    let init = MrInit {
        pd: PD,
        access: Access(0xf),
        host_addr: 0x3000,
        iova: 0x3000,
        len: 4096,
        remote_invalidate: true,
    };
    let keys = p.nodes[1].mrs.register(init).expect("registers");
    receive(&mut p, 1, 1, 64);
    receive(&mut p, 1, 2, 64);
    post_with(&mut p, WrOpcode::SendWithInv, |wr| wr.rkey = keys.rkey);
    p.run();
    let recv = p.nodes[1].take(RECV_CQ);
    assert_eq!(recv[0].invalidated, Some(keys.rkey));
    assert_eq!(p.nodes[0].take(SEND_CQ)[0].status, WcStatus::Success);
    post_with(&mut p, WrOpcode::RdmaWrite, |wr| {
        (wr.rkey, wr.remote_addr) = (keys.rkey, 0x3000)
    });
    assert_eq!(failed(&mut p).status, WcStatus::RemAccessErr);
}

#[test]
fn a_key_that_may_not_be_invalidated_is_refused() {
    let mut p = pair(|_| ());
    receive(&mut p, 1, 1, 64);
    post_with(&mut p, WrOpcode::SendWithInv, |_| ());
    assert_eq!(failed(&mut p).status, WcStatus::RemAccessErr);
    assert_eq!(p.nodes[1].take(RECV_CQ)[0].status, WcStatus::RemAccessErr);
}

#[test]
fn posting_to_a_failed_qp_completes_as_flushed() {
    let mut p = pair(|_| ());
    post_with(&mut p, WrOpcode::RdmaWrite, |wr| wr.rkey = Rkey(0));
    failed(&mut p);
    post(&mut p, 9, WrOpcode::Send, 8);
    receive(&mut p, 0, 10, 8);
    assert_eq!(p.nodes[0].take(SEND_CQ)[0].fault, Fault::Flushed);
    assert_eq!(p.nodes[0].take(RECV_CQ)[0].fault, Fault::Flushed);
}

#[test]
fn a_full_completion_queue_is_never_silent() {
    let mut p = pair(|_| ());
    p.nodes[0].cqs.capacity = 2;
    for id in 0..4 {
        post(&mut p, id, WrOpcode::RdmaWrite, 8);
    }
    p.run();
    assert_eq!(p.nodes[0].take(SEND_CQ).len(), 2);
    assert_eq!(p.nodes[0].state(), QpState::Err);
    let events = events(&mut p, 0);
    assert!(events.contains(&AsyncEvent::CqErr(SEND_CQ)), "{events:?}");
    assert!(
        events.contains(&AsyncEvent::QpFatal(p.nodes[0].qp)),
        "{events:?}"
    );
}

#[test]
fn a_message_before_rts_of_the_responder_is_received_and_reported() {
    let mut p = pair(|_| ());
    receive(&mut p, 1, 1, 64);
    post(&mut p, 1, WrOpcode::Send, 8);
    p.run();
    assert_eq!(p.nodes[1].take(RECV_CQ)[0].opcode, WcOpcode::Recv);
    assert_eq!(events(&mut p, 1), [], "COMM_EST is for RTR only");
}

/// Whatever a stranger sends, only counters move.
#[test]
fn strangers_change_nothing_but_counters() {
    let mut p = pair(|_| ());
    receive(&mut p, 1, 1, 4096);
    post(&mut p, 1, WrOpcode::Send, 600);
    // A real packet of this connection, caught on the wire.
    let caught = Rc::new(std::cell::RefCell::new(Vec::new()));
    let sink = caught.clone();
    p.filter = Some(Box::new(move |from, bytes| {
        if from == 0 {
            sink.borrow_mut().push(bytes.to_vec());
        }
        Verdict::Drop
    }));
    p.transmit();
    p.filter = None;
    let packet = caught.borrow()[0].clone();
    let before = (
        p.nodes[1].state(),
        p.nodes[1].memory.read(0, 1 << 20),
        p.nodes[1].shard.rq_len(p.nodes[1].qp),
    );
    let (a, b) = (p.nodes[0].addr, p.nodes[1].addr);
    let stranger = "10.9.9.9".parse().expect("an address");
    let mut rng = Rng(5);
    let deliver = |p: &mut Pair, source, local, bytes: &[u8]| {
        let path = RxPath::new(source, 4791, local, 0);
        p.nodes[1].with_env(Time(1), |s, env| s.handle_packet(&path, 0, bytes, env));
    };
    for round in 0..20_000u32 {
        let mut forged = packet.clone();
        match round % 5 {
            // From another address, with an ICRC that fits that address or not.
            0 => deliver(&mut p, stranger, b, &forged),
            1 => deliver(&mut p, a, stranger, &forged),
            2 => {
                let at = rng.below(forged.len() as u64) as usize;
                // Byte 4 of the BTH is not covered by the ICRC.
                if at == 4 {
                    continue;
                }
                forged[at] ^= 1 << rng.below(8);
                deliver(&mut p, a, b, &forged);
            }
            3 => {
                forged.truncate(rng.below(forged.len() as u64) as usize);
                deliver(&mut p, a, b, &forged);
            }
            _ => {
                let len = rng.below(300) as usize;
                let junk = rng.bytes(len);
                deliver(&mut p, a, b, &junk);
            }
        }
    }
    let after = (
        p.nodes[1].state(),
        p.nodes[1].memory.read(0, 1 << 20),
        p.nodes[1].shard.rq_len(p.nodes[1].qp),
    );
    assert!(before == after, "a stranger changed something");
    assert!(p.nodes[1].take(RECV_CQ).is_empty());
    assert!(!p.nodes[1].shard.has_work(), "nothing is answered");
    let stats = p.nodes[1].shard.stats();
    for reason in [
        DropReason::Malformed,
        DropReason::Icrc,
        DropReason::NoQp,
        DropReason::Address,
    ] {
        assert!(stats.dropped_for(reason) > 0, "{reason:?} was not reached");
    }
    assert_eq!(stats.dropped.iter().sum::<u64>(), stats.rcvd_pkts);
    // And the connection goes on.
    p.run();
    assert_eq!(p.nodes[1].take(RECV_CQ).len(), 1);
}

#[test]
fn unsignaled_requests_complete_only_when_they_fail() {
    let mut p = pair(|_| ());
    post_with(&mut p, WrOpcode::RdmaWrite, |wr| wr.flags = SendFlags::NONE);
    p.run();
    assert!(p.nodes[0].take(SEND_CQ).is_empty());
    post_with(&mut p, WrOpcode::RdmaWrite, |wr| {
        (wr.flags, wr.rkey) = (SendFlags::NONE, Rkey(5));
    });
    assert_eq!(failed(&mut p).status, WcStatus::RemAccessErr);
}
