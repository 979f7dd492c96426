//! Races of async programs: the simulation must find each within a hundred seeds, and the same program with the race mended must hold.
//!
//! Each test prints the seed that found it.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabric_sim::Span;
use fabric_sim::program::{Failure, Simulation, task, tell};
use tokio::sync::Notify;
use urxe::{Cq, Rkey, SendWr, Wc};

use crate::end::End;
use crate::race::must_find;
use crate::{A, B, meet, next, open};

fn take(cq: &Cq) -> Option<Wc> {
    let mut wcs = [Wc::default()];
    (cq.poll(&mut wcs).expect("polls") == 1).then_some(wcs[0])
}

/// Sends so many messages of a byte, each when the peer has told that it is ready for it, and waits for each.
async fn send_when_asked(rounds: u64) {
    let (end, mut completions) = open();
    meet(&end, "a", "b").await;
    for round in 0..rounds {
        task::ask(&format!("ready {round}")).await;
        end.post_send(round, 1);
        next(&mut completions).await;
    }
    task::ask("done").await;
}

/// Poll, arm, await: what comes between the poll and the arming raises no event.
fn lost_event(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const ROUNDS: u64 = 30;
    sim.limit(Span::from_ms(500));
    sim.host(A, || task::block_on(send_when_asked(ROUNDS)));
    sim.host(B, move || {
        task::block_on(async move {
            let (end, channel) = End::open(true);
            let mut events = channel.expect("asked for").into_stream().expect("a stream");
            meet(&end, "b", "a").await;
            for round in 0..ROUNDS {
                end.post_recv(round, 1);
                tell(&format!("ready {round}"), "");
                loop {
                    if take(&end.cq).is_some() {
                        break;
                    }
                    end.cq.req_notify(false).expect("arms");
                    if !is_broken && take(&end.cq).is_some() {
                        break;
                    }
                    events.next().await.expect("an event");
                }
            }
            tell("done", "");
        });
    });
    sim.run().map(drop)
}

#[test]
fn an_event_that_comes_before_it_is_asked_for_is_found() {
    let words = "h1 waits for an event of a completion channel (block_on at ";
    let found = must_find("lost event", lost_event);
    assert!(found.contains(words), "{found}");
}

/// A worker looks whether it shall stop, sends, and only then asks to be told: `notify_waiters` tells those alone that have asked.
fn lost_notice(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    sim.limit(Span::from_ms(500));
    sim.host(A, move || {
        task::block_on(async move {
            let (end, mut completions) = open();
            meet(&end, "a", "b").await;
            let (stop, notice) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
            let (its_stop, its_notice) = (stop.clone(), notice.clone());
            let worker = task::spawn(async move {
                while !its_stop.load(Ordering::Relaxed) {
                    let early = (!is_broken).then(|| its_notice.notified());
                    end.post_send(1, 60_000);
                    next(&mut completions).await;
                    match early {
                        Some(told) => told.await,
                        None => its_notice.notified().await,
                    }
                }
                end
            });
            // Between the message and its acknowledgement, or not.
            task::sleep(Duration::from_micros(8)).await;
            stop.store(true, Ordering::Relaxed);
            notice.notify_waiters();
            drop(worker.await);
            tell("stopped", "");
        });
    });
    sim.host(B, || {
        task::block_on(async {
            let (end, _) = open();
            end.qp.init(urxe::Access::NONE).expect("a state");
            end.post_recv(1, 60_000);
            meet(&end, "b", "a").await;
            task::ask("stopped").await;
        });
    });
    sim.run().map(drop)
}

#[test]
fn a_notice_that_comes_before_it_is_awaited_is_found() {
    let words = "to be woken by the program itself (task at ";
    let found = must_find("lost notice", lost_notice);
    assert!(found.contains(words), "{found}");
}

/// Two tasks add to a counter at the other host: each reads it, awaits that, and writes back what it read and one more.
fn lost_addition(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const EACH: u64 = 3;
    sim.limit(Span::from_ms(500));
    sim.host(A, move || {
        task::block_on(async move {
            let lock = Arc::new(tokio::sync::Mutex::new(()));
            let adders = [1, 2].map(|number| {
                let lock = lock.clone();
                task::spawn(async move {
                    let (end, mut completions) = open();
                    let names = (format!("a{number}"), format!("b{number}"));
                    meet(&end, &names.0, &names.1).await;
                    let place = task::ask("counter").await;
                    let (addr, rkey) = place.split_once(' ').expect("two numbers");
                    let addr = addr.parse().expect("a number");
                    let rkey = Rkey(rkey.parse().expect("a number"));
                    let sges = [end.memory.sge(..8)];
                    for _ in 0..EACH {
                        task::sleep(Duration::from_micros(1)).await;
                        let held = match is_broken {
                            true => None,
                            false => Some(lock.lock().await),
                        };
                        let read = SendWr::rdma_read(1, &sges, addr, rkey).signaled();
                        end.qp.post_send(&read).expect("posts");
                        next(&mut completions).await;
                        let mut count = [0; 8];
                        end.memory.read(0, &mut count);
                        let count = u64::from_ne_bytes(count) + 1;
                        end.memory.write(0, &count.to_ne_bytes());
                        let write = SendWr::rdma_write(2, &sges, addr, rkey).signaled();
                        end.qp.post_send(&write).expect("posts");
                        next(&mut completions).await;
                        drop(held);
                    }
                    end
                })
            });
            let [first, second] = adders;
            let ends = (first.await, second.await);
            tell("added", "");
            task::ask("counted").await;
            drop(ends);
        });
    });
    sim.host(B, || {
        task::block_on(async {
            let (first, _) = open();
            let (mut second, _) = End::of(first.context.clone(), false);
            tell(
                "counter",
                format!("{} {}", first.memory.addr(), first.memory.rkey().0),
            );
            second.qp = first.memory.pd().qp(&second.cq).create().expect("a QP");
            tokio::join!(meet(&first, "b1", "a1"), meet(&second, "b2", "a2"));
            task::ask("added").await;
            let mut count = [0; 8];
            first.memory.read(0, &mut count);
            assert_eq!(u64::from_ne_bytes(count), 2 * EACH, "additions");
            tell("counted", "");
        });
    });
    sim.run().map(drop)
}

#[test]
fn an_addition_that_is_lost_between_two_awaits_is_found() {
    let found = must_find("lost addition", lost_addition);
    assert!(found.contains("additions"), "{found}");
}

/// Which of several tasks goes on follows from the seed, and each may be the first and the last.
#[test]
fn every_order_of_tasks_comes_about() {
    const TASKS: usize = 4;
    let order = |seed| {
        let (says, order) = std::sync::mpsc::channel();
        let mut sim = Simulation::new(seed);
        sim.host(A, move || {
            task::block_on(async move {
                let tasks = [0, 1, 2, 3].map(|number| {
                    let says = says.clone();
                    task::spawn(async move {
                        for _ in 0..3 {
                            says.send(number).expect("heard");
                            task::yield_now().await;
                        }
                    })
                });
                for task in tasks {
                    task.await.expect("it ends");
                }
            });
        });
        let trace = sim.run().expect("it ends").trace();
        (order.try_iter().collect(), trace)
    };
    let all: Vec<(Vec<usize>, u64)> = (0..40).map(order).collect();
    for (seed, first) in (0..).zip(&all).take(5) {
        assert_eq!(&order(seed), first, "seed {seed}");
    }
    for number in 0..TASKS {
        let is_first = |(order, _): &(Vec<usize>, u64)| order[0] == number;
        let is_last = |(order, _): &(Vec<usize>, u64)| order.last() == Some(&number);
        assert!(
            all.iter().any(is_first) && all.iter().any(is_last),
            "{all:?}"
        );
    }
    let traces: std::collections::BTreeSet<u64> = all.iter().map(|(_, trace)| *trace).collect();
    let orders: std::collections::BTreeSet<_> = all.iter().map(|(order, _)| order).collect();
    assert!(
        orders.len() > 30 && traces.len() >= orders.len(),
        "{traces:?}"
    );
}
