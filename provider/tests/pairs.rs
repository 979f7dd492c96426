//! A message and an ACK that travel together, again and again: the kernel hands them over
//! together too, though they are never a burst.

mod common;

use std::time::Instant;

use common::{End, PATIENCE, pair};
use urxe::{Mr, SendWr, Wc};

const ROUNDS: u64 = 40_000;

/// A WRITE of one side, which the other finds in its memory.
fn write(n: u64, from: &End, to: &End, at: &Mr) {
    let bytes = n.to_ne_bytes();
    let write = SendWr::rdma_write_inline(n, &bytes, at.addr(), at.rkey());
    from.qp.post_send(&write).expect("room");
    let start = Instant::now();
    while at.load_u64(0) != n {
        to.cq.poll(&mut [Wc::default(); 1]).expect("polls");
        assert!(start.elapsed() < PATIENCE, "message {n}");
    }
}

#[test]
fn pairs_are_joined() {
    let (a, b) = pair();
    let (at_a, at_b) = (a.memory(8), b.memory(8));
    for n in 1..=ROUNDS {
        write(n, &a, &b, &at_b);
        write(n, &b, &a, &at_a);
    }
    for end in [&a, &b] {
        let acks = end.counter("ack_sent");
        assert!(acks > ROUNDS / 2, "only {acks} ACKs in {ROUNDS} rounds");
    }
    // Of each side's packets the other counted what came singly.
    let split = a.counter("split_pkts") + b.counter("split_pkts");
    assert!(
        split > 0,
        "the first ones are cut: nobody knows of them yet"
    );
    assert!(split < ROUNDS / 2, "{split} of some {} pairs", 2 * ROUNDS);
}
