//! Completions and events as streams.

use core::time::Duration;
use std::sync::Arc;

use fabric_sim::fault::Fault;
use fabric_sim::program::{Simulation, host, now, task, tell};
use fabric_sim::{HostId, Span, Time};
use urxe::{Access, AsyncEvent, Context, CqStream, RecvWr, Rkey, SendWr, WcStatus};

use crate::end::End;
use crate::{A, B, leave_together, meet, next, open};

const HOSTS: usize = 4;
const ROUNDS: usize = 5;
const LEN: usize = 3000;

/// A QP of which each queue has a completion queue, and each of these a task.
struct Pair {
    end: End,
    sends: CqStream,
    receives: CqStream,
}

impl Pair {
    fn open(context: &Context) -> Pair {
        let stream = || CqStream::new(context, 64).expect("a stream");
        let (sends, receives) = (stream(), stream());
        let (mut end, _) = End::of(context.clone(), false);
        let qp = end.memory.pd().qp(sends.cq()).recv_cq(receives.cq());
        end.qp = qp.create().expect("a QP");
        end.qp.init(Access::NONE).expect("a state");
        Pair {
            end,
            sends,
            receives,
        }
    }

    fn post_recv(&self, round: usize) {
        let sges = [self.end.memory.sge(round * LEN..(round + 1) * LEN)];
        let recv = RecvWr::new(round as u64, &sges);
        self.end.qp.post_recv(&recv).expect("posts");
    }
}

fn text(from: usize, round: usize) -> Vec<u8> {
    vec![(from * ROUNDS + round) as u8; LEN]
}

/// Where the messages lie that are sent.
fn place(round: usize) -> usize {
    (ROUNDS + round) * LEN
}

async fn send_all(end: Arc<End>, mut sends: CqStream, me: usize) {
    for round in 0..ROUNDS {
        end.memory.write(place(round), &text(me, round));
        let sges = [end.memory.sge(place(round)..place(round) + LEN)];
        let send = SendWr::send(round as u64, &sges).signaled();
        end.qp.post_send(&send).expect("posts");
        assert_eq!(next(&mut sends).await.wr_id, round as u64);
    }
}

async fn receive_all(end: Arc<End>, mut receives: CqStream, other: usize) {
    for round in 0..ROUNDS {
        let wc = next(&mut receives).await;
        assert_eq!((wc.wr_id as usize, wc.byte_len as usize), (round, LEN));
        let mut got = vec![0; LEN];
        end.memory.read(round * LEN, &mut got);
        assert_eq!(got, text(other, round));
    }
}

/// Talks with every other host, over a QP and with two tasks for each.
async fn talk_with_all(me: usize) {
    let address = fabric_sim::host::address_of(host().expect("in a simulation"));
    let context = Context::open(address).expect("opens");
    let others = (0..HOSTS).filter(|other| *other != me);
    let mut tasks = Vec::new();
    let mut open = Vec::new();
    for other in others {
        let pair = Pair::open(&context);
        (0..ROUNDS).for_each(|round| pair.post_recv(round));
        let (mine, its) = (format!("{me} to {other}"), format!("{other} to {me}"));
        meet(&pair.end, &mine, &its).await;
        let end = Arc::new(pair.end);
        tasks.push(task::spawn(receive_all(end.clone(), pair.receives, other)));
        tasks.push(task::spawn(send_all(end.clone(), pair.sends, me)));
        open.push(end);
    }
    for task in tasks {
        task.await.expect("it is not aborted");
    }
    leave_together(me, HOSTS).await;
}

fn all_talk(sim: &mut Simulation) {
    for me in 0..HOSTS {
        sim.host(HostId(me as u32), move || task::block_on(talk_with_all(me)));
    }
}

#[fabric_sim::test(seeds = 60, twice)]
fn every_host_talks_with_every_other(sim: &mut Simulation) {
    sim.fault(Fault::loss(0.02));
    all_talk(sim);
    let report = sim.run()?;
    let messages = HOSTS * (HOSTS - 1) * ROUNDS;
    assert_eq!(report.counter("rdma_sends"), messages as u64);
    for mark in ["loss", "timeout", "retransmit"] {
        report.assert_sometimes(mark);
    }
}

#[test]
fn equal_seeds_have_equal_traces() {
    let trace = |seed| {
        let mut sim = Simulation::new(seed);
        sim.fault(Fault::loss(0.02));
        all_talk(&mut sim);
        sim.run().expect("they end").trace()
    };
    let first: Vec<u64> = (0..6).map(trace).collect();
    let second: Vec<u64> = (0..6).map(trace).collect();
    assert_eq!(first, second);
    let different: std::collections::BTreeSet<u64> = first.into_iter().collect();
    assert_eq!(different.len(), 6);
}

/// A stream waits without polling: the other task of the host goes on, and real time does not pass.
#[test]
fn a_stream_that_waits_long_wakes_at_once() {
    let mut sim = Simulation::new(1);
    sim.host(A, || {
        task::block_on(async {
            let (end, mut completions) = open();
            meet(&end, "a", "b").await;
            end.post_recv(1, 8);
            let before = now();
            let waited = task::timeout(Duration::from_millis(30), completions.next()).await;
            assert!(waited.is_err(), "nothing comes so soon");
            let late = now() - before - Duration::from_millis(30);
            assert!(late < Duration::from_micros(50), "{late:?}");
            next(&mut completions).await;
            let took = now().as_nanos() as u64 - sent_at().await;
            assert!(took < 60_000, "{took} ns");
        });
    });
    sim.host(B, || {
        task::block_on(async {
            let (end, mut completions) = open();
            meet(&end, "b", "a").await;
            task::sleep(Duration::from_secs(2)).await;
            tell("sent at", now().as_nanos());
            end.post_send(1, 8);
            next(&mut completions).await;
        });
    });
    let report = sim.run().expect("they end");
    assert!(report.ended_at() > Time::ZERO + Span::from_ms(2000));
}

async fn sent_at() -> u64 {
    task::ask("sent at").await.parse().expect("a number")
}

/// A channel of events, and the asynchronous events of a context, beside the completions.
#[test]
fn events_of_a_channel_and_of_the_context() {
    let mut sim = Simulation::new(2);
    sim.host(A, || {
        task::block_on(async {
            let (end, channel) = End::open(true);
            let mut events = channel.expect("asked for").into_stream().expect("a stream");
            let mut happened = end.context.async_events().expect("a stream");
            let waiter = task::spawn(async move { happened.next().await.expect("an event") });
            meet(&end, "a", "b").await;
            for round in 0..3 {
                end.post_recv(round, 8);
                end.cq.req_notify(false).expect("arms");
                tell(&format!("ready {round}"), "");
                assert!(events.next().await.expect("an event") == end.cq);
                assert_eq!(end.wait().wr_id, round);
            }
            assert!(!waiter.is_finished());
            tell("ready 3", "");
            let event = waiter.await.expect("it ends");
            assert_eq!(event, AsyncEvent::QpAccessErr(end.qp.qp_num()));
        });
    });
    sim.host(B, || {
        task::block_on(async {
            let (end, mut completions) = open();
            let (addr, _) = meet(&end, "b", "a").await;
            for round in 0..3 {
                task::ask(&format!("ready {round}")).await;
                end.post_send(round, 8);
                next(&mut completions).await;
            }
            task::ask("ready 3").await;
            let sges = [end.memory.sge(..8)];
            let write = SendWr::rdma_write(9, &sges, addr, Rkey(0x77));
            end.qp.post_send(&write).expect("posts");
            let wc = completions.next().await.expect("polls");
            assert_eq!(wc.status, WcStatus::RemAccessErr);
        });
    });
    sim.run().expect("they end");
}

/// The macros of tokio need no runtime; `select!` is to be `biased`.
#[test]
fn futures_of_one_task_wait_together() {
    let mut sim = Simulation::new(3);
    let one = |me: &'static str, peer: &'static str| {
        move || {
            task::block_on(async move {
                let ((x, mut xs), (y, mut ys)) = (open(), open());
                let names = |qp| (format!("{me}{qp}"), format!("{peer}{qp}"));
                let ((my_x, its_x), (my_y, its_y)) = (names("x"), names("y"));
                tokio::join!(meet(&x, &my_x, &its_x), meet(&y, &my_y, &its_y));
                x.post_recv(1, 8);
                y.post_recv(2, 8);
                tell(&format!("{me} listens"), "");
                task::ask(&format!("{peer} listens")).await;
                x.post_send(3, 8);
                y.post_send(4, 8);
                let both = |a: u64, b: u64| [a.min(b), a.max(b)];
                let (first, second) = tokio::join!(next(&mut xs), next(&mut ys));
                let (third, fourth) = tokio::join!(next(&mut xs), next(&mut ys));
                assert_eq!(both(first.wr_id, third.wr_id), [1, 3]);
                assert_eq!(both(second.wr_id, fourth.wr_id), [2, 4]);
                let is_timer = tokio::select! {
                    biased;
                    _ = xs.next() => false,
                    () = task::sleep(Duration::from_micros(100)) => true,
                };
                assert!(is_timer);
            });
        }
    };
    sim.host(A, one("a", "b"));
    sim.host(B, one("b", "a"));
    sim.run().expect("they end");
}

/// An overrun is an error of the stream, here as over sockets.
#[test]
fn an_overrun_is_an_error_of_the_stream() {
    let mut sim = Simulation::new(4);
    sim.host(A, || {
        task::block_on(async {
            let (mut end, _) = End::open(false);
            let mut completions = CqStream::new(&end.context, 1).expect("a stream");
            let qp = end.memory.pd().qp(completions.cq());
            end.qp = qp.create().expect("a QP");
            let mut events = end.context.async_events().expect("a stream");
            meet(&end, "a", "b").await;
            end.post_send(1, 8);
            end.post_send(2, 8);
            let id = completions.cq().id();
            assert_eq!(events.next().await, Ok(AsyncEvent::CqErr(id)));
            assert!(completions.next().await.expect("the first").is_success());
            let lost = completions.next().await.expect_err("the second is lost");
            assert_eq!(lost.kind(), &urxe::ErrorKind::CqOverrun);
            tell("lost", "");
        });
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.qp.init(Access::NONE).expect("a state");
        end.post_recv(1, 8);
        end.post_recv(2, 8);
        task::block_on(async {
            meet(&end, "b", "a").await;
            task::ask("lost").await;
        });
    });
    sim.run().expect("they end");
}

/// What blocks in a task blocks all tasks of its `block_on`, here as elsewhere; and no tasks of another thread.
#[test]
fn a_thread_of_the_host_has_tasks_of_its_own() {
    let mut sim = Simulation::new(5);
    sim.host(A, || {
        let other = fabric_sim::program::spawn(|| {
            task::block_on(async {
                let before = now();
                task::sleep(Duration::from_micros(10)).await;
                now() - before
            })
        });
        task::block_on(async {
            let before = now();
            let child = task::spawn(async { now() });
            fabric_sim::program::sleep(Duration::from_millis(1));
            let began = child.await.expect("it ends");
            assert!(began - before >= Duration::from_millis(1), "{began:?}");
        });
        assert!(other.join() < Duration::from_micros(100));
    });
    sim.run().expect("it ends");
}
