//! Queues that are full, lists that are refused, and threads that post at once.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{self, End, bytes, connect, pair, wait_until};
use urxe::{
    ConnectOptions, Context, ErrorKind, PostError, QpState, RecvWr, SendWr, StrictMode, Wc,
};

fn reason(error: &urxe::Error) -> PostError {
    match error.kind() {
        ErrorKind::Post(reason) => *reason,
        _ => panic!("{error}"),
    }
}

#[test]
fn a_list_is_taken_up_to_the_request_that_is_refused() {
    let (a, b) = pair();
    let to = b.memory(8);
    for n in 0..4 {
        b.recv(n, &to);
    }
    let long = vec![0; 1000];
    let wrs = [
        SendWr::send_inline(0, b"first"),
        SendWr::send_inline(1, b"second"),
        SendWr::send_inline(2, &long),
        SendWr::send_inline(3, b"never"),
    ];
    let bad =
        a.qp.post_send_list(&wrs)
            .expect_err("the third is too long");
    assert_eq!(bad.index, 2);
    assert!(matches!(
        reason(&bad.error),
        PostError::InlineTooLong { given: 1000, .. }
    ));
    assert_eq!((b.succeed().byte_len, b.succeed().byte_len), (5, 6));
    assert_eq!(bytes(&to, 6), b"second");

    let sges = [to.sge(..4); 5];
    let recvs = [RecvWr::new(9, &sges[..4]), RecvWr::new(10, &sges)];
    let bad =
        b.qp.post_recv_list(&recvs)
            .expect_err("five entries are too many");
    assert_eq!((bad.index, bad.error.errno()), (1, 22));
}

#[test]
fn a_full_queue_is_a_limit_and_has_room_again_when_requests_are_done() {
    let open = || Context::open(common::address()).expect("free");
    let a = End::with(open(), |qp| qp.max_send_wr(5).max_recv_wr(3));
    let b = End::open();
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let to = a.memory(8);
    for n in 0..3 {
        a.recv(n, &to);
    }
    let error =
        a.qp.post_recv(&RecvWr::new(3, &[to.sge(..)]))
            .expect_err("three are posted");
    assert_eq!(
        (reason(&error), error.errno()),
        (PostError::QueueFull(3), 12)
    );
    // The peer has no receives: nothing can complete.
    let wrs = [SendWr::send_inline(0, b"x").signaled(); 7];
    let bad =
        a.qp.post_send_list(&wrs)
            .expect_err("there is room for five");
    assert_eq!(
        (bad.index, reason(&bad.error)),
        (5, PostError::QueueFull(5))
    );
    let from = b.memory(8);
    for n in 0..5 {
        b.recv(n, &from);
    }
    for _ in 0..5 {
        a.succeed();
    }
    a.qp.post_send_list(&wrs[..5]).expect("there is room again");
}

#[test]
fn states_say_what_may_be_posted() {
    let a = End::open();
    let to = a.memory(8);
    let sges = [to.sge(..)];
    let send = || a.qp.post_send(&SendWr::send_inline(0, b"x"));
    let recv = || a.qp.post_recv(&RecvWr::new(0, &sges));
    assert_eq!(
        reason(&recv().expect_err("RESET")),
        PostError::RecvState(QpState::Reset)
    );
    let error = send().expect_err("RESET");
    assert_eq!(reason(&error), PostError::SendState(QpState::Reset));
    // It says what to do.
    let text = error.to_string();
    assert!(
        text.contains("RESET") && text.contains("connect it first"),
        "{text}"
    );
    a.qp.init(common::ALL).expect("to INIT");
    recv().expect("INIT takes receives");
    assert_eq!(
        reason(&send().expect_err("INIT")),
        PostError::SendState(QpState::Init)
    );
    a.qp.modify_state(QpState::Err).expect("to ERR");
    assert_eq!(a.complete().status, urxe::WcStatus::WrFlushErr);
    send().expect("taken, to be flushed");
    assert_eq!(a.complete().status, urxe::WcStatus::WrFlushErr);
    a.qp.modify_state(QpState::Reset).expect("to RESET");
    assert!(send().is_err());
}

/// Threads hammer one QP while others poll: every message arrives once, those of one
/// thread in order, and the queue never takes more than it has room for.
#[test]
fn threads_that_post_on_one_qp() {
    const THREADS: u64 = 3;
    const EACH: u64 = 3_000;
    const QUEUE: u32 = 48;
    let open = || Context::open(common::address()).expect("free");
    let a = End::with(open(), |qp| qp.max_send_wr(QUEUE));
    let b = End::with(open(), |qp| qp.max_recv_wr(512));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let to = b.memory(512 * 8);
    let slot = |n: u64| [to.sge(n as usize * 8..n as usize * 8 + 8)];
    for n in 0..512 {
        b.qp.post_recv(&RecvWr::new(n, &slot(n))).expect("room");
    }
    let (posted, completed) = (AtomicU64::new(0), AtomicU64::new(0));
    // A request leaves the send queue when it completes, not when that is polled: posting
    // may get ahead of polling, and only a program that counts keeps within the queue.
    let room = 1024 - u64::from(QUEUE) - THREADS;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (qp, posted, completed) = (a.qp.clone(), &posted, &completed);
            scope.spawn(move || {
                for n in 0..EACH {
                    wait_until("room in the completion queue", || {
                        let polled = completed.load(Ordering::Relaxed);
                        posted.load(Ordering::Relaxed) - polled < room
                    });
                    posted.fetch_add(1, Ordering::Relaxed);
                    let text = (thread << 32 | n).to_ne_bytes();
                    let wr = SendWr::send_inline(thread << 32 | n, &text).signaled();
                    wait_until("room in the send queue", || match qp.post_send(&wr) {
                        Ok(()) => true,
                        Err(error) => {
                            assert_eq!(reason(&error), PostError::QueueFull(QUEUE));
                            false
                        }
                    });
                }
            });
        }
        scope.spawn(|| {
            let mut next = [0; THREADS as usize];
            let mut wcs = [Wc::default(); 8];
            while completed.load(Ordering::Relaxed) < THREADS * EACH {
                let count = a.cq.poll(&mut wcs).expect("polls");
                for wc in &wcs[..count] {
                    assert!(wc.is_success(), "{wc}");
                    let next = &mut next[(wc.wr_id >> 32) as usize];
                    assert_eq!(wc.wr_id & 0xffff_ffff, *next, "out of order");
                    *next += 1;
                }
                completed.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        let mut next = [0; THREADS as usize];
        for _ in 0..THREADS * EACH {
            let wc = b.succeed();
            let value = to.load_u64(wc.wr_id as usize * 8);
            let next = &mut next[(value >> 32) as usize];
            assert_eq!(value & 0xffff_ffff, *next, "out of order");
            *next += 1;
            b.qp.post_recv(&RecvWr::new(wc.wr_id, &slot(wc.wr_id)))
                .expect("room");
        }
    });
    assert_eq!(b.cq.poll(&mut [Wc::default()]).expect("polls"), 0);
    assert_eq!(completed.into_inner(), THREADS * EACH);
}

#[test]
fn all_of_a_list_or_none() {
    for mode in [StrictMode::Off, StrictMode::Report] {
        let context = Context::builder(common::address()).strict(mode).open();
        let a = End::with(context.expect("free"), |qp| qp.max_send_wr(4).signal_all());
        let b = End::open();
        connect(&a.qp, &b.qp, &ConnectOptions::default());
        let to = b.memory(64);
        (0..8).for_each(|n| b.recv(n, &to));
        let list = |count: u64| (0..count).map(|n| SendWr::send_inline(n, b"x"));

        let full =
            a.qp.post_send_all(list(5))
                .expect_err("there is room for 4");
        assert_eq!(full.index, 4);
        let long = [0; 2000];
        let wrong = list(2).chain([SendWr::send_inline(2, &long)]);
        let refused = a.qp.post_send_all(wrong).expect_err("too long for inline");
        assert_eq!(refused.index, 2);
        // Nothing of these is in the queue, nor comes out of it.
        a.qp.post_send_all(list(4)).expect("room for 4");
        for n in 0..4 {
            assert_eq!(a.succeed().wr_id, n);
        }
        assert_eq!(a.cq.poll(&mut [Wc::default()]).expect("polls"), 0);
    }
}
