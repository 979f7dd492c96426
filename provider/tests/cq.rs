//! Completion queues: their size, their overrun, their events and their times.

use std::time::{Duration, Instant};

use crate::common::{self, End, PATIENCE, address, connect, pair};
use urxe::{
    AsyncEvent, Blame, ConnectOptions, Context, Cq, ErrorKind, QpState, RecvWr, SendWr, StrictMode,
    Wc,
};

/// One message from `a` to `b`, which has posted a receive for it.
fn message(a: &End, n: u64) {
    a.qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
}

fn next_event(context: &Context) -> Option<AsyncEvent> {
    context.wait_async_event(Some(PATIENCE)).expect("waits")
}

#[test]
fn an_overrun_fails_every_qp_of_the_queue_and_is_told_once() {
    let a = End::open();
    let small = a.context.create_cq(2).expect("a CQ");
    let other = a.context.create_cq(64).expect("a CQ");
    let sender = a.pd.qp(&small).signal_all().create().expect("a QP");
    // Uses the queue for receives alone, and has nothing outstanding.
    let bystander = a.pd.qp(&other).recv_cq(&small).create().expect("a QP");
    let unconcerned = a.pd.qp(&other).create().expect("a QP");
    let (b, c, d) = (End::open(), End::open(), End::open());
    for (qp, peer) in [(&sender, &b), (&bystander, &c), (&unconcerned, &d)] {
        connect(qp, &peer.qp, &ConnectOptions::default());
    }
    let to = b.memory(8);
    for n in 0..4 {
        b.recv(n, &to);
        sender
            .post_send(&SendWr::send_inline(n, b"x"))
            .expect("room");
    }
    assert_eq!(next_event(&a.context), Some(AsyncEvent::CqErr(small.id())));
    let mut failed = [next_event(&a.context), next_event(&a.context)];
    let fatal = |qp: &urxe::Qp| Some(AsyncEvent::QpFatal(qp.qp_num()));
    if failed[0] != fatal(&sender) {
        failed.reverse();
    }
    assert_eq!(failed, [fatal(&sender), fatal(&bystander)]);
    assert_eq!(sender.state().expect("there"), QpState::Err);
    assert_eq!(bystander.state().expect("there"), QpState::Err);
    assert_eq!(unconcerned.state().expect("there"), QpState::Rts);
    assert!(small.is_overrun() && !other.is_overrun());

    let mut wcs = [Wc::default(); 4];
    assert_eq!(small.poll(&mut []).expect("nothing is hidden"), 0);
    assert_eq!(small.poll(&mut wcs).expect("two before the loss"), 2);
    assert!(wcs[0].is_success() && wcs[1].is_success());
    for _ in 0..3 {
        let error = small.poll(&mut wcs).expect_err("lost ones");
        assert_eq!(error.kind(), &ErrorKind::CqOverrun);
        assert_eq!(error.errno(), 5);
    }
    // More losses on the same queue are no news.
    let idle = Duration::from_millis(20);
    assert_eq!(a.context.wait_async_event(Some(idle)).expect("waits"), None);
    assert_eq!(
        small.resize(64).expect_err("too late").kind(),
        &ErrorKind::CqOverrun
    );
    // The number of a failed queue is as good as new once that is gone.
    let number = small.id();
    drop((sender, bystander, small));
    let again = a.context.create_cq(1).expect("a CQ");
    assert_eq!(again.id(), number);
    assert!(!again.is_overrun());
    let qp = a.pd.qp(&again).signal_all().create().expect("a QP");
    let e = End::open();
    connect(&qp, &e.qp, &ConnectOptions::default());
    let to = e.memory(8);
    for n in 0..2 {
        e.recv(n, &to);
        qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
    }
    assert_eq!(next_event(&a.context), Some(AsyncEvent::CqErr(number)));
}

#[test]
fn a_resize_loses_nothing_and_refuses_what_would() {
    let (a, c) = (End::open(), End::open());
    let to = c.memory(8);
    let cq = a.context.create_cq_with_channel(4, &a.channel);
    let cq = cq.expect("a CQ");
    cq.modify(4, 0).expect("moderates");
    cq.req_notify(false).expect("has a channel");
    let qp = a.pd.qp(&cq).signal_all().create().expect("a QP");
    connect(&qp, &c.qp, &ConnectOptions::default());
    let post = |range: std::ops::Range<u64>| {
        for n in range {
            c.recv(n, &to);
            qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
            // Completed here, not polled.
            assert!(c.succeed().is_success());
        }
    };
    post(0..4);
    let event = a.channel.wait_timeout(PATIENCE).expect("waits");
    assert!(event.expect("four are complete") == cq);
    assert_eq!(
        cq.resize(3).expect_err("one would be lost").kind(),
        &ErrorKind::CqResize { cqe: 3, held: 4 }
    );
    let error = cq.resize(3).expect_err("one would be lost");
    assert_eq!((error.errno(), error.blame()), (22, Blame::Caller));
    assert_eq!(cq.capacity(), 4);
    cq.resize(8).expect("larger");
    assert_eq!(cq.capacity(), 8);
    post(4..8);
    for n in 0..8 {
        assert_eq!(common::poll(&cq).wr_id, n);
    }
    cq.resize(1).expect("empty");
    for size in [0, usize::MAX] {
        let error = cq.resize(size).expect_err("no queue has that size");
        assert!(matches!(error.kind(), ErrorKind::CqSize { .. }), "{error}");
        assert_eq!(error.errno(), 22);
    }
    assert_eq!(cq.capacity(), 1);
}

#[test]
fn moderated_events_come_by_number_or_by_time() {
    let (a, b) = pair();
    let to = b.memory(8);
    for n in 0..8 {
        b.recv(n, &to);
    }
    b.cq.modify(3, 0).expect("moderates");
    b.cq.req_notify(false).expect("has a channel");
    message(&a, 0);
    message(&a, 1);
    common::wait_until("two are there", || {
        b.channel.try_get().expect("looks").is_none() && b.counter("rcvd_messages") == 2
    });
    let none = b.channel.wait_timeout(Duration::from_millis(30));
    assert!(none.expect("waits").is_none(), "two of three");
    message(&a, 2);
    let cq = b.channel.wait_timeout(PATIENCE).expect("waits");
    assert!(cq.expect("the third") == b.cq);

    // 20 ms after the first, although fifty are not there.
    b.cq.modify(50, 20_000).expect("moderates");
    b.cq.req_notify(false).expect("has a channel");
    let start = Instant::now();
    message(&a, 3);
    let cq = b.channel.wait_timeout(PATIENCE).expect("waits");
    assert!(cq.expect("its time is up") == b.cq);
    assert!(
        start.elapsed() >= Duration::from_millis(20),
        "{:?}",
        start.elapsed()
    );
    // The time is kept also when no thread waits in the library.
    use std::os::fd::AsFd;
    let fd = b.channel.as_fd();
    b.cq.req_notify(false).expect("has a channel");
    message(&a, 4);
    let limit = rustix::time::Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    let mut fds = [rustix::event::PollFd::new(
        &fd,
        rustix::event::PollFlags::IN,
    )];
    let ready = rustix::event::poll(&mut fds, Some(&limit)).expect("polls");
    assert_eq!(ready, 1, "the descriptor is readable");
    b.cq.modify(0, 0).expect("off");
}

#[test]
fn many_queues_share_a_channel_and_events_name_theirs() {
    let (a, b) = (End::open(), End::open());
    let cqs: Vec<_> = (0..50)
        .map(|_| {
            b.context
                .create_cq_with_channel(4, &b.channel)
                .expect("a CQ")
        })
        .collect();
    let (from, to) = (a.memory(8), b.memory(8));
    let mut ends = Vec::new();
    for cq in &cqs {
        let (qp, peer) = (
            b.pd.qp(cq).create().expect("a QP"),
            a.pd.qp(&a.cq).create().expect("a QP"),
        );
        connect(&qp, &peer, &ConnectOptions::default());
        qp.post_recv(&RecvWr::new(1, &[to.sge(..)])).expect("room");
        cq.req_notify(false).expect("has a channel");
        ends.push((qp, peer));
    }
    // Backwards, so that order is not the reason.
    for (at, (_, peer)) in ends.iter().enumerate().rev() {
        peer.post_send(&SendWr::send(2, &[from.sge(..)]))
            .expect("room");
        let cq = b.channel.wait_timeout(PATIENCE).expect("waits");
        let cq = cq.expect("an event");
        assert!(cq == cqs[at]);
        assert!(common::poll(&cq).is_success());
        assert_eq!(cq.unacked_events(), 1);
        cq.ack_events(1);
        cq.ack_events(7);
        assert_eq!(cq.unacked_events(), 0);
    }
    assert!(b.channel.try_get().expect("looks").is_none());
}

#[test]
fn an_event_of_a_queue_that_is_gone_is_nobodys() {
    let (a, b) = (End::open(), End::open());
    let cq = b.context.create_cq_with_channel(4, &b.channel);
    let cq = cq.expect("a CQ");
    let qp = b.pd.qp(&cq).create().expect("a QP");
    connect(&qp, &a.qp, &ConnectOptions::default());
    let to = b.memory(8);
    qp.post_recv(&RecvWr::new(1, &[to.sge(..)])).expect("room");
    cq.req_notify(false).expect("has a channel");
    message(&a, 0);
    common::wait_until("it arrives", || b.counter("rcvd_messages") == 1);
    drop((qp, cq));
    let start = Instant::now();
    let wait = Duration::from_millis(20);
    assert!(b.channel.wait_timeout(wait).expect("waits").is_none());
    assert!(start.elapsed() >= wait, "the whole time was waited");
}

#[test]
fn times_on_the_wall_lie_as_far_apart_as_the_raw_ones() {
    let (a, b) = (End::open(), End::open());
    let cq = a.context.cq(64).timestamps().create().expect("a CQ");
    let qp = a.pd.qp(&cq).signal_all().create().expect("a QP");
    connect(&qp, &b.qp, &ConnectOptions::default());
    let mut times = Vec::new();
    for n in 0..200 {
        // A read of no bytes is answered, and takes no receive.
        let wr = SendWr::rdma_read(n, &[], 0, urxe::Rkey(0));
        qp.post_send(&wr).expect("room");
        common::wait_until("it completes", || {
            let Some(poll) = cq.start_poll().expect("polls") else {
                return false;
            };
            let time = |poll: &urxe::CqPoll<'_>| {
                (
                    poll.completion_ts().expect("the queue keeps it"),
                    poll.completion_wallclock_ns().expect("the queue keeps it"),
                )
            };
            // Asked twice.
            times.extend([time(&poll), time(&poll)]);
            true
        });
    }
    for pair in times.windows(2) {
        let ((raw, wall), (next_raw, next_wall)) = (pair[0], pair[1]);
        assert_eq!(
            next_wall.wrapping_sub(wall),
            next_raw.checked_sub(raw).expect("times do not go back")
        );
    }
    assert_eq!(a.context.wallclock_ns(times[0].0), times[0].1);
}

#[test]
fn completions_bear_their_time() {
    let (a, b) = pair();
    let cq = a.context.cq(16).timestamps().single_threaded().create();
    let cq = cq.expect("a CQ");
    let qp = a.pd.qp(&cq).signal_all().create().expect("a QP");
    let c = End::open();
    connect(&qp, &c.qp, &ConnectOptions::default());
    assert!(cq.start_poll().expect("polls").is_none());
    let wall = || {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).expect("later");
        since.as_nanos() as u64
    };
    let raw = || a.context.query_rt_values().expect("values").raw_clock_ns;
    let (raw_before, wall_before) = (raw(), wall());
    let to = c.memory(8);
    for n in 0..3 {
        c.recv(n, &to);
        qp.post_send(&SendWr::send_inline(n, b"x")).expect("room");
        c.succeed();
    }
    let mut last = raw_before;
    for n in 0..3 {
        let start = Instant::now();
        let poll = loop {
            if let Some(poll) = cq.start_poll().expect("polls") {
                break poll;
            }
            assert!(start.elapsed() < PATIENCE, "completion {n}");
        };
        assert_eq!(poll.wc().wr_id, n);
        let stamp = poll.completion_ts().expect("the queue keeps it");
        assert!((last..=raw()).contains(&stamp), "{stamp} after {last}");
        last = stamp;
        let on_the_wall = poll.completion_wallclock_ns().expect("the queue keeps it");
        // The two clocks are read one after the other.
        let slack = 1_000_000;
        assert!(
            (wall_before - slack..=wall() + slack).contains(&on_the_wall),
            "{on_the_wall}"
        );
    }
    // A queue without times says so; and one poll walks on from one to the next.
    let to = b.memory(8);
    b.recv(0, &to);
    b.recv(1, &to);
    message(&a, 0);
    message(&a, 1);
    common::wait_until("both arrive", || b.counter("rcvd_messages") == 2);
    let mut poll = b.cq.start_poll().expect("polls").expect("the first");
    assert_eq!((poll.wc().wr_id, poll.completion_ts()), (0, None));
    assert!(poll.next_poll().expect("polls"));
    assert_eq!((poll.wc().wr_id, poll.completion_wallclock_ns()), (1, None));
    assert!(!poll.next_poll().expect("polls"));
}

#[test]
fn what_arrives_after_the_first_completion_waits_for_the_next_poll() {
    let (a, b) = pair();
    let to = b.memory(8);
    // Times that the sockets were asked for packets.
    let asked = || b.counter("rx_calls") + b.counter("rx_empty");
    // A poll that drives asks every time; the thread in the background asks now and then, and on a busy machine nearly every time.
    let (mut quiet, mut n) = (0, 0);
    while quiet < 20 {
        assert!(n < 5000, "asked in all but {quiet} of {n} polls");
        b.recv(2 * n, &to);
        b.recv(2 * n + 1, &to);
        message(&a, 0);
        common::wait_until("the first", || b.counter("rcvd_messages") == 2 * n + 1);
        let mut poll = b.cq.start_poll().expect("polls").expect("the first");
        message(&a, 0);
        let before = asked();
        let is_next = poll.next_poll().expect("polls");
        quiet += u32::from(asked() == before);
        // The thread in the background may have received it meanwhile.
        if !is_next {
            assert_eq!(poll.wc().wr_id, 2 * n, "it still shows the first");
            assert_eq!(b.succeed().wr_id, 2 * n + 1);
        }
        n += 1;
    }
}

#[test]
fn what_a_queue_cannot_be_is_refused() {
    let a = End::open();
    let error = a.context.cq(4).comp_vector(1).create();
    let error = error.expect_err("there is one vector");
    assert_eq!(error.errno(), 22);
    assert!(error.to_string().contains("comp_vector"), "{error}");
    let error = a.context.cq(4).ignore_overrun().create();
    let error = error.expect_err("overruns are reported");
    assert_eq!((error.errno(), error.blame()), (95, Blame::Caller));
    let error = a.context.cq(0).create().expect_err("no room at all");
    assert!(matches!(error.kind(), ErrorKind::CqSize { cqe: 0, .. }));
}

#[test]
fn only_the_connection_options_that_are_offered_are_taken() {
    let a = End::open();
    let offered = a.qp.query_ece();
    assert_eq!((offered.vendor_id, offered.options), (0x02_75_72, 1));
    a.qp.set_ece(&offered).expect("its own");
    a.qp.set_ece(&urxe::Ece::default()).expect("none are none");
    let some = urxe::Ece {
        vendor_id: 0x15b3,
        options: 1,
    };
    assert_eq!(a.qp.set_ece(&some).expect_err("not ours").errno(), 95);
}

/// As many as a large program has: creating and destroying them must not look through
/// all of them each time.
#[test]
fn ten_thousand_queues_are_made_and_unmade() {
    let a = End::open();
    let start = Instant::now();
    let make = || {
        let cq = a.context.create_cq_with_channel(1, &a.channel);
        cq.expect("a CQ")
    };
    let mut cqs: Vec<_> = (0..10_000).map(|_| make()).collect();
    for cq in &mut cqs {
        *cq = make();
    }
    drop(cqs);
    // Milliseconds if each costs the same; many seconds if each looks at all others.
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

/// A thread that polls would find ids of what another one frees after the QP.
#[test]
fn a_destroyed_qp_takes_its_completions_along_and_no_others() {
    let context = End::open().context;
    let pd = context.alloc_pd().expect("a PD");
    let cq = || context.create_cq(16).expect("a CQ");
    let (sends, receives) = (cq(), cq());
    let qp = || pd.qp(&sends).recv_cq(&receives).create().expect("a QP");
    let (a, b) = (qp(), qp());
    connect(&a, &b, &ConnectOptions::default());
    // A flushed receive and a flushed send each: a's come first.
    for (qp, wr_id) in [(&a, 1), (&b, 2)] {
        qp.post_recv(&RecvWr::new(wr_id, &[])).expect("room");
        qp.modify_state(QpState::Err).expect("ERR");
        let send = SendWr::send_inline(wr_id, b"");
        qp.post_send(&send).expect("it is flushed");
    }
    drop(a);
    for cq in [&sends, &receives] {
        let wc = common::poll(cq);
        assert_eq!((wc.wr_id, wc.qp_num), (2, b.qp_num()));
        assert_eq!(cq.poll(&mut [Wc::default()]).expect("polls"), 0);
    }
}

#[test]
fn reset_takes_completions_of_the_qp_and_no_others() {
    let context = End::open().context;
    let pd = context.alloc_pd().expect("a PD");
    let cq = context.cq(16).timestamps().create().expect("a CQ");
    let qp = || pd.qp(&cq).create().expect("a QP");
    let (a, b) = (qp(), qp());
    connect(&a, &b, &ConnectOptions::default());
    for wr_id in 0..3 {
        a.post_recv(&RecvWr::new(wr_id, &[])).expect("room");
        b.post_recv(&RecvWr::new(10 + wr_id, &[])).expect("room");
    }
    // Three flushed receives each: a's come first.
    a.modify_state(QpState::Err).expect("ERR");
    let between = context.query_rt_values().expect("a clock").raw_clock_ns;
    b.modify_state(QpState::Err).expect("ERR");
    a.modify_state(QpState::Reset).expect("RESET");
    for wr_id in 10..13 {
        let poll = cq.start_poll().expect("polls").expect("b's are there");
        assert_eq!((poll.wc().wr_id, poll.wc().qp_num), (wr_id, b.qp_num()));
        // Each has kept its own time.
        let time = poll.completion_ts().expect("the queue keeps times");
        assert!(time >= between, "{time} is a completion of a's");
    }
    assert!(cq.start_poll().expect("polls").is_none());
    // The queue goes on, for the QP that was reset too.
    b.modify_state(QpState::Reset).expect("RESET");
    connect(&a, &b, &ConnectOptions::default());
    b.post_recv(&RecvWr::new(20, &[])).expect("room");
    a.post_send(&SendWr::send_inline(0, b"")).expect("room");
    assert_eq!(common::poll(&cq).wr_id, 20);
}

/// A caller with a form of its own for completions gets each once, in order, also where the calls are watched and where
/// several engines complete.
#[test]
fn each_completion_is_given_in_turn_and_no_more_than_asked_for() {
    let usual = || Context::builder(address());
    for (name, builder) in [
        ("usual", usual()),
        ("strict", usual().strict(StrictMode::Report)),
        ("two shards", usual().shards(2)),
    ] {
        let context = builder.open().expect("the address is free");
        let pd = context.alloc_pd().expect("a PD");
        let cq = context.create_cq(64).expect("a CQ");
        let qp = pd.qp(&cq).create().expect("a QP");
        let peer = pd.qp(&cq).create().expect("a QP");
        connect(&qp, &peer, &ConnectOptions::default());
        for wr_id in 0..20 {
            qp.post_recv(&RecvWr::new(wr_id, &[])).expect("room");
        }
        qp.modify_state(QpState::Err).expect("ERR");
        let take = |most| {
            let mut ids = Vec::new();
            let count = cq.poll_each(most, |wc| {
                assert!(!wc.is_success(), "{name}: {wc}");
                ids.push(wc.wr_id);
            });
            assert_eq!(count.expect("polls"), ids.len(), "{name}");
            ids
        };
        assert_eq!(take(0), [], "{name}");
        let mut ids = Vec::new();
        let start = Instant::now();
        // Strict mode gives them late, and in batches of its own.
        for most in [1, usize::MAX, 2].into_iter().cycle() {
            let taken = take(most);
            assert!(taken.len() <= most.min(Cq::EACH_MAX), "{name}: {taken:?}");
            ids.extend(taken);
            if ids.len() >= 20 {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{name}: {ids:?}");
        }
        assert_eq!(ids, (0..20).collect::<Vec<_>>(), "{name}");
        assert_eq!(take(64), [], "{name}");
    }
}
