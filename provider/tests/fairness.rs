//! Many QPs of one context that stream to another, beside one with small messages. Counted, not timed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::common::{End, PATIENCE, connect};
use urxe::{ConnectOptions, Cq, Mr, Mtu, Qp, RecvWr, SendWr, Wc};

/// Bytes of a message of a stream.
const SIZE: usize = 64 << 10;
/// Messages that a stream has posted: more than may be under way, so that it always has some to send.
const DEPTH: usize = 16;
/// Messages that each stream has on average before shares are compared.
const MESSAGES: u64 = 40;
/// Small messages there and back before that.
const ROUND_TRIPS: u64 = 100;

struct Streams {
    from: End,
    /// Of the small QP.
    small: Cq,
    qps: Vec<Qp>,
    source: Mr,
    target: Mr,
    completed: Vec<u64>,
}

impl Streams {
    fn post(&self, index: usize) {
        let sges = [self.source.sge(..)];
        let (addr, rkey) = (self.target.addr(), self.target.rkey());
        let wr = SendWr::rdma_write(index as u64, &sges, addr, rkey).signaled();
        self.qps[index].post_send(&wr).expect("room");
    }

    /// Counts messages that are complete; each is followed by another.
    fn go_on(&mut self) {
        let mut wcs = [Wc::default(); 16];
        let taken = self.from.cq.poll(&mut wcs).expect("polls");
        for wc in &wcs[..taken] {
            assert!(wc.is_success(), "{wc}");
            self.completed[wc.wr_id as usize] += 1;
            self.post(wc.wr_id as usize);
        }
    }

    /// A small message there and back. The streams go on meanwhile.
    fn round_trip(&mut self) {
        let small = SendWr::send_inline(0, b"").signaled();
        self.from.qp.post_recv(&RecvWr::new(0, &[])).expect("room");
        self.from.qp.post_send(&small).expect("room");
        let (mut found, start) = (0, Instant::now());
        while found < 2 {
            self.go_on();
            let mut wcs = [Wc::default(); 2];
            let taken = self.small.poll(&mut wcs).expect("polls");
            for wc in &wcs[..taken] {
                assert!(wc.is_success(), "{wc}");
                found += 1;
            }
            assert!(start.elapsed() < PATIENCE, "a small message: {found} of 2");
        }
    }

    /// Messages of each while all have more to send than they may.
    fn count(&mut self) -> Vec<u64> {
        for _ in 0..DEPTH {
            (0..self.qps.len()).for_each(|index| self.post(index));
        }
        // What was posted at once is gone.
        while self.completed.iter().any(|&count| count < DEPTH as u64) {
            self.round_trip();
        }
        let before = self.completed.clone();
        let (mut round_trips, mut counts) = (0, vec![0; before.len()]);
        while round_trips < ROUND_TRIPS
            || counts.iter().sum::<u64>() < MESSAGES * before.len() as u64
        {
            self.round_trip();
            round_trips += 1;
            for (count, (now, before)) in counts.iter_mut().zip(self.completed.iter().zip(&before))
            {
                *count = now - before;
            }
        }
        counts
    }
}

/// Answers small messages, and lets its engine take what the streams bring.
fn answer(end: &End, is_over: &AtomicBool) {
    let mut wcs = [Wc::default(); 1];
    while !is_over.load(Ordering::Relaxed) {
        if end.cq.poll(&mut wcs).expect("polls") == 0 {
            thread::yield_now();
            continue;
        }
        assert!(wcs[0].is_success(), "{}", wcs[0]);
        end.qp.post_recv(&RecvWr::new(0, &[])).expect("room");
        end.qp
            .post_send(&SendWr::send_inline(0, b""))
            .expect("room");
    }
}

/// Messages that each of `qps` streams completed while all had more to send than they may, and packets that the
/// receiver's socket had no room for.
fn shares(qps: usize) -> (Vec<u64>, u64) {
    let options = ConnectOptions {
        // What each may have under way at least is little.
        path_mtu: Some(Mtu::Mtu1024),
        // On a busy machine an end may rest for long, which is no loss.
        timeout: 19,
        ..ConnectOptions::default()
    };
    let (mut from, to) = (End::open(), End::open());
    let small = from.context.create_cq(16).expect("a CQ");
    from.qp = from.pd.qp(&small).create().expect("a QP");
    connect(&from.qp, &to.qp, &options);
    to.qp
        .post_recv_list(&[RecvWr::new(0, &[]); 8])
        .expect("room");
    let bulk = |end: &End| {
        let qp = end.pd.qp(&end.cq).max_send_wr(DEPTH as u32).max_recv_wr(1);
        qp.create().expect("a QP")
    };
    let (qps, _peers): (Vec<Qp>, Vec<Qp>) = (0..qps)
        .map(|_| {
            let (a, b) = (bulk(&from), bulk(&to));
            connect(&a, &b, &options);
            (a, b)
        })
        .unzip();
    let mut streams = Streams {
        source: from.memory(SIZE),
        target: to.memory(SIZE),
        completed: vec![0; qps.len()],
        qps,
        small,
        from,
    };
    let is_over = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        scope.spawn(|| answer(&to, &is_over));
        // A failure here must end the other thread, too.
        let counts = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| streams.count()));
        is_over.store(true, Ordering::Relaxed);
        counts.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    (counts, to.counter("rx_buffer_drops"))
}

#[track_caller]
fn assert_even(counts: &[u64]) {
    let mean = counts.iter().sum::<u64>() / counts.len() as u64;
    let least = *counts.iter().min().expect("some");
    let most = *counts.iter().max().expect("some");
    assert!(
        most - least <= mean / 10 + 1,
        "messages of each: {counts:?}"
    );
}

#[test]
fn four_streams_beside_small_messages_get_as_much_each() {
    let (counts, _) = shares(4);
    assert_even(&counts);
}

/// What they have under way together fits the receiver's buffer, so that none waits for what was lost.
#[test]
fn sixty_four_streams_beside_small_messages_get_as_much_each_and_lose_nothing() {
    let (counts, drops) = shares(64);
    assert_even(&counts);
    assert_eq!(drops, 0, "packets that the socket had no room for");
}
