//! Faults on the wire, on purpose: what the transport makes of them, and what is counted.

use crate::common::{End, address, bytes, connect, exchange, pattern};
use urxe::{ConnectOptions, Context, ErrorKind, FaultSpec, Mtu, SendWr};

fn open(faults: &str) -> End {
    let spec: FaultSpec = faults.parse().expect("a specification");
    let builder = Context::builder(address()).faults(Some(spec));
    End::on(builder.open().expect("the address is free"))
}

/// Prompt retransmission, so that losses cost the test little time.
fn options() -> ConnectOptions {
    ConnectOptions {
        path_mtu: Some(Mtu::Mtu256),
        timeout: 10,
        ..ConnectOptions::default()
    }
}

const COUNTERS: [&str; 4] = [
    "fault_dropped",
    "fault_duplicated",
    "fault_reordered",
    "fault_corrupted",
];

#[test]
fn everything_arrives_in_spite_of_all_faults() {
    let spec = "drop=2%,dup=1%,reorder=1%,corrupt=0.5%,seed=7";
    let (a, b) = (open(spec), open(spec));
    connect(&a.qp, &b.qp, &options());
    for seed in 0..40 {
        exchange(&a, &b, seed);
    }
    for name in COUNTERS {
        assert!(a.counter(name) > 0 && b.counter(name) > 0, "{name}");
    }
    // What was damaged was seen to be.
    let damaged = a.counter("fault_corrupted") + b.counter("fault_corrupted");
    let seen: u64 = [&a, &b]
        .iter()
        .flat_map(|end| end.context.counters().expect("counters"))
        .filter(|(name, _)| name.starts_with("drop_"))
        .map(|(_, count)| count)
        .sum();
    assert!(seen > 0, "{damaged} packets were damaged");
}

/// ACKs that leave when a QP goes, after both sides have sent; and how many packets came or left again before.
fn acks_in_the_end(faults: Option<&str>) -> (u64, u64) {
    let open = || faults.map_or_else(End::open, open);
    let (a, b) = (open(), open());
    connect(&a.qp, &b.qp, &options());
    for seed in 0..10 {
        exchange(&a, &b, seed);
    }
    let into = b.memory(8);
    b.recv(1, &into);
    let send = SendWr::send_inline(2, b"the last").signaled();
    a.qp.post_send(&send).expect("room");
    a.succeed();
    b.succeed();
    let lost = [
        "retransmitted_pkts",
        "duplicate_request",
        "out_of_seq_request",
    ];
    let lost = lost.map(|name| b.counter(name)).iter().sum();
    let before = b.counter("ack_sent");
    let End { context, qp, .. } = b;
    drop(qp);
    let counters = context.counters().expect("counters");
    let after = counters.iter().find(|(name, _)| *name == "ack_sent");
    (after.expect("there").1 - before, lost)
}

/// A peer that missed the last one could not ask for it any more.
#[test]
fn a_qp_that_goes_says_its_last_ack_again_after_losses() {
    let (acks, lost) = acks_in_the_end(Some("drop=3%,seed=11"));
    assert!(lost > 0);
    // One may have been held back.
    assert!([3, 4].contains(&acks), "{acks}");
    // On a busy machine packets are taken for lost that are late.
    let (acks, lost) = acks_in_the_end(None);
    assert!(acks <= 1 || lost > 0, "{acks}");
}

#[test]
fn without_faults_nothing_is_counted() {
    let builder = Context::builder(address()).faults(None);
    let a = End::on(builder.open().expect("the address is free"));
    let b = End::open();
    connect(&a.qp, &b.qp, &options());
    exchange(&a, &b, 1);
    assert_eq!(COUNTERS.map(|name| a.counter(name)), [0; 4]);
}

/// A packet that was held back leaves though its sender calls nothing any more.
#[test]
fn late_packets_leave_by_themselves() {
    let (a, b) = (open("delay=20ms"), End::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let (from, to) = (a.memory(100), b.memory(100));
    from.write(0, &pattern(3, 100));
    b.recv(1, &to);
    let start = std::time::Instant::now();
    a.qp.post_send(&SendWr::send(2, &[from.sge(..)]).signaled())
        .expect("room");
    assert_eq!(b.succeed().wr_id, 1);
    assert!(start.elapsed().as_millis() >= 20);
    assert_eq!(bytes(&to, 100), pattern(3, 100));
    assert!(a.counter("fault_delayed") > 0);
    a.succeed();
}

/// Frames leave at the rate and no faster, though their sender calls nothing any more.
#[test]
fn a_rate_is_kept() {
    const LEN: usize = 200_000;
    let (a, b) = (open("rate=20M,queue=1M"), End::open());
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let (from, to) = (a.memory(LEN), b.memory(LEN));
    from.write(0, &pattern(4, LEN));
    b.recv(1, &to);
    let start = std::time::Instant::now();
    a.qp.post_send(&SendWr::send(2, &[from.sge(..)]).signaled())
        .expect("room");
    assert_eq!(b.succeed().wr_id, 1);
    let time = start.elapsed().as_nanos();
    let frames = LEN.div_ceil(4096);
    // BTH and ICRC, and what a datagram has around it.
    let sent = (LEN + frames * (12 + 4 + 66)) as u128;
    assert!(time >= sent * 8 * 50, "{sent} bytes in {time} ns");
    assert_eq!(bytes(&to, LEN), pattern(4, LEN));
    assert_eq!(a.counter("fault_queue_full"), 0);
    a.succeed();
}

/// What finds the queue full is lost and counted, and sent again.
#[test]
fn a_full_queue_loses_packets() {
    let (a, b) = (open("rate=20M,queue=10k"), End::open());
    connect(&a.qp, &b.qp, &options());
    let (from, to) = (a.memory(100_000), b.memory(100_000));
    from.write(0, &pattern(5, 100_000));
    let sges = [from.sge(..)];
    let write = SendWr::rdma_write(9, &sges, to.addr(), to.rkey());
    a.qp.post_send(&write.signaled()).expect("room");
    a.succeed();
    assert_eq!(bytes(&to, 100_000), pattern(5, 100_000));
    assert!(a.counter("fault_queue_full") > 0);
    assert_eq!(a.counter("fault_dropped"), 0);
}

#[test]
fn a_limited_mtu_is_offered_and_enforced() {
    let open = |mtu| Context::builder(address()).mtu(mtu).open().expect("free");
    let (a, b) = (End::on(open(Mtu::Mtu512)), End::on(open(Mtu::Mtu512)));
    let port = a.context.query_port(1).expect("a port");
    assert_eq!((port.active_mtu, port.max_mtu), (Mtu::Mtu512, Mtu::Mtu4096));
    let too_long = ConnectOptions {
        path_mtu: Some(Mtu::Mtu1024),
        ..ConnectOptions::default()
    };
    let error = a.qp.connect(&b.qp.endpoint(), &too_long);
    let error = error.expect_err("packets of 1024 bytes are too long");
    assert!(matches!(error.kind(), ErrorKind::Modify(_)), "{error}");

    let (a, b) = (End::on(open(Mtu::Mtu512)), End::on(open(Mtu::Mtu512)));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    exchange(&a, &b, 5);
    assert!(a.counter("sent_pkts") >= 2 * 5000_u64.div_ceil(512));
}
