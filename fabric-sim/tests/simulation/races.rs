//! Classic races of verbs programs, most of them as they were reported to real projects: the simulation must find each within a
//! hundred seeds, and the same program with the race mended must hold.
//!
//! Each test prints the seed that found it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabric_sim::HostId;
use fabric_sim::program::{Failure, Simulation, ask, sleep, spawn, tell};
use urxe::{CompChannel, ConnectOptions, Cq, SendWr, Wc, WcStatus};

use crate::end::{End, options};
use crate::race::must_find;

const A: HostId = HostId(0);
const B: HostId = HostId(1);

fn take(cq: &Cq) -> Option<Wc> {
    let mut wcs = [Wc::default()];
    (cq.poll(&mut wcs).expect("polls") == 1).then_some(wcs[0])
}

/// Waits for an event, and says so if none comes.
fn sleep_for_event(channel: &CompChannel) {
    let event = channel.wait_timeout(Duration::from_millis(20));
    assert!(event.expect("waits").is_some(), "slept, and no event came");
}

/// Sends so many messages of a byte, each when the peer has told that it is ready for it, and waits for each.
fn send_when_asked(end: &End, rounds: u64) {
    for round in 0..rounds {
        ask(&format!("ready {round}"));
        end.post_send(round, 1);
        assert_eq!(end.wait().status, WcStatus::Success);
    }
    ask("done");
}

/// Poll, arm, sleep: what comes between the poll and the arming raises no event (ofiwg/libfabric#796).
fn lost_wake_up(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const ROUNDS: u64 = 30;
    sim.host(A, || {
        let (end, _) = End::open(false);
        end.meet("a", "b", &options());
        send_when_asked(&end, ROUNDS);
    });
    sim.host(B, move || {
        let (end, channel) = End::open(true);
        let channel = channel.expect("asked for");
        end.meet("b", "a", &options());
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
                sleep_for_event(&channel);
            }
        }
        tell("done", "");
    });
    sim.run().map(drop)
}

#[test]
fn an_event_that_comes_before_it_is_asked_for_is_found() {
    must_find("lost wake-up", lost_wake_up);
}

/// Two queues with one channel, armed both, and only one polled again (apache/brpc#3415).
fn one_of_two_queues(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const ROUNDS: u64 = 30;
    sim.host(A, || {
        let (end, _) = End::open(false);
        end.meet("a", "b", &options());
        send_when_asked(&end, ROUNDS);
    });
    sim.host(B, move || {
        let (mut end, _) = End::open(false);
        let channel = end.context.create_comp_channel().expect("a channel");
        let queue = || end.context.create_cq_with_channel(64, &channel);
        let (sends, receives) = (queue().expect("a CQ"), queue().expect("a CQ"));
        let pd = end.memory.pd().clone();
        end.qp = pd.qp(&sends).recv_cq(&receives).create().expect("a QP");
        end.meet("b", "a", &options());
        for round in 0..ROUNDS {
            end.post_recv(round, 1);
            tell(&format!("ready {round}"), "");
            loop {
                if take(&receives).is_some() {
                    break;
                }
                assert_eq!(take(&sends), None);
                receives.req_notify(false).expect("arms");
                sends.req_notify(false).expect("arms");
                assert_eq!(take(&sends), None);
                if !is_broken && take(&receives).is_some() {
                    break;
                }
                sleep_for_event(&channel);
            }
        }
        tell("done", "");
    });
    sim.run().map(drop)
}

#[test]
fn two_queues_of_which_one_is_polled_again_are_found() {
    must_find("one of two queues", one_of_two_queues);
}

/// One event stands for several completions, of which only one is taken before the next sleep (linux-rdma/perftest#137).
fn one_completion_an_event(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const PAIRS: u64 = 10;
    sim.host(A, || {
        let (end, _) = End::open(false);
        end.meet("a", "b", &options());
        for pair in 0..PAIRS {
            ask(&format!("ready {pair}"));
            end.post_send(0, 1);
            end.post_send(1, 1);
            for _ in 0..2 {
                assert_eq!(end.wait().status, WcStatus::Success);
            }
        }
        ask("done");
    });
    sim.host(B, move || {
        let (end, channel) = End::open(true);
        let channel = channel.expect("asked for");
        end.meet("b", "a", &options());
        for pair in 0..PAIRS {
            end.post_recv(0, 1);
            end.post_recv(1, 1);
            end.cq.req_notify(false).expect("arms");
            tell(&format!("ready {pair}"), "");
            let mut taken = 0;
            while taken < 2 {
                sleep_for_event(&channel);
                end.cq.req_notify(false).expect("arms");
                while taken < 2 && take(&end.cq).is_some() {
                    taken += 1;
                    if is_broken {
                        break;
                    }
                }
            }
            // An event of the last look may be left.
            while channel.try_get().expect("looks").is_some() {}
        }
        tell("done", "");
    });
    sim.run().map(drop)
}

#[test]
fn an_event_for_several_completions_is_found() {
    must_find("one completion an event", one_completion_an_event);
}

/// The first receive is posted when the connection stands, and the peer sends as soon as it does (pmem/rpma#350).
fn receive_after_connect(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    let options = ConnectOptions {
        rnr_retry: 0,
        ..options()
    };
    sim.host(A, move || {
        let (end, _) = End::open(false);
        end.meet("a", "b", &options);
        ask("b is connected");
        end.post_send(1, 8);
        assert_eq!(end.wait().status, WcStatus::Success);
        tell("done", "");
    });
    sim.host(B, move || {
        let (end, _) = End::open(false);
        if !is_broken {
            end.qp.init(urxe::Access::NONE).expect("to INIT");
            end.post_recv(1, 8);
        }
        end.meet("b", "a", &options);
        tell("b is connected", "");
        // The thread that accepts is not the one that receives.
        let end = Arc::new(end);
        let receiver = end.clone();
        let thread = spawn(move || {
            if is_broken {
                receiver.post_recv(1, 8);
            }
            receiver.wait().status
        });
        assert_eq!(thread.join(), WcStatus::Success);
        ask("done");
    });
    sim.run().map(drop)
}

#[test]
fn a_receive_that_is_posted_after_the_connection_is_found() {
    must_find("receive after connect", receive_after_connect);
}

/// One buffer for all messages, written again while the one before is still being sent (nfs-ganesha/nfs-ganesha#14,
/// kvcache-ai/Mooncake#1567).
fn buffer_reused(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const MESSAGES: u8 = 16;
    const LEN: usize = 4096;
    sim.host(A, move || {
        let (end, _) = End::open(false);
        end.meet("a", "b", &options());
        ask("ready");
        for n in 0..MESSAGES {
            end.memory.write(0, &[n; LEN]);
            end.post_send(n.into(), LEN);
            if !is_broken {
                assert_eq!(end.wait().status, WcStatus::Success);
            }
        }
        if is_broken {
            for _ in 0..MESSAGES {
                assert_eq!(end.wait().status, WcStatus::Success);
            }
        }
        ask("done");
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        let place = |n: u8| usize::from(n) * LEN;
        for n in 0..MESSAGES {
            let sges = [end.memory.sge(place(n)..place(n) + LEN)];
            let recv = urxe::RecvWr::new(n.into(), &sges);
            end.qp.post_recv(&recv).expect("posts");
        }
        tell("ready", "");
        for n in 0..MESSAGES {
            assert_eq!(end.wait().status, WcStatus::Success);
            let mut bytes = [0; LEN];
            end.memory.read(place(n), &mut bytes);
            assert_eq!((n, bytes), (n, [n; LEN]), "message {n}");
        }
        tell("done", "");
    });
    sim.run().map(drop)
}

#[test]
fn a_buffer_that_is_written_before_its_message_has_left_is_found() {
    must_find("buffer reused", buffer_reused);
}

/// A WRITE behind a READ of the same place, without a fence: the READ may find what was written, or the WRITE send what was not read
/// yet (openucx/ucx#7215).
fn missing_fence(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    sim.host(A, move || {
        let (end, _) = End::open(false);
        let (addr, rkey) = end.meet("a", "b", &options());
        for round in 1..=10u8 {
            // The value is read into place 0, and from there written to place 8 of the peer.
            let sges = [end.memory.sge(..8)];
            let read = SendWr::rdma_read(1, &sges, addr, rkey).signaled();
            let write = SendWr::rdma_write(2, &sges, addr + 8, rkey).signaled();
            let write = if is_broken { write } else { write.fence() };
            end.memory.write(0, &[0; 8]);
            tell(&format!("set {round}"), "");
            ask(&format!("is set {round}"));
            end.qp.post_send_list(&[read, write]).expect("posts");
            for _ in 0..2 {
                assert_eq!(end.wait().status, WcStatus::Success);
            }
            tell(&format!("copied {round}"), "");
        }
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        for round in 1..=10u8 {
            ask(&format!("set {round}"));
            end.memory.write(0, &[round; 8]);
            tell(&format!("is set {round}"), "");
            ask(&format!("copied {round}"));
            let mut copy = [0; 8];
            end.memory.read(8, &mut copy);
            assert_eq!(copy, [round; 8], "what was read was written");
        }
    });
    sim.run().map(drop)
}

#[test]
fn a_fence_that_is_missing_is_found() {
    must_find("missing fence", missing_fence);
}

/// Data by one QP, and the signal that they are there by another (flagos-ai/FlagCX#461).
fn signal_on_another_qp(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const LEN: usize = 64 << 10;
    sim.host(A, move || {
        let ((data, _), (signal, _)) = (End::open(false), End::open(false));
        let (addr, rkey) = data.meet("a data", "b data", &options());
        signal.meet("a signal", "b signal", &options());
        ask("ready");
        data.memory.write(0, &[7; LEN]);
        let sges = [data.memory.sge(..LEN)];
        let write = SendWr::rdma_write(1, &sges, addr, rkey).signaled();
        data.qp.post_send(&write).expect("posts");
        if !is_broken {
            assert_eq!(data.wait().status, WcStatus::Success);
        }
        signal.post_send(2, 1);
        assert_eq!(signal.wait().status, WcStatus::Success);
        if is_broken {
            assert_eq!(data.wait().status, WcStatus::Success);
        }
        ask("done");
    });
    sim.host(B, || {
        let ((data, _), (signal, _)) = (End::open(false), End::open(false));
        data.meet("b data", "a data", &options());
        signal.meet("b signal", "a signal", &options());
        signal.post_recv(1, 1);
        tell("ready", "");
        assert_eq!(signal.wait().status, WcStatus::Success);
        let mut bytes = vec![0; LEN];
        data.memory.read(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 7), "signalled, not there");
        tell("done", "");
    });
    sim.run().map(drop)
}

#[test]
fn a_signal_that_overtakes_its_data_is_found() {
    must_find("signal on another QP", signal_on_another_qp);
}

/// The server answers by another way as soon as its WRITE is posted (chimera-nas/chimera#1064).
fn answered_when_posted(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const LEN: usize = 32 << 10;
    sim.host(A, move || {
        let (end, _) = End::open(false);
        let (addr, rkey) = end.meet("server", "client", &options());
        end.memory.write(0, &[9; LEN]);
        let sges = [end.memory.sge(..LEN)];
        let write = SendWr::rdma_write(1, &sges, addr, rkey).signaled();
        end.qp.post_send(&write).expect("posts");
        if is_broken {
            tell("answer", "success");
        }
        assert_eq!(end.wait().status, WcStatus::Success);
        tell("answer", "success");
        ask("done");
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("client", "server", &options());
        assert_eq!(ask("answer"), "success");
        let mut bytes = vec![0; LEN];
        end.memory.read(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 9), "answered, not there");
        tell("done", "");
    });
    sim.run().map(drop)
}

#[test]
fn an_answer_before_the_data_is_there_is_found() {
    must_find("answered when posted", answered_when_posted);
}

/// One thread posts and then counts, another takes completions and counts down: a completion comes before its request is
/// counted.
fn counted_too_late(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    const MESSAGES: u64 = 60;
    sim.host(A, move || {
        let (end, _) = End::open(false);
        let (addr, rkey) = end.meet("a", "b", &options());
        let (end, under_way) = (Arc::new(end), Arc::new(AtomicU64::new(0)));
        let (its_end, its_count) = (end.clone(), under_way.clone());
        let reaper = spawn(move || {
            for _ in 0..MESSAGES {
                assert_eq!(its_end.wait().status, WcStatus::Success);
                let before = its_count.fetch_sub(1, Ordering::Relaxed);
                assert!(before > 0, "a completion of a request that is not counted");
            }
        });
        for n in 0..MESSAGES {
            let sges = [end.memory.sge(..8)];
            let write = SendWr::rdma_write(n, &sges, addr, rkey).signaled();
            if !is_broken {
                under_way.fetch_add(1, Ordering::Relaxed);
            }
            end.qp.post_send(&write).expect("posts");
            if is_broken {
                under_way.fetch_add(1, Ordering::Relaxed);
            }
            sleep(Duration::from_micros(5));
        }
        reaper.join();
        tell("done", "");
    });
    sim.host(B, || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options());
        ask("done");
    });
    sim.run().map(drop)
}

#[test]
fn a_request_that_is_counted_after_it_was_posted_is_found() {
    must_find("counted too late", counted_too_late);
}

/// The passive side sends as soon as its own QP is ready; the active side's is not yet, and retries are few
/// (kvcache-ai/Mooncake#2625).
fn sent_before_the_peer_is_ready(sim: &mut Simulation, is_broken: bool) -> Result<(), Failure> {
    let options = ConnectOptions {
        retry_cnt: 0,
        ..options()
    };
    sim.host(A, move || {
        let (end, _) = End::open(false);
        end.qp.init(urxe::Access::NONE).expect("to INIT");
        end.post_recv(1, 8);
        end.meet("a", "b", &options);
        tell("a is ready", "");
        assert_eq!(end.wait().status, WcStatus::Success);
        ask("done");
    });
    sim.host(B, move || {
        let (end, _) = End::open(false);
        end.meet("b", "a", &options);
        if !is_broken {
            ask("a is ready");
        }
        end.post_send(1, 8);
        assert_eq!(end.wait().status, WcStatus::Success);
        tell("done", "");
    });
    sim.run().map(drop)
}

#[test]
fn a_message_to_a_peer_that_is_not_ready_is_found() {
    must_find(
        "sent before the peer is ready",
        sent_before_the_peer_is_ready,
    );
}
