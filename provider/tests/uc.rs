//! Unreliable connections over real sockets.

use crate::common::*;
use urxe::{
    ConnectOptions, ErrorKind, PostError, QpState, QpType, SendWr, WcOpcode, WcStatus, WrOpcode,
};

fn uc_end() -> End {
    let context = urxe::Context::open(address()).expect("the address is free");
    End::with(context, |qp| qp.qp_type(QpType::Uc))
}

fn uc_pair() -> (End, End) {
    let (a, b) = (uc_end(), uc_end());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    (a, b)
}

#[test]
fn messages_and_writes_arrive() {
    let (a, b) = uc_pair();
    assert_eq!(a.qp.qp_type(), QpType::Uc);
    let (from, to, target) = (a.memory(20_000), b.memory(20_000), b.memory(20_000));
    for round in 0..50u64 {
        let sent = pattern(round, 17_000);
        from.write(0, &sent);
        b.recv(1, &to);
        let sges = [from.sge(..17_000)];
        a.qp.post_send(&SendWr::send_with_imm(7, &sges, 77).signaled())
            .expect("posts");
        assert_eq!(a.succeed().wr_id, 7);
        let wc = b.succeed();
        assert_eq!((wc.byte_len, wc.imm_data), (17_000, Some(77)));
        assert_eq!((wc.src_qp, wc.grh), (a.qp.qp_num(), false));
        assert_eq!(bytes(&to, 17_000), sent);

        b.recv(2, &to);
        let write = SendWr::rdma_write_with_imm(8, &sges, target.addr(), target.rkey(), 88);
        a.qp.post_send(&write.signaled()).expect("posts");
        a.succeed();
        let wc = b.succeed();
        assert_eq!(
            (wc.opcode, wc.byte_len, wc.imm_data),
            (WcOpcode::RecvRdmaWithImm, 17_000, Some(88))
        );
        assert_eq!(bytes(&target, 17_000), sent);
    }
    assert_eq!(b.counter("ack_sent"), 0);
}

#[test]
fn what_nobody_receives_is_lost_without_a_word() {
    let (a, b) = uc_pair();
    let from = a.memory(100);
    let sges = [from.sge(..)];
    a.qp.post_send(&SendWr::send(1, &sges).signaled())
        .expect("posts");
    a.succeed();
    wait_until("the drop", || b.counter("drop_no_receive") == 1);
    let nowhere = SendWr::rdma_write(2, &sges, 0x1000, urxe::Rkey(0x1234_5678));
    a.qp.post_send(&nowhere.signaled()).expect("posts");
    a.succeed();
    wait_until("the drop", || b.counter("drop_refused") == 1);
    for end in [&a, &b] {
        assert_eq!(end.qp.state().expect("known"), QpState::Rts);
    }
}

#[test]
fn reads_and_atomics_are_refused() {
    let (a, b) = uc_pair();
    let (here, there) = (a.memory(8), b.memory(8));
    let sges = [here.sge(..)];
    let (addr, rkey) = (there.addr(), there.rkey());
    for (wr, opcode) in [
        (SendWr::rdma_read(1, &sges, addr, rkey), WrOpcode::RdmaRead),
        (
            SendWr::atomic_fetch_add(1, &sges, addr, rkey, 1),
            WrOpcode::AtomicFetchAndAdd,
        ),
        (SendWr::send_with_inv(1, &sges, rkey), WrOpcode::SendWithInv),
    ] {
        let error = a.qp.post_send(&wr).expect_err("refused");
        let qp_type = QpType::Uc;
        assert_eq!(
            *error.kind(),
            ErrorKind::Post(PostError::NotCarried { opcode, qp_type })
        );
        assert_eq!(error.errno(), libc_einval());
    }
}

fn libc_einval() -> i32 {
    22
}

#[test]
fn a_bad_send_stops_sends_until_a_modify_and_receives_go_on() {
    let (a, b) = uc_pair();
    let (here, there) = (a.memory(64), b.memory(64));
    let mut bad = here.sge(..);
    bad.lkey = urxe::Lkey(bad.lkey.0 ^ 0x100);
    a.qp.post_send(&SendWr::send(1, &[bad])).expect("posts");
    assert_eq!(a.complete().status, WcStatus::LocProtErr);
    assert_eq!(a.qp.state().expect("known"), QpState::Sqe);
    a.qp.post_send(&SendWr::send(2, &[here.sge(..)]))
        .expect("posts");
    assert_eq!(a.complete().status, WcStatus::WrFlushErr);
    a.recv(3, &here);
    b.qp.post_send(&SendWr::send_inline(4, b"still there?"))
        .expect("posts");
    assert_eq!(a.succeed().byte_len, 12);
    a.qp.modify_state(QpState::Rts).expect("from SQE to RTS");
    b.recv(5, &there);
    a.qp.post_send(&SendWr::send_inline(6, b"yes"))
        .expect("posts");
    assert_eq!(b.succeed().byte_len, 3);
}
