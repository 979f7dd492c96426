//! Work goes on whatever the program does: sleeps, computes, or looks elsewhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{self, End, bytes, pair, pair_with, pattern, wait_until};
use urxe::{ConnectOptions, Mr, SendWr, Wc};

/// Long enough that no timer of the transport could have done it instead.
const QUICK: Duration = Duration::from_millis(500);

/// An ACK timeout of 4 s: retries would be seen as failures of the tests below.
fn patient() -> ConnectOptions {
    ConnectOptions {
        timeout: 20,
        ..ConnectOptions::default()
    }
}

#[test]
fn one_sided_operations_need_nothing_of_the_target() {
    let (a, b) = pair_with(&patient());
    let (local, remote) = (a.memory(1 << 20), b.memory(1 << 20));
    let data = pattern(1, 1 << 20);
    local.write(0, &data);
    let back = a.memory(1 << 20);
    for round in 0..5 {
        let start = Instant::now();
        let sges = [local.sge(..)];
        let write = SendWr::rdma_write(1, &sges, remote.addr(), remote.rkey()).signaled();
        a.qp.post_send(&write).expect("room");
        a.succeed();
        let sges = [back.sge(..)];
        let read = SendWr::rdma_read(2, &sges, remote.addr(), remote.rkey()).signaled();
        a.qp.post_send(&read).expect("room");
        a.succeed();
        assert!(
            start.elapsed() < QUICK,
            "round {round} took {:?}",
            start.elapsed()
        );
        assert!(bytes(&back, data.len()) == data, "the bytes differ");
        // Now and then after a silence in which every thread fell asleep.
        std::thread::sleep(Duration::from_millis(20 * round));
    }
    assert_eq!(a.counter("ack_timeout"), 0);
}

#[test]
fn posted_work_completes_while_the_program_does_not_poll() {
    let (a, b) = pair_with(&patient());
    let (from, to) = (a.memory(3 << 20), b.memory(3 << 20));
    let data = pattern(2, 3 << 20);
    from.write(0, &data);
    b.recv(1, &to);
    // Longer than any window: it takes many turns of both engines.
    a.qp.post_send(&SendWr::send(2, &[from.sge(..)]).signaled())
        .expect("room");
    let start = Instant::now();
    wait_until("the receive is executed", || {
        b.counter("rcvd_messages") == 1
    });
    assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
    b.succeed();
    assert!(bytes(&to, data.len()) == data, "the bytes differ");
    a.succeed();
}

/// The ACK that was held back for a reply leaves although no reply comes.
#[test]
fn an_acknowledgement_does_not_wait_for_a_reply_that_never_comes() {
    for silence in [0, 30] {
        let (a, b) = pair_with(&patient());
        let (from, to) = (a.memory(8), b.memory(8));
        b.recv(1, &to);
        std::thread::sleep(Duration::from_millis(silence));
        a.qp.post_send(&SendWr::send(2, &[from.sge(..)]).signaled())
            .expect("room");
        let start = Instant::now();
        b.succeed();
        // From here on the receiver does nothing.
        a.succeed();
        assert!(start.elapsed() < QUICK, "{:?}", start.elapsed());
    }
}

/// Timers run while no thread calls: the sender retries by itself when packets are lost
/// because the receiver is not there yet.
#[test]
fn lost_packets_are_sent_again_while_nobody_looks() {
    let (a, b) = (End::open(), End::open());
    let options = ConnectOptions::default();
    let (from, to) = (a.memory(8), b.memory(8));
    a.qp.connect(&b.qp.endpoint(), &options).expect("connects");
    a.qp.post_send(&SendWr::send(1, &[from.sge(..)]).signaled())
        .expect("room");
    wait_until("a retry", || a.counter("ack_timeout") > 0);
    b.qp.connect(&a.qp.endpoint(), &options).expect("connects");
    b.recv(2, &to);
    wait_until("the message", || b.counter("rcvd_messages") == 1);
    a.succeed();
}

/// A thread that posts and one that polls, each all the time, share an engine with the
/// progress thread: none of them starves.
#[test]
fn threads_that_do_different_things_do_not_starve_each_other() {
    let (a, b) = pair();
    let (from, to) = (a.memory(64), b.memory(64));
    const COUNT: u64 = 2_000;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Receives are posted by one thread,
            let mut posted = 0;
            while !done.load(Ordering::Relaxed) {
                if posted < COUNT && posted < b.counter("rcvd_messages") + 100 {
                    b.recv(posted, &to);
                    posted += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            // completions are polled by another,
            for expected in 0..COUNT {
                assert_eq!(b.succeed().wr_id, expected);
            }
            done.store(true, Ordering::Relaxed);
        });
        // and the sender polls now and then.
        for n in 0..COUNT {
            let sges = [from.sge(..)];
            let wr = SendWr::send(n, &sges);
            a.qp.post_send(&if n % 16 == 15 { wr.signaled() } else { wr })
                .expect("room");
            if n % 16 == 15 {
                assert_eq!(a.succeed().wr_id, n);
            }
        }
    });
}

/// A conversation of two programs that look at their memory, and poll once a message only:
/// the thread learns to wait for the packets. If it came by at its ticks only, each message
/// would take one.
#[test]
fn a_program_that_looks_at_its_memory_is_not_left_to_ticks() {
    const ROUNDS: u64 = 600;
    // The thread comes late where the machine is busy with others: then it is tried again.
    let most = ROUNDS / 2;
    let mut ticks = Vec::new();
    while ticks.last().is_none_or(|&ticks| ticks >= most) {
        assert!(
            ticks.len() < 20,
            "{ticks:?} ticks, {ROUNDS} messages each way"
        );
        ticks.push(ticks_of_a_conversation(ROUNDS));
    }
}

/// Ticks of the two sides, after the first hundred messages.
fn ticks_of_a_conversation(rounds: u64) -> u64 {
    let (a, b) = pair_with(&patient());
    let ticks = |a: &End, b: &End| a.counter("progress_ticks") + b.counter("progress_ticks");
    let (at_a, at_b) = (a.memory(8), b.memory(8));
    let (learnt, done) = std::thread::scope(|scope| {
        let side = |end: &End, mine: &Mr, peer: &Mr, is_first: bool| {
            let mut learnt = 0;
            for n in 1..=rounds {
                look_for(mine, n - u64::from(is_first));
                if is_first && n == 100 {
                    learnt = ticks(&a, &b);
                }
                let bytes = n.to_ne_bytes();
                let write = SendWr::rdma_write_inline(n, &bytes, peer.addr(), peer.rkey());
                let write = if n % 16 == 0 { write.signaled() } else { write };
                end.qp.post_send(&write).expect("room");
                end.cq.poll(&mut [Wc::default(); 16]).expect("polls");
            }
            learnt
        };
        let (a, b, at_a, at_b) = (&a, &b, &at_a, &at_b);
        let other = scope.spawn(move || side(b, at_b, at_a, false));
        let learnt = side(a, at_a, at_b, true);
        other.join().expect("the other side");
        (learnt, ticks(a, b))
    });
    done - learnt
}

/// Looks at memory until its first number is the expected one, and does nothing else.
fn look_for(memory: &Mr, expected: u64) {
    let start = Instant::now();
    while memory.load_u64(0) != expected {
        assert!(start.elapsed() < common::PATIENCE, "message {expected}");
        std::hint::spin_loop();
    }
}

/// As above, but each side completes its WRITE by polling before it looks at its memory again
/// (perftest's `ib_write_lat`). The ACK travels with the answer, so that the poll which
/// waits for the one finds the other too. If it came before, the program would go and look
/// at its memory, and only a tick would fetch the answer.
#[test]
fn a_program_that_completes_its_writes_finds_the_answers_beside_the_acks() {
    const ROUNDS: u64 = 200;
    // Each side sends as many ACKs as messages. All go alone where the machine is busy with
    // others, so that answers come too late for them: then it is tried again.
    let most = 2 * ROUNDS * 3 / 2;
    let mut calls = Vec::new();
    while calls.last().is_none_or(|&calls| calls >= most) {
        assert!(
            calls.len() < 20,
            "{calls:?} calls, {ROUNDS} messages each way"
        );
        calls.push(calls_of_a_conversation(ROUNDS));
    }
}

/// Times that the two sides hand packets to their sockets.
fn calls_of_a_conversation(rounds: u64) -> u64 {
    let (a, b) = pair_with(&patient());
    let (at_a, at_b) = (a.memory(8), b.memory(8));
    std::thread::scope(|scope| {
        let side = |end: &End, mine: &Mr, peer: &Mr, is_first: u64| {
            for n in 1..=rounds {
                look_for(mine, n - is_first);
                let bytes = n.to_ne_bytes();
                let write = SendWr::rdma_write_inline(n, &bytes, peer.addr(), peer.rkey());
                end.qp.post_send(&write.signaled()).expect("room");
                end.succeed();
            }
        };
        let (a, b, at_a, at_b) = (&a, &b, &at_a, &at_b);
        let other = scope.spawn(move || side(b, at_b, at_a, 0));
        side(a, at_a, at_b, 1);
        other.join().expect("the other side");
    });
    a.counter("tx_calls") + b.counter("tx_calls")
}
