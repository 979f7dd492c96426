//! Tasks, times and wakers.

use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_sim::fault::Fault;
use fabric_sim::program::{HostEnd, Simulation, ask, now, sleep, spawn, task, tell};
use fabric_sim::{HostId, Span, Time};

use crate::{A, B, meet, next, open};

const MS: Duration = Duration::from_millis(1);
/// A wake-up with the longest interruptions.
const LATE: Duration = Duration::from_micros(50);

/// Tells when it is dropped.
struct Dropped(Arc<AtomicU64>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn times_are_virtual() {
    let mut sim = Simulation::new(1);
    sim.host(A, || {
        task::block_on(async {
            let sleepers = [300, 100, 200].map(|ms| {
                task::spawn(async move {
                    task::sleep(ms * MS).await;
                    now()
                })
            });
            // The clock of a sleep begins with the call.
            let (early, mut ends) = (task::sleep(50 * MS), Vec::new());
            for sleeper in sleepers {
                ends.push(sleeper.await.expect("it ends"));
            }
            early.await;
            for (end, ms) in ends.into_iter().zip([300, 100, 200]) {
                assert!(end >= ms * MS && end < ms * MS + LATE, "{end:?}");
            }
            assert!(now() < 300 * MS + 2 * LATE, "{:?}", now());
            let long = task::sleep(Duration::MAX);
            let before = now();
            assert_eq!(task::timeout(MS, long).await, Err(task::Elapsed));
            assert!(now() - before < MS + LATE);
            assert_eq!(task::timeout(MS, async { 7 }).await, Ok(7));
            task::sleep(Duration::ZERO).await;
        });
    });
    sim.run().expect("they end");
}

#[test]
fn tasks_end_are_aborted_and_are_left() {
    let drops = Arc::new(AtomicU64::new(0));
    let count = drops.clone();
    let mut sim = Simulation::new(2);
    sim.host(A, move || {
        let its = count.clone();
        let value = task::block_on(async move {
            let long = |count: &Arc<AtomicU64>| {
                let here = Dropped(count.clone());
                task::spawn(async move {
                    task::sleep(1000 * MS).await;
                    drop(here);
                    9
                })
            };
            let (first, second, third) = (long(&its), long(&its), long(&its));
            task::yield_now().await;
            assert!(!first.is_finished());
            first.abort();
            assert!(first.is_finished());
            assert_eq!(its.load(Ordering::Relaxed), 1);
            assert_eq!(first.await, Err(task::Aborted));
            // Its end is awaited while it is aborted.
            let waiter = task::spawn(second);
            third.abort();
            assert_eq!(third.await, Err(task::Aborted));
            assert_eq!(waiter.await, Ok(Ok(9)));
            assert_eq!(its.load(Ordering::Relaxed), 3);
            // A task that aborts itself goes on until it waits.
            let (says, handle) = tokio::sync::oneshot::channel::<task::Handle<()>>();
            let own = task::spawn(async move {
                handle.await.expect("a handle").abort();
                task::sleep(MS).await;
                unreachable!("it was aborted");
            });
            assert!(says.send(own).is_ok());
            task::sleep(2 * MS).await;
            // This one is not awaited: it ends with all.
            drop(long(&its));
            "done"
        });
        assert_eq!((value, count.load(Ordering::Relaxed)), ("done", 4));
        assert!(now() < 1003 * MS, "{:?}", now());
    });
    sim.run().expect("they end");
    assert_eq!(drops.load(Ordering::Relaxed), 4);
}

/// A waker may be called by another thread, and by a program of another host.
#[test]
fn wakers_reach_other_programs() {
    let mut sim = Simulation::new(3);
    let (to_other, mut from_thread) = tokio::sync::mpsc::unbounded_channel();
    let to_host = to_other.clone();
    sim.host(A, move || {
        let thread = spawn(move || {
            sleep(MS);
            to_other.send("the thread").expect("heard");
        });
        task::block_on(async move {
            assert_eq!(from_thread.recv().await, Some("the thread"));
            assert!(now() >= MS && now() < MS + LATE, "{:?}", now());
            assert_eq!(from_thread.recv().await, Some("the host"));
            assert!(now() >= 3 * MS && now() < 3 * MS + LATE, "{:?}", now());
        });
        thread.join();
        tell("heard", "");
    });
    sim.host(B, move || {
        sleep(3 * MS);
        to_host.send("the host").expect("heard");
        assert_eq!(ask("heard"), "");
    });
    sim.run().expect("they end");
}

/// A task that polls by itself, and yields, keeps no other from its time, though polls take longer and longer.
#[test]
fn a_task_that_polls_does_not_delay_others() {
    let mut sim = Simulation::new(4);
    sim.host(A, || {
        task::block_on(async {
            let (end, _) = open();
            let poller = task::spawn(async move {
                while end.cq.poll(&mut [urxe::Wc::default()]).expect("polls") == 0 {
                    task::yield_now().await;
                }
            });
            for _ in 0..20 {
                let end = now() + 5 * MS;
                task::sleep(5 * MS).await;
                assert!(now() - end < LATE, "{:?}", now() - end);
            }
            poller.abort();
        });
    });
    sim.run().expect("it ends");
}

#[test]
fn a_crash_ends_tasks_where_they_are() {
    let drops = Arc::new(AtomicU64::new(0));
    let count = drops.clone();
    let mut sim = Simulation::new(5);
    sim.fault(Fault::crash(A).between(Span::from_us(100), Span::from_us(900)));
    sim.service(A, move || {
        let count = count.clone();
        task::block_on(async move {
            if now() >= Duration::from_micros(900) {
                tell("back", "");
                return;
            }
            let (end, mut completions) = open();
            let here = Dropped(count.clone());
            let task = task::spawn(async move {
                next(&mut completions).await;
                drop(here);
            });
            let _here = Dropped(count);
            meet(&end, "a", "b").await;
            task.await.expect("it is not aborted");
            unreachable!("its host has crashed");
        });
    });
    sim.host(B, || {
        task::block_on(async {
            let (end, mut completions) = open();
            meet(&end, "b", "a").await;
            task::sleep(Duration::from_micros(200)).await;
            end.post_send(1, 8);
            let wc = completions.next().await.expect("polls");
            assert_eq!(wc.status, urxe::WcStatus::RetryExcErr);
            assert_eq!(task::ask("back").await, "");
        });
    });
    let report = sim.run().expect("both end");
    assert!(matches!(report.end_of(A), Some(HostEnd::Finished(_))));
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

/// Many tasks on each of many hosts.
#[test]
fn many_tasks_cost_little() {
    const HOSTS: u32 = 16;
    const TASKS: u32 = 100;
    let mut sim = Simulation::new(6);
    for host in 0..HOSTS {
        sim.host(HostId(host), || {
            task::block_on(async {
                let tasks: Vec<_> = (0..TASKS)
                    .map(|number| {
                        task::spawn(async move {
                            for _ in 0..20 {
                                task::sleep(Duration::from_micros(u64::from(number + 10))).await;
                            }
                            number
                        })
                    })
                    .collect();
                let mut sum = 0;
                for task in tasks {
                    sum += task.await.expect("it ends");
                }
                assert_eq!(sum, TASKS * (TASKS - 1) / 2);
            });
        });
    }
    let report = sim.run().expect("they end");
    assert!(report.ended_at() > Time::ZERO + Span::from_us(20 * 109));
}

/// The same calls outside a simulation are tokio's.
#[test]
fn outside_a_simulation_the_same_calls_are_real() {
    let word = task::block_on(async {
        let before = now();
        let asks = task::spawn(async { task::ask("task outside").await });
        let sleeps = task::spawn(task::sleep(Duration::from_secs(1000)));
        task::yield_now().await;
        let late = task::timeout(MS, core::future::pending::<()>()).await;
        assert_eq!(late, Err(task::Elapsed));
        assert!(now() - before >= MS);
        sleeps.abort();
        assert_eq!(sleeps.await, Err(task::Aborted));
        tell("task outside", 42);
        asks.await
    });
    assert_eq!(word.as_deref(), Ok("42"));
}
