//! Every completion status, brought about over real sockets: one test for each, and one
//! that fails when a status has none.

use crate::common::{self, End, connect, nobody, pair, pair_with};
use crate::fake_peer::{self, FakePeer};
use urxe::{
    Access, ConnectOptions, Fault, Lkey, Mr, Mtu, Qp, QpState, RecvWr, Rkey, Rvh, SendWr, Sge,
    Side, Srq, SrqAttr, TagHandle, TagRecv, TmCap, Tmh, TmhOp, Wc, WcStatus,
};
use urxe_wire::{Aeth, Msn, NakCode, Opcode, Syndrome};

/// A way to a status: both ends' completions, or as many as matter.
type Scenario = fn() -> Vec<Wc>;

macro_rules! scenarios {
    ($($status:ident: $name:ident;)*) => {
        const SCENARIOS: &[(WcStatus, Scenario)] = &[$((WcStatus::$status, $name),)*];

        mod each {
            use super::*;
            $(
                #[test]
                fn $name() {
                    reaches(WcStatus::$status, super::$name);
                }
            )*
        }
    };
}

scenarios! {
    Success: success;
    LocLenErr: loc_len_err;
    LocQpOpErr: loc_qp_op_err;
    LocProtErr: loc_prot_err;
    WrFlushErr: wr_flush_err;
    BadRespErr: bad_resp_err;
    RemInvReqErr: rem_inv_req_err;
    RemAccessErr: rem_access_err;
    RemOpErr: rem_op_err;
    RetryExcErr: retry_exc_err;
    RnrRetryExcErr: rnr_retry_exc_err;
    TmErr: tm_err;
    TmRndvIncomplete: tm_rndv_incomplete;
}

/// Brought about on the virtual wire of the core's tests: the file, and the test.
const ELSEWHERE: &[(WcStatus, &str, &str)] = &[(
    WcStatus::MwBindErr,
    include_str!("../core/tests/windows.rs"),
    "a_failed_bind_is_a_bind_error_and_the_end_of_the_qp",
)];

#[track_caller]
fn reaches(status: WcStatus, scenario: Scenario) {
    let wcs = scenario();
    let wc = wcs.iter().find(|wc| wc.status == status);
    let wc = wc.unwrap_or_else(|| panic!("no {status:?} among {wcs:?}"));
    assert_eq!(wc.fault().status(), status, "the reason fits");
    assert_eq!(wc.is_success(), status == WcStatus::Success);
    assert_eq!(wc.fault() == Fault::None, wc.is_success());
    assert!(wc.to_string().contains(&status.to_string()) || wc.is_success());
}

#[test]
fn every_status_has_a_scenario_or_a_reason_to_have_none() {
    for &status in WcStatus::ALL {
        let here = SCENARIOS.iter().any(|(s, _)| *s == status);
        let elsewhere = ELSEWHERE
            .iter()
            .any(|(s, text, test)| *s == status && text.contains(&format!("#[test]\nfn {test}()")));
        let never = status.why_never().is_some();
        assert_eq!(
            usize::from(here) + usize::from(elsewhere) + usize::from(never),
            1,
            "{status:?} ({}) needs one scenario, or a reason to have none",
            status.verbs_name()
        );
    }
}

/// The numbers are those of `enum ibv_wc_status`, without a gap.
#[test]
fn statuses_have_the_numbers_of_verbs() {
    for (number, &status) in WcStatus::ALL.iter().enumerate() {
        assert_eq!(status as usize, number, "{status:?}");
        assert_eq!(WcStatus::from_number(number as u32), Some(status));
    }
    assert_eq!(WcStatus::from_number(WcStatus::ALL.len() as u32), None);
    assert_eq!(WcStatus::RnrRetryExcErr as u32, 13);
    assert_eq!(WcStatus::TmRndvIncomplete as u32, 23);
}

fn hasty() -> ConnectOptions {
    ConnectOptions {
        timeout: 7,
        retry_cnt: 1,
        rnr_retry: 1,
        ..ConnectOptions::default()
    }
}

fn send(end: &End, wr_id: u64) {
    end.qp
        .post_send(&SendWr::send_inline(wr_id, b"message").signaled())
        .expect("room");
}

fn success() -> Vec<Wc> {
    let (a, b) = pair();
    let to = b.memory(8);
    b.recv(2, &to);
    send(&a, 1);
    vec![a.complete(), b.complete()]
}

/// A message that is longer than the receive.
fn loc_len_err() -> Vec<Wc> {
    let (a, b) = pair();
    let to = b.memory(4);
    b.recv(2, &to);
    send(&a, 1);
    let (local, remote) = (b.complete(), a.complete());
    assert_eq!(
        (local.wr_id, local.fault()),
        (2, Fault::RecvTooShort),
        "{local}"
    );
    assert_eq!(remote.status, WcStatus::RemInvReqErr, "{remote}");
    let detail = b.qp.last_error().expect("there").expect("it failed");
    assert!(detail.expected.contains("at most 4 bytes"), "{detail}");
    vec![local]
}

/// The other completion queue of the QP overran while a send was outstanding.
fn loc_qp_op_err() -> Vec<Wc> {
    let (a, b) = (End::open(), End::open());
    let small = a.context.create_cq(1).expect("a CQ");
    let qp = a.pd.qp(&a.cq).recv_cq(&small).create().expect("a QP");
    connect(&qp, &b.qp, &ConnectOptions::default());
    let to = a.memory(8);
    for n in 0..2 {
        let sges = [to.sge(..)];
        qp.post_recv(&RecvWr::new(n, &sges)).expect("room");
    }
    // No receive is posted for it: it waits.
    qp.post_send(&SendWr::send_inline(7, b"message").signaled())
        .expect("room");
    send(&b, 1);
    send(&b, 2);
    let wc = common::poll(&a.cq);
    assert_eq!((wc.wr_id, wc.fault()), (7, Fault::CqOverrun), "{wc}");
    vec![wc]
}

fn loc_prot_err() -> Vec<Wc> {
    let (a, b) = pair();
    let sge = Sge {
        addr: 0x1000,
        length: 8,
        lkey: Lkey(0x77),
    };
    a.qp.post_send(&SendWr::send(1, &[sge])).expect("room");
    let wc = a.complete();
    assert_eq!((wc.wr_id, wc.fault()), (1, Fault::LocalKey), "{wc}");
    drop(b);
    vec![wc]
}

/// On both queues, posted before and after the failure.
fn wr_flush_err() -> Vec<Wc> {
    let a = End::open();
    a.qp.connect(&nobody(Mtu::Mtu1024), &ConnectOptions::default())
        .expect("connects");
    let to = a.memory(8);
    a.recv(1, &to);
    send(&a, 2);
    a.qp.modify_state(QpState::Err).expect("from everywhere");
    a.recv(3, &to);
    send(&a, 4);
    let mut wcs: Vec<Wc> = (0..4).map(|_| a.complete()).collect();
    assert!(wcs.iter().all(|wc| wc.status == WcStatus::WrFlushErr));
    wcs.sort_by_key(|wc| wc.wr_id);
    let ids: Vec<u64> = wcs.iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    wcs
}

/// A READ response to a SEND.
fn bad_resp_err() -> Vec<Wc> {
    let a = End::open();
    let mut peer = FakePeer::of(&a, &hasty());
    send(&a, 1);
    let psn = peer.next().psn;
    let (syndrome, msn) = (Syndrome(0), Msn::ZERO);
    peer.send(Opcode::RC_READ_RESPONSE_ONLY, psn, 8, |writer| {
        writer.aeth(&Aeth { syndrome, msn });
    });
    let wc = a.complete();
    assert_eq!(wc.fault(), Fault::UnexpectedResponse, "{wc}");
    vec![wc]
}

/// An operation that the QP does not allow: the requester's view, and that of a receive.
fn rem_inv_req_err() -> Vec<Wc> {
    let a = End::open();
    let b = End::open();
    connect(
        &a.qp,
        &b.qp,
        &ConnectOptions {
            access: Access::LOCAL_WRITE,
            ..ConnectOptions::default()
        },
    );
    let (from, target) = (a.memory(8), b.memory(8));
    let sges = [from.sge(..)];
    let wr = SendWr::rdma_read(1, &sges, target.addr(), target.rkey());
    a.qp.post_send(&wr).expect("room");
    let wc = a.complete();
    assert_eq!(
        (wc.fault(), wc.fault().side()),
        (Fault::NakInvalidRequest, Side::Remote)
    );
    // The responder's text names the right that it lacks.
    let detail = b.qp.last_error().expect("there").expect("it failed");
    assert!(detail.found.contains("needs REMOTE_READ"), "{detail}");
    // A receive that was being filled when an impossible packet came.
    let c = End::open();
    let peer = FakePeer::of(&c, &hasty());
    let to = c.memory(4096);
    c.recv(5, &to);
    let first = urxe::Psn::new(fake_peer::PSN);
    peer.send(Opcode::RC_SEND_FIRST, first, 1024, |_| ());
    peer.send(Opcode::RC_SEND_ONLY, first.next(), 8, |_| ());
    let receive = c.complete();
    assert_eq!(
        (receive.wr_id, receive.fault()),
        (5, Fault::ResponderInvalidRequest),
        "{receive}"
    );
    vec![wc, receive]
}

/// A wrong rkey; and at the other side a receive that was being filled.
fn rem_access_err() -> Vec<Wc> {
    let (a, b) = pair();
    let from = a.memory(8);
    let sges = [from.sge(..)];
    let wr = SendWr::rdma_write(1, &sges, 0x1000, Rkey(0x77));
    a.qp.post_send(&wr).expect("room");
    let wc = a.complete();
    assert_eq!(wc.fault(), Fault::NakRemoteAccess, "{wc}");
    drop(b);
    // The receive is taken by a SEND that invalidates a key which is none.
    let (a, b) = pair();
    let to = b.memory(8);
    b.recv(2, &to);
    let from = a.memory(8);
    let sges = [from.sge(..)];
    let wr = SendWr::send_with_inv(1, &sges, Rkey(0x77));
    a.qp.post_send(&wr).expect("room");
    let receive = b.complete();
    assert_eq!(receive.fault(), Fault::ResponderAccess, "{receive}");
    assert_eq!(a.complete().status, WcStatus::RemAccessErr);
    vec![wc, receive]
}

/// The receive's own memory is at fault.
fn rem_op_err() -> Vec<Wc> {
    let (a, b) = pair();
    let sge = Sge {
        addr: 0x1000,
        length: 64,
        lkey: Lkey(0x77),
    };
    b.qp.post_recv(&RecvWr::new(2, &[sge])).expect("room");
    send(&a, 1);
    let receive = b.complete();
    assert_eq!(
        (receive.status, receive.fault()),
        (WcStatus::LocProtErr, Fault::LocalKey)
    );
    let wc = a.complete();
    assert_eq!(wc.fault(), Fault::NakRemoteOperational, "{wc}");
    vec![wc]
}

/// No peer answers; and a peer asks for the same packet again and again.
fn retry_exc_err() -> Vec<Wc> {
    let a = End::open();
    a.qp.connect(&nobody(Mtu::Mtu1024), &hasty())
        .expect("connects");
    send(&a, 1);
    let silence = a.complete();
    assert_eq!(silence.fault(), Fault::AckTimeout, "{silence}");

    let a = End::open();
    let patient = ConnectOptions {
        timeout: 20,
        retry_cnt: 0,
        ..ConnectOptions::default()
    };
    let mut peer = FakePeer::of(&a, &patient);
    send(&a, 1);
    let psn = peer.next().psn;
    peer.nak(psn, NakCode::PsnSequence);
    let gaps = a.complete();
    assert_eq!(gaps.fault(), Fault::SequenceExhausted, "{gaps}");
    vec![silence, gaps]
}

fn rnr_retry_exc_err() -> Vec<Wc> {
    let (a, b) = pair_with(&hasty());
    send(&a, 1);
    let wc = a.complete();
    assert_eq!(wc.fault(), Fault::RnrExhausted, "{wc}");
    assert_eq!(
        b.qp.state().expect("there"),
        QpState::Rts,
        "it did nothing wrong"
    );
    vec![wc]
}

/// What a peer may say with a NAK, code by code.
#[test]
fn every_nak_of_a_peer_has_its_status() {
    for code in 0..32u8 {
        let a = End::open();
        let patient = ConnectOptions {
            timeout: 20,
            retry_cnt: 0,
            ..ConnectOptions::default()
        };
        let mut peer = FakePeer::of(&a, &patient);
        send(&a, 1);
        send(&a, 2);
        let psn = peer.next().psn;
        peer.answer(psn, Syndrome(0x60 | code));
        let expected = match code {
            0 => (WcStatus::RetryExcErr, Fault::SequenceExhausted),
            1 => (WcStatus::RemInvReqErr, Fault::NakInvalidRequest),
            2 => (WcStatus::RemAccessErr, Fault::NakRemoteAccess),
            3 => (WcStatus::RemOpErr, Fault::NakRemoteOperational),
            // Invalid RD request, and unassigned codes.
            _ => (WcStatus::RemOpErr, Fault::NakUnknown),
        };
        let wc = a.complete();
        assert_eq!(
            (wc.wr_id, wc.status, wc.fault()),
            (1, expected.0, expected.1),
            "{code}"
        );
        assert_eq!(a.complete().status, WcStatus::WrFlushErr);
        assert_eq!(a.qp.state().expect("there"), QpState::Err);
    }
}

/// RNR NAKs of a peer are counted like those of a peer of ours, and reserved syndromes
/// are ignored.
#[test]
fn other_syndromes_of_a_peer() {
    let a = End::open();
    let options = ConnectOptions {
        timeout: 20,
        rnr_retry: 0,
        ..ConnectOptions::default()
    };
    let mut peer = FakePeer::of(&a, &options);
    send(&a, 1);
    let psn = peer.next().psn;
    peer.answer(psn, Syndrome(0x40));
    peer.answer(psn, Syndrome(0x5f));
    common::wait_until("both arrive", || {
        a.cq.poll(&mut []).expect("polls");
        a.counter("rcvd_pkts") == 2
    });
    assert_eq!(a.qp.state().expect("there"), QpState::Rts);
    peer.answer(psn, Syndrome(0x20 | 1));
    let wc = a.complete();
    assert_eq!(wc.fault(), Fault::RnrExhausted, "{wc}");
}

#[test]
fn statuses_are_told_in_words() {
    for status in WcStatus::ALL {
        assert!(status.verbs_name().starts_with("IBV_WC_"), "{status:?}");
        assert!(!status.to_string().is_empty());
    }
}

/// A queue with one tag, and a QP that is connected to `sender`.
fn tagged(end: &End, sender: &End, memory: &Mr) -> (Srq, TagHandle, Qp) {
    let srq = end
        .pd
        .create_tm_srq(&end.cq, &SrqAttr::default(), &TmCap::default())
        .expect("a queue");
    let recv = TagRecv {
        recv_wr_id: 5,
        tag: 1,
        mask: u64::MAX,
        sges: &[memory.sge(..)],
    };
    let handle = srq.add_tag(&recv).expect("room");
    let qp = end.pd.qp(&end.cq).srq(&srq).create().expect("a QP");
    connect(&qp, &sender.qp, &ConnectOptions::default());
    (srq, handle, qp)
}

/// A tag is removed that was removed before.
fn tm_err() -> Vec<Wc> {
    let (a, b) = (End::open(), End::open());
    let memory = a.memory(8);
    let (srq, handle, _qp) = tagged(&a, &b, &memory);
    srq.del_tag(6, handle).expect("posts");
    srq.del_tag(7, handle).expect("posts");
    let wc = a.complete();
    assert_eq!((wc.wr_id, wc.fault()), (7, Fault::TagGone), "{wc}");
    vec![wc]
}

/// A rendezvous of more bytes than the tag's memory has.
fn tm_rndv_incomplete() -> Vec<Wc> {
    let (a, b) = (End::open(), End::open());
    let memory = a.memory(40);
    let (_srq, _, _qp) = tagged(&a, &b, &memory);
    let tmh = Tmh {
        opcode: TmhOp::Rndv as u8,
        tag: 1,
        ..Tmh::default()
    };
    let rvh = Rvh {
        len: 41,
        ..Rvh::default()
    };
    let request = [&tmh.emit()[..], &rvh.emit(), b"more"].concat();
    b.qp.post_send(&SendWr::send_inline(1, &request).signaled())
        .expect("room");
    let wc = a.complete();
    assert_eq!((wc.wr_id, wc.byte_len), (5, 36), "{wc}");
    assert_eq!(wc.tm.tag, 1);
    assert_eq!(common::bytes(&memory, 36), request);
    assert!(b.complete().is_success(), "to its sender it is a SEND");
    vec![wc]
}
