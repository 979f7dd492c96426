//! Work goes on whatever the program does: sleeps, computes, or looks elsewhere.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{End, bytes, pair, pair_with, pattern, wait_until};
use urxe::{ConnectOptions, SendWr};

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

/// Timers run while nobody calls: the sender retries by itself when packets are lost
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
/// progress thread: nobody starves.
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
