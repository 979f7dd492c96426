//! Programs that use `urxe`, on simulated hosts.

#![allow(
    clippy::disallowed_methods,
    reason = "one test keeps the processors busy on purpose"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabric_sim::fault::Fault;
use fabric_sim::program::{
    Cause, HostEnd, SeedTest, Simulation, ask, host, now, sleep, spawn, tell,
};
use fabric_sim::{HostId, Span, Time};
use urxe::{ConnectOptions, Context, ErrorKind, SendWr, Wc, WcStatus};

use crate::end::{End, options};
use crate::program_ends::cause;

pub(crate) const A: HostId = HostId(0);
pub(crate) const B: HostId = HostId(1);

fn receive(end: &End, len: usize) -> Vec<u8> {
    let wc = end.wait();
    assert_eq!((wc.status, wc.byte_len as usize), (WcStatus::Success, len));
    let mut text = vec![0; len];
    end.memory.read(0, &mut text);
    text
}

pub(crate) fn ping(rounds: usize, len: usize) {
    let (end, _) = End::open(false);
    end.meet("ping", "pong", &options());
    for round in 0..rounds {
        end.post_recv(1, len);
        end.memory.write(len, &vec![round as u8; len]);
        let sges = [end.memory.sge(len..2 * len)];
        end.qp.post_send(&SendWr::send(2, &sges)).expect("posts");
        assert_eq!(receive(&end, len), vec![!(round as u8); len]);
    }
    // If the last acknowledgement is lost, the other asks for it once more: stay until the other has it.
    ask("pong has all");
}

pub(crate) fn pong(rounds: usize, len: usize) {
    let (end, _) = End::open(false);
    end.meet("pong", "ping", &options());
    for round in 0..rounds {
        end.post_recv(1, len);
        assert_eq!(receive(&end, len), vec![round as u8; len]);
        end.memory.write(len, &vec![!(round as u8); len]);
        let sges = [end.memory.sge(len..2 * len)];
        let last = round == rounds - 1;
        let wr = SendWr::send(2, &sges);
        let wr = if last { wr.signaled() } else { wr };
        end.qp.post_send(&wr).expect("posts");
        if last {
            assert_eq!(end.wait().status, WcStatus::Success);
        }
    }
    tell("pong has all", "");
}

pub(crate) fn pingpong(sim: &mut Simulation, rounds: usize, len: usize) {
    sim.host(A, move || ping(rounds, len));
    sim.host(B, move || pong(rounds, len));
}

#[test]
fn two_programs_talk_in_virtual_time() {
    let mut sim = Simulation::new(1);
    pingpong(&mut sim, 10, 20_000);
    let report = sim.run().expect("they end");
    assert_eq!(report.counter("rdma_sends"), 20);
    assert_eq!(report.drops().total(), 0);
    let took = report.ended_at().since(Time::ZERO);
    // 20 messages of 20 KB at 100 Gb/s: 35 us of sending alone.
    assert!(
        took > Span::from_us(35) && took < Span::from_ms(1),
        "{took}"
    );
    assert!(matches!(report.end_of(A), Some(HostEnd::Finished(_))));
}

#[fabric_sim::test(seeds = 100, twice)]
fn faults_are_mended_and_runs_repeat(sim: &mut Simulation) {
    sim.fault(Fault::loss(0.02));
    sim.fault(Fault::corrupt_inside(0.01));
    sim.fault(Fault::duplicate(0.02, Span::from_us(3)));
    sim.fault(Fault::reorder(0.02, Span::from_us(5)));
    pingpong(sim, 6, 9_000);
    let report = sim.run()?;
    for mark in [
        "nak",
        "timeout",
        "duplicate",
        "retransmit",
        "icrc-drop",
        "loss",
    ] {
        report.assert_sometimes(mark);
    }
    assert!(report.ended_at() < Time::ZERO + Span::from_ms(200));
}

#[test]
fn equal_seeds_have_equal_traces_also_under_load() {
    let trace = |seed| {
        let mut sim = Simulation::new(seed);
        sim.fault(Fault::loss(0.03));
        pingpong(&mut sim, 20, 9_000);
        sim.run().expect("they end").trace()
    };
    let quiet: Vec<u64> = (0..4).map(trace).collect();
    let stop = Arc::new(AtomicU64::new(0));
    let busy: Vec<_> = (0..8)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    let loaded: Vec<u64> = (0..4).map(trace).collect();
    stop.store(1, Ordering::Relaxed);
    for thread in busy {
        thread.join().expect("it only spins");
    }
    assert_eq!(quiet, loaded);
    assert_ne!(quiet[0], quiet[1]);
}

#[test]
fn one_sided_operations_go_on_while_the_program_sleeps() {
    let mut sim = Simulation::new(3);
    sim.host(A, || {
        let (end, _) = End::open(false);
        let (addr, rkey) = end.meet("a", "b", &options());
        end.memory.write(0, &[7; 5000]);
        let sges = [end.memory.sge(..5000)];
        let write = SendWr::rdma_write(1, &sges, addr, rkey).signaled();
        let before = now();
        end.qp.post_send(&write).expect("posts");
        assert_eq!(end.wait().status, WcStatus::Success);
        assert!(now() - before < Duration::from_micros(100), "at once");
        tell("written", "");
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        sleep(Duration::from_secs(1));
        assert_eq!(ask("written"), "");
        let mut there = [0; 5000];
        end.memory.read(0, &mut there);
        assert_eq!(there, [7; 5000]);
    });
    sim.run().expect("they end");
}

#[test]
fn a_program_may_wait_for_events_or_look_at_its_memory() {
    let mut sim = Simulation::new(4);
    sim.host(A, || {
        let (end, channel) = End::open(true);
        let channel = channel.expect("asked for");
        let (addr, rkey) = end.meet("a", "b", &options());
        end.post_recv(1, 64);
        end.cq.req_notify(false).expect("arms");
        let none = channel.wait_timeout(Duration::from_millis(3));
        assert!(none.expect("waits").is_none(), "nobody sends yet");
        let flag = [end.memory.sge(64..65)];
        end.memory.write(64, &[1]);
        let write = SendWr::rdma_write(2, &flag, addr, rkey);
        end.qp.post_send(&write).expect("posts");
        assert!(channel.wait().expect("waits") == end.cq);
        assert_eq!(end.wait().wr_id, 1);
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        let mut flag = [0];
        while flag[0] == 0 {
            end.memory.read(0, &mut flag);
        }
        let sges = [end.memory.sge(..64)];
        let send = SendWr::send(1, &sges).signaled();
        end.qp.post_send(&send).expect("posts");
        assert_eq!(end.wait().status, WcStatus::Success);
    });
    sim.run().expect("they end");
}

#[test]
fn threads_of_a_host_share_its_context() {
    let mut sim = Simulation::new(5);
    sim.host(A, || {
        let (end, _) = End::open(false);
        let end = Arc::new(end);
        let (addr, rkey) = end.meet("a", "b", &options());
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let end = end.clone();
                spawn(move || {
                    let sges = [end.memory.sge(n * 8..n * 8 + 8)];
                    let add = SendWr::atomic_fetch_add(n as u64, &sges, addr, rkey, 1).signaled();
                    end.qp.post_send(&add).expect("posts");
                    n
                })
            })
            .collect();
        let sum: usize = threads.into_iter().map(|thread| thread.join()).sum();
        assert_eq!(sum, 6);
        let mut done: Vec<u64> = (0..4).map(|_| end.wait().wr_id).collect();
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2, 3]);
        tell("added", "");
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        ask("added");
        let mut sum = [0; 8];
        end.memory.read(0, &mut sum);
        assert_eq!(u64::from_ne_bytes(sum), 4);
    });
    sim.run().expect("they end");
}

#[test]
fn two_qps_of_one_host_talk_through_it() {
    let mut sim = Simulation::new(6);
    sim.host(A, || {
        let ((x, _), (y, _)) = (End::open(false), End::open(false));
        let options = options();
        x.qp.connect(&y.qp.endpoint(), &options).expect("connects");
        y.qp.connect(&x.qp.endpoint(), &options).expect("connects");
        y.post_recv(9, 8);
        x.post_send(1, 8);
        assert_eq!(y.wait().wr_id, 9);
        assert_eq!(x.wait().status, WcStatus::Success);
    });
    let report = sim.run().expect("it ends");
    assert_eq!(report.drops().total(), 0);
}

/// A program that keeps several QPs busy gets as much done on each, be they of one context or of several.
#[test]
fn qps_of_a_program_get_equal_shares() {
    for is_shared in [true, false] {
        let counts = completions_on_three_qps(is_shared);
        let (least, most) = (counts.iter().min(), counts.iter().max());
        let (least, most) = (*least.expect("three"), *most.expect("three"));
        // Contexts are asked in turn when the adapter has room, but one that posts while there is room sends at once.
        let tolerance = if is_shared { 10 } else { 25 };
        assert!(
            least > 50 && most * 100 <= least * (100 + tolerance),
            "{is_shared} {counts:?}"
        );
    }
}

fn completions_on_three_qps(is_shared: bool) -> [u64; 3] {
    const PEERS: [&str; 3] = ["x", "y", "z"];
    const LEN: usize = 1 << 16;
    let completions = Arc::new([const { AtomicU64::new(0) }; 3]);
    let counted = completions.clone();
    let mut sim = Simulation::new(7);
    sim.host(A, move || {
        let (first, _) = End::open(false);
        let ends = PEERS.map(|peer| {
            let (end, _) = match is_shared {
                true => End::of(first.context.clone(), false),
                false => End::open(false),
            };
            let there = end.meet(&format!("a to {peer}"), peer, &ConnectOptions::default());
            (end, there)
        });
        let post = |at: usize| {
            let (end, (addr, rkey)) = &ends[at];
            let sges = [end.memory.sge(..LEN)];
            let wr = SendWr::rdma_write(at as u64, &sges, *addr, *rkey).signaled();
            end.qp.post_send(&wr).expect("posts");
        };
        for at in 0..12 {
            post(at % 3);
        }
        while now() < Duration::from_millis(2) {
            for at in 0..3 {
                let mut wcs = [Wc::default(); 16];
                let count = ends[at].0.cq.poll(&mut wcs).expect("polls");
                for wc in &wcs[..count] {
                    assert_eq!(wc.status, WcStatus::Success);
                    counted[at].fetch_add(1, Ordering::Relaxed);
                    post(at);
                }
            }
        }
        tell("done", "");
    });
    for (at, peer) in PEERS.into_iter().enumerate() {
        sim.host(HostId(at as u32 + 1), move || {
            let (end, _) = End::open(false);
            end.meet(peer, &format!("a to {peer}"), &ConnectOptions::default());
            ask("done");
        });
    }
    sim.run().expect("they end");
    [0, 1, 2].map(|at| completions[at].load(Ordering::Relaxed))
}

#[test]
fn programs_of_a_run_share_a_thread_and_keep_their_own_places() {
    let mut sim = Simulation::new(10);
    for number in 0..8 {
        sim.host(HostId(number), move || {
            for _ in 0..50 {
                sleep(Duration::from_nanos(u64::from(7 - number)));
                assert_eq!(host(), Some(HostId(number)));
                let here = urxe::network::current().expect("a simulated host's");
                let mine = std::net::IpAddr::from([10, 0, 0, number as u8 + 1]);
                assert!(here.interface_mtu(mine).is_some());
            }
        });
    }
    sim.run().expect("all end");
    assert_eq!(host(), None);
    assert!(urxe::network::current().is_none());
}

#[test]
fn what_cannot_be_is_said() {
    let mut sim = Simulation::new(14);
    sim.topology(fabric_sim::Topology::single_switch(
        2,
        fabric_sim::Link::new(fabric_sim::Rate::gbps(10)),
    ));
    sim.host(HostId(2), || {});
    assert_eq!(
        cause(sim.run()),
        Cause::Setup("there is no host 2".to_owned())
    );
    let mut sim = Simulation::new(14);
    sim.fault(Fault::loss(2.0)).host(A, || {});
    assert!(matches!(cause(sim.run()), Cause::Setup(_)));
    let mut sim = Simulation::new(14);
    sim.host(A, || {
        let other = "10.0.0.2".parse().expect("an address");
        let error = Context::open(other).expect_err("another host's");
        assert_eq!(error.kind(), &ErrorKind::NoAddress(other));
    });
    sim.run().expect("it ends");
}

#[test]
fn a_run_is_captured() {
    let path = std::env::temp_dir().join(format!("urxe-sim-{}.pcapng", std::process::id()));
    let mut sim = Simulation::new(15);
    pingpong(&mut sim, 2, 5_000);
    sim.capture(&path).run().expect("they end");
    let file = std::fs::read(&path).expect("it was written");
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert!(file.len() > 4 * 4 * 5_000, "four messages at four ports");
    let mut sim = Simulation::new(15);
    sim.host(A, || {}).capture("/nowhere/at/all");
    assert!(matches!(cause(sim.run()), Cause::Setup(words) if words.contains("/nowhere")));
}

#[test]
fn a_set_of_seeds_finds_the_one_that_fails() {
    let test = SeedTest {
        name: "here",
        seeds: 50,
        twice: false,
    };
    let body = |sim: &mut Simulation| {
        sim.host(A, || sleep(Duration::from_micros(1)));
        let seed = sim.seed();
        let report = sim.run().expect("it ends");
        report.assert_sometimes("nak");
        assert!(seed != 17, "seventeen");
    };
    let failure = test.find(0..50, true, body).expect_err("one fails");
    assert_eq!((failure.seed, &*failure.words), (Some(17), "seventeen"));
    let failure = test.find(20..25, true, body).expect_err("no NAK");
    assert_eq!(failure.seed, None);
    assert_eq!(failure.words, "no seed saw this: nak");
    assert_eq!(test.find(20..25, false, body), Ok(()));
}

#[test]
fn a_test_that_is_not_the_seeds_alone_is_found_out() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let test = SeedTest {
        name: "here",
        seeds: 1,
        twice: true,
    };
    let body = |sim: &mut Simulation| {
        sim.host(A, || {
            let other = RUNS.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_micros(other));
        });
        sim.run().map(drop)
    };
    let failure = test.find(0..1, false, body).expect_err("they differ");
    assert_eq!(failure.seed, Some(0));
    assert!(
        failure.words.starts_with("two runs differ"),
        "{}",
        failure.words
    );
}

#[test]
fn outside_a_simulation_the_same_calls_are_real() {
    assert_eq!(host(), None);
    let before = now();
    let told = spawn(|| {
        sleep(Duration::from_millis(1));
        tell("outside", 42);
        "done"
    });
    assert_eq!(ask("outside"), "42");
    assert_eq!(told.join(), "done");
    assert!(now() - before >= Duration::from_millis(1));
}

/// A run captured twice, with other addresses of the programs' memory, is the same to the byte.
#[test]
fn captures_of_a_seed_are_equal_byte_by_byte() {
    let folder = std::env::temp_dir().join(format!("urxe-captures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let capture = |name: &str| {
        let path = folder.join(name);
        let mut sim = Simulation::new(5);
        sim.capture(&path).fault(Fault::loss(0.02));
        sim.host(A, || {
            let (end, _) = End::open(false);
            let (addr, rkey) = end.meet("a", "b", &options());
            let sges = [end.memory.sge(..20_000)];
            let write = SendWr::rdma_write(1, &sges, addr, rkey).signaled();
            end.qp.post_send(&write).expect("posts");
            assert_eq!(end.wait().status, WcStatus::Success);
            tell("done", "");
        });
        sim.host(B, || {
            let (end, _) = End::open(false);
            end.meet("b", "a", &options());
            ask("done");
        });
        sim.run().expect("they end");
        std::fs::read(path).expect("was written")
    };
    let first = capture("first");
    // So that no later allocation lies where one of the first run lay.
    let between: Vec<Vec<u8>> = (0..64).map(|n| vec![0; 1000 << (n % 10)]).collect();
    let second = capture("second");
    drop(between);
    std::fs::remove_dir_all(&folder).expect("it was made here");
    assert!(first.len() > 20_000, "the WRITE is in it");
    assert!(first == second, "captures differ");
}

#[test]
fn programs_are_in_the_lossless_class_unless_they_say_otherwise() {
    let classes = |class: Option<u8>| {
        let mut sim = Simulation::new(1);
        if let Some(tos) = class {
            sim.traffic_class(tos);
        }
        pingpong(&mut sim, 2, 5_000);
        sim.run().expect("they end").sent_by_class()
    };
    let is_all_in =
        |sent: [u64; 8], class: usize| sent[class] > 0 && sent[class] == sent.iter().sum::<u64>();
    assert!(is_all_in(classes(None), 3));
    assert!(is_all_in(classes(Some(0)), 0));
}

/// A failure says what came before it.
#[test]
fn a_failure_tells_the_faults_and_the_last_calls() {
    let mut sim = Simulation::new(3);
    sim.fault(Fault::loss(0.0).nth([2]));
    sim.host(A, || {
        let (end, _) = End::open(false);
        end.meet("a", "b", &options());
        end.post_send(1, 20_000);
        assert_eq!(end.wait().status, WcStatus::Success);
        tell("done", "");
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.qp.init(urxe::Access::NONE).expect("to INIT");
        end.post_recv(1, 20_000);
        end.meet("b", "a", &options());
        assert_eq!(end.wait().status, WcStatus::Success);
        ask("done");
        panic!("on purpose");
    });
    let failure = sim.run().expect_err("it panics");
    let before = failure.before().join("\n");
    assert!(before.contains("frame 2 (Send PSN"), "{before}");
    assert!(before.contains("h0 to h1"), "{before}");
    let posted = before.contains("h1 called last: post a receive on QP 0x");
    assert!(posted && before.contains(" (wr_id 1) at "), "{before}");
    assert!(before.contains("; poll the end of Recv of QP"), "{before}");
    assert!(
        before.contains("h0 called last: post Send on QP"),
        "{before}"
    );
    assert!(failure.to_string().contains(&failure.before()[0]));
}

/// Of four faults and dozens of hits a failure needs the loss of one frame.
#[test]
fn a_failure_is_told_with_as_few_faults_as_it_takes() {
    let body = |sim: &mut Simulation| {
        sim.fault(Fault::duplicate(0.1, Span::from_us(3)));
        sim.fault(Fault::reorder(0.1, Span::from_us(5)));
        sim.fault(Fault::loss(0.1));
        let later = (Span::from_ms(900), Span::from_ms(901));
        sim.fault(Fault::link_down().on(A).between(later.0, later.1));
        pingpong(sim, 2, 20_000);
        let report = sim.run().map_err(|failure| failure.to_string())?;
        let is_lost = report.saw("loss");
        (!is_lost)
            .then_some(())
            .ok_or("something was lost".to_owned())
    };
    let test = SeedTest {
        name: "lossy",
        seeds: 20,
        twice: false,
    };
    let failure = test.find(0..20, false, body).expect_err("a packet is lost");
    let fewest = test.fewest(&failure, body);
    println!("seed {:?}: {fewest}", failure.seed);
    assert!(
        fewest.contains("no more than: loss of frames ["),
        "{fewest}"
    );
    assert!(!fewest.contains(','), "one frame of one fault: {fewest}");
}
