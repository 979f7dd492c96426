//! SENDs of every kind and the receives that take them.

use crate::common::{self, ALL, End, bytes, connect, pair, pair_with, pattern};
use urxe::{ConnectOptions, Context, Fault, Mtu, QpState, RecvWr, SendWr, WcOpcode, WcStatus};

#[test]
fn every_length_around_packets_at_every_mtu() {
    for mtu in Mtu::ALL {
        let options = ConnectOptions {
            path_mtu: Some(mtu),
            ..ConnectOptions::default()
        };
        let (a, b) = pair_with(&options);
        let m = mtu.bytes() as usize;
        let (from, to) = (a.memory(8 * m), b.memory(8 * m));
        let lengths = [
            0,
            1,
            3,
            4,
            5,
            m - 1,
            m,
            m + 1,
            2 * m - 1,
            2 * m,
            2 * m + 1,
            7 * m + 13,
        ];
        for (round, len) in lengths.into_iter().enumerate() {
            let data = pattern(round as u64, len);
            from.write(0, &data);
            to.write(0, &vec![0xee; 8 * m]);
            b.recv(round as u64, &to);
            a.qp.post_send(&SendWr::send(100, &[from.sge(..len)]).signaled())
                .expect("room");
            let wc = b.succeed();
            assert_eq!((wc.wr_id, wc.opcode), (round as u64, WcOpcode::Recv));
            assert_eq!(wc.byte_len as usize, len, "{mtu:?}");
            assert_eq!((wc.qp_num, wc.src_qp), (b.qp.qp_num(), a.qp.qp_num()));
            assert_eq!(bytes(&to, len), data, "{len} bytes at {mtu:?}");
            let rest = bytes(&to, 8 * m).split_off(len);
            assert!(
                rest.iter().all(|&b| b == 0xee),
                "{len} bytes at {mtu:?}: more was written"
            );
            assert_eq!(a.succeed().opcode, WcOpcode::Send);
        }
    }
}

#[test]
fn a_message_longer_than_any_window() {
    let (a, b) = pair();
    const LEN: usize = 6 << 20;
    let (from, to) = (a.memory(LEN), b.memory(LEN));
    let data = pattern(9, LEN);
    from.write(0, &data);
    b.recv(1, &to);
    a.qp.post_send(&SendWr::send(2, &[from.sge(..)]).signaled())
        .expect("room");
    // Both ends are driven by this thread.
    let mut wcs = [urxe::Wc::default(); 4];
    let (mut sent, mut received) = (0, 0);
    common::wait_until("both completions", || {
        sent += a.cq.poll(&mut wcs).expect("polls");
        received += b.cq.poll(&mut wcs).expect("polls");
        sent == 1 && received == 1
    });
    assert!(bytes(&to, LEN) == data, "the bytes differ");
}

#[test]
fn immediate_data_and_invalidation() {
    let (a, b) = pair();
    let (from, to, lent) = (a.memory(8), b.memory(8), b.memory(8));
    lent.set_remote_invalidate(true).expect("the engine works");
    b.recv(1, &to);
    b.recv(2, &to);
    a.qp.post_send(&SendWr::send_with_imm(1, &[from.sge(..)], 0xdead_beef))
        .expect("room");
    a.qp.post_send(&SendWr::send_with_inv(2, &[from.sge(..)], lent.rkey()))
        .expect("room");
    let (imm, inv) = (b.succeed(), b.succeed());
    assert_eq!(
        (imm.imm_data, imm.invalidated_rkey),
        (Some(0xdead_beef), None)
    );
    assert_eq!(
        (inv.imm_data, inv.invalidated_rkey),
        (None, Some(lent.rkey()))
    );
    // The key is dead now.
    let sges = [from.sge(..)];
    let write = SendWr::rdma_write(3, &sges, lent.addr(), lent.rkey()).signaled();
    a.qp.post_send(&write).expect("room");
    assert_eq!(a.complete().status, WcStatus::RemAccessErr);
}

#[test]
fn a_key_is_not_invalidated_unless_that_was_allowed() {
    let (a, b) = pair();
    let (from, to, kept) = (a.memory(8), b.memory(8), b.memory(8));
    b.recv(1, &to);
    let sges = [from.sge(..)];
    let send = SendWr::send_with_inv(2, &sges, kept.rkey()).signaled();
    a.qp.post_send(&send).expect("room");
    assert_eq!(a.complete().status, WcStatus::RemAccessErr);
    assert_eq!(b.complete().status, WcStatus::RemAccessErr);
}

#[test]
fn inline_data_is_copied_by_the_post() {
    let (a, b) = pair();
    let to = b.memory(64);
    b.recv(1, &to);
    let mut text = *b"as it was when posted";
    a.qp.post_send(&SendWr::send_inline(1, &text))
        .expect("room");
    text.fill(b'x');
    assert_eq!(b.succeed().byte_len as usize, text.len());
    assert_eq!(bytes(&to, text.len()), b"as it was when posted");
    let long = vec![0; a.qp.cap().max_inline_data as usize + 1];
    let error =
        a.qp.post_send(&SendWr::send_inline(1, &long))
            .expect_err("too long");
    assert_eq!(error.errno(), 22);
}

#[test]
fn only_signaled_sends_complete_unless_the_qp_signals_all() {
    for all in [false, true] {
        let open = || Context::open(common::address()).expect("free");
        let a = End::with(open(), |qp| if all { qp.signal_all() } else { qp });
        let b = End::open();
        connect(&a.qp, &b.qp, &ConnectOptions::default());
        let (from, to) = (a.memory(8), b.memory(8));
        for wr_id in 0..6 {
            b.recv(wr_id, &to);
        }
        for wr_id in 0..6 {
            let sges = [from.sge(..)];
            let wr = SendWr::send(wr_id, &sges);
            let wr = if wr_id % 3 == 2 { wr.signaled() } else { wr };
            a.qp.post_send(&wr).expect("room");
        }
        let expected: &[u64] = if all { &[0, 1, 2, 3, 4, 5] } else { &[2, 5] };
        for &wr_id in expected {
            assert_eq!(a.succeed().wr_id, wr_id);
        }
        assert_eq!(a.cq.poll(&mut [urxe::Wc::default()]).expect("polls"), 0);
    }
}

#[test]
fn pieces_are_gathered_and_scattered() {
    let (a, b) = pair();
    let (from, to) = (a.memory(10_000), b.memory(10_000));
    let data = pattern(3, 9_000);
    from.write(500, &data);
    let gather = [
        from.sge(500..501),
        from.sge(501..501),
        from.sge(501..5_000),
        from.sge(5_000..9_500),
    ];
    let scatter = [
        to.sge(9_990..),
        to.sge(1_000..8_000),
        to.sge(0..900),
        to.sge(8_000..9_990),
    ];
    b.qp.post_recv(&RecvWr::new(1, &scatter)).expect("room");
    a.qp.post_send(&SendWr::send(1, &gather)).expect("room");
    assert_eq!(b.succeed().byte_len, 9_000);
    let mut received = Vec::new();
    for (offset, len) in [(9_990, 10), (1_000, 7_000), (0, 900), (8_000, 1_090)] {
        let mut piece = vec![0; len];
        to.read(offset, &mut piece);
        received.extend(piece);
    }
    assert!(received == data, "the bytes differ");
}

#[test]
fn a_send_waits_for_its_receive() {
    let (a, b) = pair();
    let (from, to) = (a.memory(8), b.memory(8));
    from.write(0, b"patience");
    a.qp.post_send(&SendWr::send(1, &[from.sge(..)]).signaled())
        .expect("room");
    let mut wc = [urxe::Wc::default()];
    common::wait_until("the refusal", || {
        assert_eq!(
            a.cq.poll(&mut wc).expect("polls") + b.cq.poll(&mut wc).expect("polls"),
            0
        );
        b.counter("send_rnr_err") > 0
    });
    b.recv(1, &to);
    assert_eq!(b.succeed().byte_len, 8);
    assert_eq!(bytes(&to, 8), b"patience");
    a.succeed();
}

#[test]
fn a_message_too_long_for_its_receive_fails_both_ends() {
    let (a, b) = pair();
    let (from, to) = (a.memory(9), b.memory(8));
    b.recv(1, &to);
    a.qp.post_send(&SendWr::send(2, &[from.sge(..)]))
        .expect("room");
    let wc = b.complete();
    assert_eq!(
        (wc.wr_id, wc.status, wc.fault()),
        (1, WcStatus::LocLenErr, Fault::RecvTooShort)
    );
    let wc = a.complete();
    assert_eq!((wc.wr_id, wc.status), (2, WcStatus::RemInvReqErr), "{wc}");
    assert_eq!(wc.fault().side(), urxe::Side::Remote);
}

#[test]
fn many_qps_of_one_context_and_both_directions() {
    let (a, b) = (End::open(), End::open());
    const QPS: usize = 100;
    let create = |end: &End| -> Vec<_> {
        (0..QPS)
            .map(|_| end.pd.qp(&end.cq).max_send_wr(4).create().expect("a QP"))
            .collect()
    };
    let (of_a, of_b) = (create(&a), create(&b));
    let (mem_a, mem_b) = (a.memory(QPS * 64), b.memory(QPS * 64));
    let place = |n: usize| n * 64..n * 64 + 64;
    for (n, (qa, qb)) in of_a.iter().zip(&of_b).enumerate() {
        connect(qa, qb, &ConnectOptions::default());
        qa.post_recv(&RecvWr::new(n as u64, &[mem_a.sge(place(n))]))
            .expect("room");
        qb.post_recv(&RecvWr::new(n as u64, &[mem_b.sge(place(n))]))
            .expect("room");
    }
    for (n, (qa, qb)) in of_a.iter().zip(&of_b).enumerate() {
        let text = format!("message {n}");
        qa.post_send(&SendWr::send_inline(0, text.as_bytes()))
            .expect("room");
        qb.post_send(&SendWr::send_inline(0, text.as_bytes()))
            .expect("room");
    }
    for (end, memory) in [(&a, &mem_a), (&b, &mem_b)] {
        let mut seen = [false; QPS];
        for _ in 0..QPS {
            let wc = end.succeed();
            let n = wc.wr_id as usize;
            assert!(
                !std::mem::replace(&mut seen[n], true),
                "receive {n} completed twice"
            );
            let text = format!("message {n}");
            let mut received = vec![0; text.len()];
            memory.read(n * 64, &mut received);
            assert_eq!(
                (received, wc.byte_len as usize),
                (text.clone().into(), text.len())
            );
        }
    }
}

#[test]
fn over_ipv6_and_between_qps_of_one_context() {
    let (addr, _turn) = common::v6_in_turn();
    let context = match Context::open(addr) {
        Ok(context) => context,
        Err(error) => {
            println!("skipped: no IPv6 here ({error})");
            return;
        }
    };
    let (a, b) = (End::on(context.clone()), End::on(context));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let (from, to) = (a.memory(100_000), b.memory(100_000));
    let data = pattern(6, 100_000);
    from.write(0, &data);
    b.recv(1, &to);
    a.qp.post_send(&SendWr::send(2, &[from.sge(..)]).signaled())
        .expect("room");
    assert_eq!(b.succeed().byte_len, 100_000);
    a.succeed();
    assert!(bytes(&to, 100_000) == data, "the bytes differ");
    assert_eq!(a.counter("drop_icrc"), 0);
}

#[test]
fn without_offload_the_same_bytes_arrive() {
    let open = || {
        Context::builder(common::address())
            .offload(false)
            .open()
            .expect("free")
    };
    let (a, b) = (End::on(open()), End::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let (from, to) = (a.memory(300_000), b.memory(300_000));
    let data = pattern(8, 300_000);
    for (source, from, sink, to) in [(&a, &from, &b, &to), (&b, &to, &a, &from)] {
        from.write(0, &data);
        to.write(0, &vec![0; data.len()]);
        sink.recv(1, to);
        source
            .qp
            .post_send(&SendWr::send(2, &[from.sge(..)]))
            .expect("room");
        sink.succeed();
        assert!(bytes(to, data.len()) == data, "the bytes differ");
    }
}

#[test]
fn local_faults_are_told_by_name() {
    let (a, b) = pair();
    let foreign = b.memory(8);
    let wr = [foreign.sge(..)];
    a.qp.post_send(&SendWr::send(5, &wr))
        .expect("found when it is sent");
    let wc = a.complete();
    assert_eq!((wc.wr_id, wc.status), (5, WcStatus::LocProtErr));
    assert_eq!(wc.fault(), Fault::LocalKey, "{wc}");
    // Everything after it is flushed, also what is posted now.
    a.qp.post_send(&SendWr::send_inline(6, b""))
        .expect("taken in the error state");
    let wc = a.complete();
    assert_eq!((wc.wr_id, wc.status), (6, WcStatus::WrFlushErr));
    let _ = ALL;
}

/// An ACK may be held back for a while, but not beyond the end of the QP that owes it.
#[test]
fn a_receiver_that_leaves_at_once_has_acknowledged() {
    let leave: [fn(End); 3] = [
        drop,
        |b| b.qp.modify_state(QpState::Reset).expect("any QP can"),
        |b| b.qp.modify_state(QpState::Err).expect("any QP can"),
    ];
    for leave in leave {
        let (a, b) = pair();
        let (from, to) = (a.memory(64), b.memory(64));
        b.recv(1, &to);
        a.qp.post_send(&SendWr::send(2, &[from.sge(..)]).signaled())
            .expect("room");
        b.succeed();
        drop(to);
        leave(b);
        assert_eq!(a.succeed().wr_id, 2);
    }
}
