//! Waiting for completions instead of polling for them.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::common::{self, End, PATIENCE, connect, pair, wait_until};
use urxe::{CompChannel, ConnectOptions, Context, Cq, Mr, Qp, RecvWr, SendWr, Wc};

fn wait(end: &End) -> Cq {
    end.channel
        .wait_timeout(PATIENCE)
        .expect("waits")
        .expect("an event arrives")
}

/// Completions, waited for in the usual way.
fn next(end: &End) -> Wc {
    let mut wc = [Wc::default()];
    loop {
        if end.cq.poll(&mut wc).expect("polls") == 1 {
            return wc[0];
        }
        end.cq.req_notify(false).expect("has a channel");
        if end.cq.poll(&mut wc).expect("polls") == 1 {
            return wc[0];
        }
        assert!(wait(end) == end.cq);
        end.cq.ack_events(1);
    }
}

#[test]
fn a_conversation_of_two_waiting_threads() {
    let (a, b) = pair();
    const ROUNDS: u64 = 500;
    std::thread::scope(|scope| {
        let side = |end: End, first: bool| {
            let (from, to) = (end.memory(8), end.memory(8));
            end.recv(0, &to);
            let send = |n: u64| {
                from.store_u64(0, n);
                end.qp
                    .post_send(&SendWr::send(1, &[from.sge(..)]))
                    .expect("room");
            };
            for n in 0..ROUNDS {
                if first {
                    send(2 * n + 1);
                }
                let wc = next(&end);
                assert!(wc.is_success(), "{wc}");
                assert_eq!(to.load_u64(0), if first { 2 * n + 2 } else { 2 * n + 1 });
                end.recv(0, &to);
                if !first {
                    send(2 * n + 2);
                }
            }
            end
        };
        let b = scope.spawn(move || side(b, false));
        let a = side(a, true);
        let b = b.join().expect("the other side");
        // Both must be there until the last ACK.
        drop((a, b));
    });
}

#[test]
fn a_timeout_ends_the_wait_and_polling_takes_what_was_there() {
    let (a, b) = pair();
    let to = b.memory(8);
    b.recv(1, &to);
    let start = Instant::now();
    b.cq.req_notify(false).expect("has a channel");
    assert!(
        b.channel
            .wait_timeout(Duration::from_millis(30))
            .expect("waits")
            .is_none()
    );
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(b.channel.try_get().expect("works").is_none());
    a.qp.post_send(&SendWr::send_inline(1, b"x")).expect("room");
    assert!(wait(&b) == b.cq);
    b.succeed();
    // One arming, one event.
    b.recv(1, &to);
    a.qp.post_send(&SendWr::send_inline(1, b"y")).expect("room");
    b.succeed();
    assert!(
        b.channel
            .wait_timeout(Duration::from_millis(30))
            .expect("waits")
            .is_none()
    );
}

#[test]
fn solicited_events_come_only_when_the_peer_says_so() {
    let (a, b) = pair();
    let to = b.memory(8);
    for n in 0..3 {
        b.recv(n, &to);
    }
    b.cq.req_notify(true).expect("has a channel");
    a.qp.post_send(&SendWr::send_inline(0, b"quiet"))
        .expect("room");
    wait_until("the quiet message", || b.counter("rcvd_messages") == 1);
    assert!(
        b.channel
            .wait_timeout(Duration::from_millis(30))
            .expect("waits")
            .is_none()
    );
    a.qp.post_send(&SendWr::send_inline(1, b"loud").solicited())
        .expect("room");
    assert!(wait(&b) == b.cq);
    assert!(!b.succeed().solicited);
    assert!(b.succeed().solicited);
}

#[test]
fn a_failure_raises_a_solicited_event_too() {
    let (a, b) = pair();
    let to = b.memory(1);
    b.recv(1, &to);
    b.cq.req_notify(true).expect("has a channel");
    a.qp.post_send(&SendWr::send_inline(1, b"too long"))
        .expect("room");
    assert!(wait(&b) == b.cq);
    assert!(!b.complete().is_success());
}

/// No thread calls into the library: the descriptor becomes readable all the same.
#[test]
fn the_descriptor_works_in_a_poll_loop_of_the_program() {
    let (a, b) = pair();
    let to = b.memory(8);
    let fd = b.channel.as_fd();
    for n in 0..20 {
        b.recv(n, &to);
        b.cq.req_notify(false).expect("has a channel");
        let ready = urxe_udp::wait(&[fd], Some(Duration::from_millis(5))).expect("polls");
        assert!(ready.is_timeout(), "nothing was sent yet");
        a.qp.post_send(&SendWr::send_inline(n, b"hello"))
            .expect("room");
        let ready = urxe_udp::wait(&[fd], Some(PATIENCE)).expect("polls");
        assert!(ready.is_ready(0), "round {n}: never readable");
        assert!(
            b.channel
                .try_get()
                .expect("works")
                .is_some_and(|cq| cq == b.cq)
        );
        assert_eq!(b.succeed().wr_id, n);
        let ready = urxe_udp::wait(&[fd], Some(Duration::ZERO)).expect("polls");
        assert!(ready.is_timeout(), "round {n}: readable without an event");
    }
}

/// One context, several channels: only one thread can watch the sockets, and it must
/// not keep the others' events from them, nor leave them alone when it goes.
#[test]
fn several_threads_wait_on_channels_of_their_own() {
    const ENDS: usize = 4;
    const ROUNDS: u64 = 100;
    let hub = End::open();
    let spokes: Vec<End> = (0..ENDS).map(|_| End::open()).collect();
    let memory: Vec<Mr> = spokes.iter().map(|spoke| spoke.memory(8)).collect();
    std::thread::scope(|scope| {
        for spoke in &spokes {
            let end = End::on(hub.context.clone());
            connect(&end.qp, &spoke.qp, &ConnectOptions::default());
            let to = end.memory(8);
            end.recv(0, &to);
            scope.spawn(move || {
                for n in 0..ROUNDS {
                    assert!(next(&end).is_success());
                    assert_eq!(to.load_u64(0), n);
                    end.recv(0, &to);
                    end.qp
                        .post_send(&SendWr::send_inline(0, b"taken"))
                        .expect("room");
                }
                // Until the peer has everything.
                std::thread::sleep(Duration::from_millis(50));
            });
        }
        for n in 0..ROUNDS {
            for (spoke, memory) in spokes.iter().zip(&memory) {
                spoke.recv(n, memory);
                let text = n.to_ne_bytes();
                spoke
                    .qp
                    .post_send(&SendWr::send_inline(n, &text))
                    .expect("room");
            }
            for spoke in &spokes {
                let wc = spoke.complete();
                assert_eq!(wc.wr_id, n, "{wc}");
            }
        }
    });
}

#[test]
fn an_event_of_a_queue_that_is_gone_is_not_delivered() {
    let (a, b) = pair();
    let other = b
        .context
        .create_cq_with_channel(4, &b.channel)
        .expect("a CQ");
    other.req_notify(false).expect("has a channel");
    drop(other);
    let to = b.memory(8);
    b.recv(0, &to);
    b.cq.req_notify(false).expect("has a channel");
    a.qp.post_send(&SendWr::send_inline(0, b"x")).expect("room");
    assert!(wait(&b) == b.cq);
    let deaf = b.context.create_cq(4).expect("a CQ");
    assert_eq!(
        deaf.req_notify(false)
            .expect_err("it has no channel")
            .errno(),
        22
    );
}

/// Two queues that share a channel: the event of a send comes before that of the answer to
/// it, as with adapters. perftest's `ib_send_lat -e` leans on it.
#[test]
fn an_answer_never_overtakes_the_completion_of_what_it_answers() {
    const ROUNDS: u64 = 200;
    let open = || {
        let context = Context::open(common::address()).expect("the address is free");
        let channel = context.create_comp_channel().expect("a channel");
        let queue = || {
            let cq = context.create_cq_with_channel(16, &channel).expect("a CQ");
            cq.req_notify(false).expect("has a channel");
            cq
        };
        let (sends, recvs) = (queue(), queue());
        let pd = context.alloc_pd().expect("a PD");
        let qp = pd.qp(&sends).recv_cq(&recvs).create().expect("a QP");
        let memory = pd.reg_owned(vec![0; 8], common::ALL).expect("memory");
        (channel, sends, recvs, qp, memory)
    };
    let (a, b) = (open(), open());
    connect(&a.3, &b.3, &ConnectOptions::default());
    let side = |end: (CompChannel, Cq, Cq, Qp, Mr), first: bool| {
        let (channel, sends, recvs, qp, memory) = &end;
        let mut wc = [Wc::default()];
        let mut next = |expected: &Cq, what: &str, n: u64| {
            let cq = channel.wait_timeout(PATIENCE).expect("waits");
            let cq = cq.unwrap_or_else(|| panic!("no event for {what} {n}"));
            assert!(&cq == expected, "another queue's event than {what} {n}");
            cq.ack_events(1);
            cq.req_notify(false).expect("has a channel");
            assert_eq!(cq.poll(&mut wc), Ok(1), "{what} {n}");
            assert!(wc[0].is_success(), "{}", wc[0]);
        };
        let sge = [memory.sge(..)];
        let post_recv = || qp.post_recv(&RecvWr::new(0, &sge)).expect("room");
        let send = SendWr::send_inline(1, b"x").signaled();
        for n in 0..ROUNDS {
            if !first {
                next(recvs, "message", n);
                post_recv();
            }
            qp.post_send(&send).expect("room");
            next(sends, "send", n);
            if first {
                next(recvs, "answer", n);
                post_recv();
            }
        }
        end
    };
    for end in [&a, &b] {
        let sge = [end.4.sge(..)];
        end.3.post_recv(&RecvWr::new(0, &sge)).expect("room");
    }
    std::thread::scope(|scope| {
        let b = scope.spawn(|| side(b, false));
        let a = side(a, true);
        drop((a, b.join().expect("the other side")));
    });
}
