//! Faults on purpose, and captures, of packets that go through memory.

use urxe::{ConnectOptions, Context, FaultSpec, SendWr, Wire};

use super::{end, records};
use crate::common::{End, address, bytes, connect, exchange, pattern};

fn faulty(spec: &str) -> End {
    let spec: FaultSpec = spec.parse().expect("faults");
    let context = Context::builder(address())
        .wire(Wire::Auto)
        .faults(Some(spec));
    End::on(context.open().expect("free"))
}

/// Each kind is seen, recovered from, and damages nothing.
#[test]
fn faults_happen_to_packets_in_memory_and_are_recovered_from() {
    // 17 ms: seven of them pass between two turns of a busy machine's threads only if something is wrong.
    let options = ConnectOptions {
        timeout: 12,
        ..ConnectOptions::default()
    };
    for (spec, counter) in [
        ("drop=5%,seed=3", "fault_dropped"),
        ("dup=5%,seed=3", "fault_duplicated"),
        ("reorder=5%,seed=3", "fault_reordered"),
        ("corrupt=5%,seed=3", "fault_corrupted"),
        ("delay=50us..1ms,seed=3", "fault_delayed"),
    ] {
        let (a, b) = (faulty(spec), end());
        connect(&a.qp, &b.qp, &options);
        for round in 0..20 {
            exchange(&a, &b, round);
        }
        assert!(a.counter(counter) > 0, "{spec}: none");
        assert!(records(&a).iter().all(|&count| count > 0), "{spec}");
        // A damaged packet is seen by its ICRC.
        let damaged = a.counter("fault_corrupted");
        assert!(
            b.counter("drop_icrc") >= damaged / 2,
            "{damaged} were damaged"
        );
    }
}

/// A packet that was lost is sent again although the ring, which other QPs keep busy, is never seen empty.
#[test]
fn a_loss_is_recovered_from_beside_streams() {
    const LEN: usize = 1 << 20;
    let (a, b) = (faulty("drop=2%,seed=5"), end());
    let quick = ConnectOptions {
        timeout: 8,
        ..ConnectOptions::default()
    };
    connect(&a.qp, &b.qp, &quick);
    let (out, target) = (a.memory(LEN), b.memory(LEN));
    out.write(0, &pattern(1, LEN));
    let (ours, theirs) = (End::on(a.context.clone()), End::on(b.context.clone()));
    connect(&ours.qp, &theirs.qp, &quick);
    let sges = [out.sge(..)];
    let stream = || {
        let write = SendWr::rdma_write(9, &sges, target.addr(), target.rkey());
        a.qp.post_send(&write.signaled()).expect("room");
    };
    (0..8).for_each(|_| stream());
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| (0..300).for_each(|round| exchange(&ours, &theirs, round)));
        while !beside.is_finished() {
            a.succeed();
            stream();
        }
    });
    for _ in 0..8 {
        a.succeed();
    }
    assert_eq!(bytes(&target, LEN), pattern(1, LEN));
    assert!(a.counter("fault_dropped") > 0 && records(&a)[0] > 0);
}
