//! Shared receive queues over real sockets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::{self, End, PATIENCE, bytes, connect, pattern};
use urxe::{
    Access, AsyncEvent, ConnectOptions, Context, ErrorKind, PostError, Qp, QpState, RecvWr, SendWr,
    Srq, SrqAttr, SrqError, WcStatus,
};

fn attr(max_wr: u32) -> SrqAttr {
    SrqAttr {
        max_wr,
        max_sge: 1,
        srq_limit: 0,
    }
}

/// A receiver with QPs that share a queue, and a sender with as many QPs.
struct Shared {
    sender: End,
    receiver: End,
    srq: Srq,
    /// Sending and receiving QP of each connection.
    qps: Vec<(Qp, Qp)>,
}

fn shared(connections: usize, max_wr: u32) -> Shared {
    let (sender, receiver) = (End::open(), End::open());
    let srq = receiver.pd.create_srq(&attr(max_wr)).expect("an SRQ");
    let connection = |_| {
        let from = sender.pd.qp(&sender.cq).signal_all().create();
        let to = receiver.pd.qp(&receiver.cq).srq(&srq).create();
        let (from, to) = (from.expect("a QP"), to.expect("a QP"));
        connect(&from, &to, &ConnectOptions::default());
        (from, to)
    };
    let qps = (0..connections).map(connection).collect();
    Shared {
        sender,
        receiver,
        srq,
        qps,
    }
}

#[test]
fn messages_of_all_connections_fill_one_queue() {
    const EACH: usize = 20;
    const LEN: usize = 10_000;
    let s = shared(4, 128);
    let total = s.qps.len() * EACH;
    let buffers = s.receiver.memory(total * LEN);
    for n in 0..total {
        let sges = [buffers.sge(n * LEN..(n + 1) * LEN)];
        s.srq
            .post_recv(&RecvWr::new(n as u64, &sges))
            .expect("room");
    }
    let sources = s.sender.memory(total * LEN);
    for n in 0..total {
        sources.write(n * LEN, &pattern(n as u64, LEN));
        let sges = [sources.sge(n * LEN..(n + 1) * LEN)];
        let (from, _) = &s.qps[n % s.qps.len()];
        from.post_send(&SendWr::send_with_imm(0, &sges, n as u32))
            .expect("room");
    }
    let (mut got, mut order) = (0, BTreeMap::new());
    let mut done = 0;
    while got < total {
        let wc = s.receiver.succeed();
        let n = wc.imm_data.expect("sent with it");
        assert_eq!(wc.qp_num, s.qps[n as usize % s.qps.len()].1.qp_num());
        let last = order.insert(wc.qp_num.get(), n);
        assert!(last.is_none_or(|last| last < n), "a QP's order is kept");
        let mut text = vec![0; LEN];
        buffers.read(wc.wr_id as usize * LEN, &mut text);
        assert!(text == pattern(n.into(), LEN), "message {n}");
        got += 1;
        let mut wcs = [urxe::Wc::default(); 8];
        done += s.sender.cq.poll(&mut wcs).expect("polls");
    }
    while done < total {
        s.sender.succeed();
        done += 1;
    }
}

#[test]
fn an_event_says_when_few_receives_are_left() {
    let s = shared(1, 8);
    let buffer = s.receiver.memory(64);
    for n in 0..4 {
        let sges = [buffer.sge(..)];
        s.srq.post_recv(&RecvWr::new(n, &sges)).expect("room");
    }
    s.srq.arm_limit(3).expect("within the size");
    assert_eq!(s.srq.query().expect("works").srq_limit, 3);
    let (from, _) = &s.qps[0];
    for _ in 0..2 {
        from.post_send(&SendWr::send_inline(0, b"x")).expect("room");
        s.receiver.succeed();
        s.sender.succeed();
    }
    let event = s.receiver.context.wait_async_event(Some(PATIENCE));
    let limit = AsyncEvent::SrqLimitReached(s.srq.id());
    assert_eq!(event.expect("works"), Some(limit));
    assert_eq!(s.srq.query().expect("works").srq_limit, 0);
    assert_eq!(s.receiver.context.poll_async_event(), None);
}

/// The receiver drives in one thread, others post: what they find busy is left for the
/// holder of the engine, and nothing is lost or posted twice. Meanwhile the size changes.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn threads_post_while_another_drives_and_the_size_changes() {
    const TOTAL: u64 = 6000;
    let s = shared(2, 64);
    let buffer = s.receiver.memory(64);
    let next = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let taken = AtomicU64::new(0);
    let mut seen = vec![false; TOTAL as usize];
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= TOTAL {
                        break;
                    }
                    let sges = [buffer.sge(..)];
                    common::wait_until("a place in the queue", || {
                        match s.srq.post_recv(&RecvWr::new(id, &sges)) {
                            Ok(()) => true,
                            Err(error) => {
                                assert_eq!(error.errno(), libc::ENOMEM, "{error}");
                                false
                            }
                        }
                    });
                }
            });
        }
        scope.spawn(|| {
            for n in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                // Smaller may be impossible at this moment.
                let size = [64, 300, 40, 1][n % 4];
                if let Err(error) = s.srq.resize(size) {
                    let kind = error.kind();
                    assert!(matches!(kind, ErrorKind::Srq(SrqError::Value { .. })));
                }
                thread::yield_now();
            }
            s.srq.resize(512).expect("larger than what waits");
        });
        let qps = &s.qps;
        let (sender, taken) = (&s.sender, &taken);
        // Whatever fails here, the others end.
        let _done = OnDrop(|| done.store(true, Ordering::Relaxed));
        scope.spawn(move || {
            for n in 0..TOTAL {
                // No more than the completion queue holds, however the threads are scheduled.
                common::wait_until("the receiver", || n < taken.load(Ordering::Relaxed) + 500);
                let (from, _) = &qps[n as usize % 2];
                from.post_send(&SendWr::send_inline(n, b"x")).expect("room");
                sender.succeed();
            }
        });
        for _ in 0..TOTAL {
            let wc = s.receiver.succeed();
            let seen = &mut seen[wc.wr_id as usize];
            assert!(!std::mem::replace(seen, true), "{} twice", wc.wr_id);
            taken.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(seen.iter().all(|&seen| seen));
}

#[test]
fn a_failed_qp_says_that_it_took_its_last_receive() {
    let s = shared(2, 8);
    let buffer = s.receiver.memory(64);
    s.srq
        .post_recv(&RecvWr::new(5, &[buffer.sge(..)]))
        .expect("room");
    let (_, to) = &s.qps[0];
    to.modify_state(QpState::Err).expect("any state may fail");
    let event = s.receiver.context.wait_async_event(Some(PATIENCE));
    let last = AsyncEvent::QpLastWqeReached(to.qp_num());
    assert_eq!(event.expect("works"), Some(last));
    // The receive waits for the other QP.
    s.qps[1]
        .0
        .post_send(&SendWr::send_inline(1, b"hello"))
        .expect("room");
    let wc = s.receiver.succeed();
    assert_eq!((wc.wr_id, wc.qp_num), (5, s.qps[1].1.qp_num()));
    assert_eq!(&bytes(&buffer, 5), b"hello");
}

/// IBTA 10.2.9.1: the SRQ's protection domain counts for its receives.
#[test]
fn memory_is_checked_in_the_domain_of_the_srq() {
    let (sender, receiver) = (End::open(), End::open());
    let other = receiver.context.alloc_pd().expect("a PD");
    let srq = other.create_srq(&attr(4)).expect("an SRQ");
    let to = receiver.pd.qp(&receiver.cq).srq(&srq).create();
    let to = to.expect("a QP");
    let from = sender.pd.qp(&sender.cq).signal_all().create();
    let from = from.expect("a QP");
    connect(&from, &to, &ConnectOptions::default());
    let good = other
        .reg_owned(vec![0; 64], Access::LOCAL_WRITE)
        .expect("memory");
    let bad = receiver.memory(64);
    for (id, mr) in [(1, &good), (2, &bad)] {
        srq.post_recv(&RecvWr::new(id, &[mr.sge(..)]))
            .expect("room");
    }
    from.post_send(&SendWr::send_inline(1, b"in"))
        .expect("room");
    assert_eq!(receiver.succeed().wr_id, 1);
    sender.succeed();
    from.post_send(&SendWr::send_inline(2, b"out"))
        .expect("room");
    let wc = receiver.complete();
    assert_eq!((wc.wr_id, wc.status), (2, WcStatus::LocProtErr), "{wc}");
    assert_eq!(sender.complete().status, WcStatus::RemOpErr);
}

#[test]
fn what_is_refused() {
    let s = shared(1, 2);
    let (_, to) = &s.qps[0];
    assert_eq!(to.cap().max_recv_wr, 0);
    let error = to.post_recv(&RecvWr::new(1, &[])).expect_err("refused");
    assert_eq!(error.kind(), &ErrorKind::Post(PostError::HasSrq));
    assert_eq!(error.errno(), libc::EINVAL);

    let full = s.srq.post_recv_list(&[RecvWr::new(1, &[]); 3]);
    let full = full.expect_err("two places");
    assert_eq!((full.index, full.error.errno()), (2, libc::ENOMEM));
    let error = s.srq.resize(1).expect_err("two receives wait");
    assert_eq!(error.errno(), libc::EINVAL);
    let error = s.srq.arm_limit(3).expect_err("two places");
    assert!(error.to_string().contains("srq_limit is 3"), "{error}");
    for max_wr in [0, u32::MAX] {
        let refused = s.receiver.pd.create_srq(&attr(max_wr));
        assert_eq!(
            refused.expect_err("too few, too many").errno(),
            libc::EINVAL
        );
    }

    let other = Context::open(common::address()).expect("opens");
    let (pd, cq) = (other.alloc_pd().expect("a PD"), other.create_cq(4));
    let refused = pd.qp(&cq.expect("a CQ")).srq(&s.srq).create();
    let error = refused.expect_err("another context's");
    assert!(matches!(error.kind(), ErrorKind::ForeignObject(_)));
}

#[test]
fn an_srq_in_use_is_busy() {
    let s = shared(1, 2);
    let error = s.srq.clone().destroy().expect_err("a QP uses it");
    assert_eq!(error.errno(), libc::EBUSY);
    drop(s.qps);
    s.srq.destroy().expect("nobody else has it");
}
