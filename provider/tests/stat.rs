//! What other processes of the same user see of this one.

use crate::common::{End, address, connect, nobody, pair_with, qp_status, stat_entry};
use urxe::{ConnectOptions, Context, Mtu, SendWr, Wire};

#[test]
fn qps_are_listed_with_their_state_peer_and_queues() {
    let hasty = ConnectOptions {
        rnr_retry: 1,
        ..ConnectOptions::default()
    };
    let (a, b) = pair_with(&hasty);
    let fresh = a.pd.qp(&a.cq).max_recv_wr(7).create().expect("a QP");
    let status = qp_status(&a.context, &fresh);
    assert_eq!((&*status.state, &*status.qp_type), ("RESET", "Rc"));
    assert_eq!((status.peer, status.rq), (None, (0, 7)));
    assert_eq!((status.last_error, status.counters), (None, vec![]));

    let to = b.memory(8);
    b.recv(1, &to);
    b.recv(2, &to);
    a.qp.post_send(&SendWr::send_inline(1, b"x").signaled())
        .expect("room");
    a.succeed();
    let sender = qp_status(&a.context, &a.qp);
    let peer = format!("{}/{:#x}", b.context.address(), b.qp.qp_num().get());
    assert_eq!((&*sender.state, sender.peer), ("RTS", Some(peer)));
    let first = a.qp.endpoint().psn;
    assert_eq!(sender.psns[..2], [first.next().get(); 2]);
    let receiver = qp_status(&b.context, &b.qp);
    assert_eq!((receiver.rq.0, receiver.psns[2]), (1, first.next().get()));

    // Without a receive: what went wrong is counted on both sides, and told by one.
    b.succeed();
    for n in 0..2 {
        a.qp.post_send(&SendWr::send_inline(n, b"x").signaled())
            .expect("room");
    }
    a.succeed();
    assert!(!a.complete().is_success());
    let sender = qp_status(&a.context, &a.qp);
    assert_eq!(sender.state, "ERR");
    let error = sender.last_error.expect("it failed");
    assert!(error.contains("none, 2 times (rnr_retry 1)"), "{error}");
    let count = |qp: &[(String, u64)], name: &str| {
        let found = qp.iter().find(|(n, _)| n == name);
        found.map_or(0, |(_, value)| *value)
    };
    // More if the receiver was late: it is asked once more then, and says it again.
    assert!(count(&sender.counters, "rcvd_rnr_err") >= 2);
    let receiver = qp_status(&b.context, &b.qp);
    assert!(count(&receiver.counters, "send_rnr_err") >= 2);
    // A reset forgets it.
    a.qp.modify_state(urxe::QpState::Reset).expect("from ERR");
    let sender = qp_status(&a.context, &a.qp);
    assert_eq!((sender.last_error, sender.counters), (None, vec![]));
}

/// Each side says what its own packets leave through; memory needs both.
#[test]
fn qps_say_which_wire_their_packets_leave_through() {
    let end = |wire| End::on(Context::builder(address()).wire(wire).open().expect("free"));
    for (of_a, of_b, wanted) in [
        (Wire::Auto, Wire::Auto, "memory"),
        (Wire::Auto, Wire::Sockets, "sockets"),
        (Wire::Sockets, Wire::Auto, "sockets"),
    ] {
        let (a, b) = (end(of_a), end(of_b));
        let wire = |end: &End| qp_status(&end.context, &end.qp).wire;
        assert_eq!(wire(&a), None, "without a peer");
        connect(&a.qp, &b.qp, &ConnectOptions::default());
        for end in [&a, &b] {
            assert_eq!(wire(end).as_deref(), Some(wanted), "{of_a:?}, {of_b:?}");
        }
    }
}

#[test]
fn the_list_has_all_of_many_and_goes_with_the_context() {
    let a = End::open();
    let qps: Vec<_> = (0..700)
        .map(|_| {
            let small = a.pd.qp(&a.cq).max_send_wr(1).max_recv_wr(1);
            small.create().expect("a QP")
        })
        .collect();
    let listed = stat_entry(&a.context).qps().expect("answers");
    assert_eq!(listed.len(), 701);
    for qp in &qps {
        assert!(listed.iter().any(|l| l.qpn == qp.qp_num().get()));
    }
    drop(qps);
    let entry = stat_entry(&a.context);
    assert_eq!(entry.qps().expect("answers").len(), 1);
    drop(a);
    assert!(entry.qps().is_err(), "nobody is there to answer");
}

/// The names of Linux's rdma_rxe are all there.
#[test]
fn counters_bear_the_kernel_drivers_names() {
    let context = Context::open(address()).expect("free");
    let counters = context.counters().expect("counters");
    for name in [
        "sent_pkts",
        "rcvd_pkts",
        "duplicate_request",
        "out_of_seq_request",
        "rcvd_rnr_err",
        "send_rnr_err",
        "rcvd_seq_err",
        "ack_deferred",
        "retry_exceeded_err",
        "retry_rnr_exceeded_err",
        "completer_retry_err",
        "send_err",
        "link_downed",
        "rdma_sends",
        "rdma_recvs",
    ] {
        assert!(counters.iter().any(|(n, _)| *n == name), "no {name}");
    }
    // And each says what it counts.
    for (name, _) in counters {
        assert!(!urxe::explain(name).is_empty(), "{name} is not explained");
    }
}

#[test]
fn counters_count() {
    let (a, b) = (End::open(), End::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let to = b.memory(8);
    for n in 0..3 {
        b.recv(n, &to);
        a.qp.post_send(&SendWr::send_inline(n, b"x").signaled())
            .expect("room");
        a.succeed();
        b.succeed();
    }
    assert_eq!((a.counter("rdma_sends"), b.counter("rdma_recvs")), (3, 3));
    let hasty = ConnectOptions {
        timeout: 7,
        retry_cnt: 2,
        ..ConnectOptions::default()
    };
    let c = End::open();
    c.qp.connect(&nobody(Mtu::Mtu1024), &hasty)
        .expect("connects");
    c.qp.post_send(&SendWr::send_inline(1, b"x")).expect("room");
    assert!(!c.complete().is_success());
    assert_eq!(c.counter("completer_retry_err"), 2);
    assert_eq!(c.counter("retry_exceeded_err"), 1);
}
