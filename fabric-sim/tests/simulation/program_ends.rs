//! How programs end: in a panic, in a wait for what never comes, at the limit of time, in a crash of the host; and what is dropped then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabric_sim::fault::Fault;
use fabric_sim::program::{Cause, Failure, HostEnd, Simulation, ask, now, sleep, tell};
use fabric_sim::{Span, Time};
use urxe::WcStatus;

use crate::end::{End, options};
use crate::programs::{A, B};

pub(crate) fn cause(result: Result<impl std::fmt::Debug, Failure>) -> Cause {
    result.expect_err("it fails").cause().clone()
}

#[test]
fn a_panic_ends_the_run_and_names_the_host() {
    let mut sim = Simulation::new(7);
    sim.host(A, || {
        sleep(Duration::from_micros(5));
        panic!("on purpose");
    });
    sim.host(B, || ask("what nobody tells").clear());
    let failure = sim.run().expect_err("one panicked");
    let expected = Cause::Panicked {
        host: "h0".to_owned(),
        words: "on purpose".to_owned(),
    };
    assert_eq!(failure.cause(), &expected);
    assert_eq!(failure.at(), Time::ZERO + Span::from_us(5));
    assert_eq!(
        failure.to_string(),
        "seed 7, at 5 us: h0 panicked: on purpose"
    );
}

#[test]
fn waiting_for_what_never_comes_is_found_out() {
    let mut sim = Simulation::new(8);
    sim.host(A, || drop(ask("the end of the world")));
    let waits = "h0 asks for \"the end of the world\", which no program told";
    assert_eq!(cause(sim.run()), Cause::Deadlock(vec![waits.to_owned()]));
}

#[test]
fn a_program_without_end_meets_the_time_limit() {
    let mut sim = Simulation::new(9);
    sim.limit(Span::from_ms(50));
    sim.host(A, || {
        let (end, _) = End::open(false);
        end.wait();
    });
    let expected = Cause::TimeLimit {
        until: Time::ZERO + Span::from_ms(50),
        waiting: vec!["h0 polls for a completion".to_owned()],
    };
    assert_eq!(cause(sim.run()), expected);
}

#[test]
fn a_program_that_blocks_outside_is_left_behind() {
    let (let_go, stay) = std::sync::mpsc::channel::<()>();
    let mut sim = Simulation::new(10);
    sim.patience(Duration::from_millis(200));
    sim.host(A, move || {
        let (end, _) = End::open(false);
        end.qp.init(urxe::Access::NONE).expect("to INIT");
        end.post_recv(7, 100);
        assert!(stay.recv().is_err());
    });
    sim.host(B, || sleep(Duration::from_secs(1)));
    let failure = sim.run().expect_err("it never returns");
    assert_eq!(*failure.cause(), Cause::Stuck("h0".to_owned()));
    let before = failure.before().join("\n");
    assert!(
        before.contains("h0 called last: post a receive on"),
        "{before}"
    );
    assert!(before.contains("(wr_id 7)"), "{before}");
    drop(let_go);
}

#[test]
fn a_program_that_goes_too_deep_is_told() {
    fn depth(left: u64) -> u64 {
        let here = std::hint::black_box([left; 64]);
        match left {
            0 => 0,
            _ => 1 + depth(left - 1) + here[left as usize % 64],
        }
    }
    let mut sim = Simulation::new(10);
    sim.host(A, || sleep(Duration::from_secs(1)));
    sim.host(B, || assert!(depth(u64::MAX) > 0));
    let expected = Cause::Panicked {
        host: "h1".to_owned(),
        words: "its stack overflowed".to_owned(),
    };
    assert_eq!(cause(sim.run()), expected);
}

/// Tells when it is dropped.
struct Dropped(Arc<AtomicU64>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_crash_ends_the_program_where_it_is() {
    let drops = Arc::new(AtomicU64::new(0));
    let count = drops.clone();
    let mut sim = Simulation::new(11);
    sim.fault(Fault::crash(A).between(Span::from_us(100), Span::from_ms(9_000)));
    sim.host(A, move || {
        let _here = Dropped(count);
        let (end, _) = End::open(false);
        end.meet("a", "b", &options());
        end.wait();
        unreachable!("its host has crashed");
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        sleep(Duration::from_micros(200));
        end.post_send(1, 8);
        assert_eq!(end.wait().status, WcStatus::RetryExcErr);
    });
    let report = sim.run().expect("the other ends");
    assert_eq!(report.end_of(A), Some(HostEnd::Crashed));
    assert!(report.saw("crash") && report.saw("retry-exhausted"));
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn a_service_starts_again_with_its_host() {
    let mut sim = Simulation::new(12);
    sim.fault(Fault::crash(A).between(Span::from_us(100), Span::from_us(300)));
    sim.service(A, || {
        let (end, _) = End::open(false);
        if now() < Duration::from_micros(100) {
            end.wait();
        }
        tell("back", end.context.address());
    });
    sim.host(B, || assert_eq!(ask("back"), "10.0.0.1"));
    let report = sim.run().expect("it comes back");
    assert!(report.ended_at() > Time::ZERO + Span::from_us(300));
    assert!(matches!(report.end_of(A), Some(HostEnd::Finished(_))));
}

#[test]
fn values_of_programs_that_are_ended_are_dropped() {
    let drops = Arc::new(AtomicU64::new(0));
    let mut sim = Simulation::new(13);
    for host in [A, B] {
        let count = drops.clone();
        sim.host(host, move || {
            let _here = Dropped(count);
            drop(ask("nothing"));
        });
    }
    assert!(matches!(cause(sim.run()), Cause::Deadlock(_)));
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}
