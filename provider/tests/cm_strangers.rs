//! Listeners and strangers: thousands that ask and never confirm, or connect and disconnect properly, cost a bounded
//! amount of memory, and a friend gets in all the time.
//!
//! `URXE_TEST_STRANGERS=200000` has so many come, instead of a number that takes a moment.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, address, alone};
use crate::stranger::Stranger;
use urxe::cm;
use urxe::cm::{CmError, ConnectBuilder, Listener, RejReason};
use urxe_wire::cm::{CmMessage, Dreq, Rep, Rtu};

/// Guests of a `cm::Listener` that are half open, at most: docs/CM.md.
const GUESTS_MAX: u64 = 256;

fn count(usual: u32) -> u32 {
    let wanted = std::env::var("URXE_TEST_STRANGERS").ok();
    wanted.and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// A listener, and a thread that accepts all peers for as long as the friend does not say that it is over.
fn listening() -> (SocketAddr, std::thread::JoinHandle<u32>) {
    let listener = cm::listen(SocketAddr::new(address(), 0)).expect("listens");
    let at = listener.local_addr();
    (at, std::thread::spawn(move || welcome(&listener)))
}

/// How many came.
fn welcome(listener: &Listener) -> u32 {
    let mut came = 0;
    loop {
        let connection = listener.accept().expect("a guest's failure is the guest's");
        came += 1;
        if connection.private_data() == b"last" {
            return came;
        }
    }
}

/// Connects and says how long it took.
fn befriend(to: SocketAddr, from: SocketAddr, word: &[u8]) -> Duration {
    let start = Instant::now();
    let friend = ConnectBuilder::new(to)
        .from(from)
        .private_data(word)
        .timeout(PATIENCE)
        .connect();
    drop(friend.expect("a friend gets in"));
    start.elapsed()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|n| n.parse().ok()).expect("a number")
}

fn rep(message: CmMessage) -> Option<Rep> {
    match message {
        CmMessage::Rep(rep) => Some(rep),
        _ => None,
    }
}

/// They ask, and never say that they are there.
#[test]
fn requests_that_are_never_confirmed_cost_little_and_shut_nobody_out() {
    alone(
        "cm_strangers::requests_that_are_never_confirmed_cost_little_and_shut_nobody_out",
        || {
            let (to, server) = listening();
            let mut stranger = Stranger::new(address(), to);
            let from = SocketAddr::new(address(), 0);
            befriend(to, from, b"first");
            let (before, count) = (resident_kib(), count(6000));
            let (mut most, mut slowest, mut friends) = (0, Duration::ZERO, 0);
            for number in 0..count {
                stranger.say(&CmMessage::Req(stranger.req(number, b"")));
                // So fast that no socket overflows: what is lost there tells nothing.
                let answered = stranger.hears_one(PATIENCE, rep);
                assert!(answered.is_some(), "request {number} is not accepted");
                if number % 500 == 499 {
                    slowest = slowest.max(befriend(to, from, b"friend"));
                    friends += 1;
                    most = most.max(resident_kib());
                }
            }
            befriend(to, from, b"last");
            assert_eq!(server.join().expect("no panic"), friends + 2);
            println!(
                "{count} requests, {friends} friends, the slowest {slowest:?}; {before} KiB, {most} KiB"
            );
            // A guest takes up to 64 KiB, what is left of it in tables 1 KiB.
            let room = GUESTS_MAX * 64 + 16_384 + 8192;
            assert!(most < before + room, "{before} KiB became {most}");
        },
    );
}

/// They connect, and disconnect, and say that their packets may be under way for hours.
#[test]
fn polite_connections_shut_nobody_out() {
    alone("cm_strangers::polite_connections_shut_nobody_out", || {
        let (to, server) = listening();
        let mut stranger = Stranger::new(address(), to);
        let from = SocketAddr::new(address(), 0);
        befriend(to, from, b"first");
        let (before, count) = (resident_kib(), count(3000));
        let (mut most, mut slowest, mut friends) = (0, Duration::ZERO, 0);
        for number in 0..count {
            stranger.say(&CmMessage::Req(stranger.req(number, b"")));
            let rep = stranger.hears_one(PATIENCE, rep).expect("accepted");
            stranger.say(&CmMessage::Rtu(Rtu {
                local_comm_id: rep.remote_comm_id,
                remote_comm_id: rep.local_comm_id,
                ..Rtu::default()
            }));
            stranger.say(&CmMessage::Dreq(Dreq {
                local_comm_id: rep.remote_comm_id,
                remote_comm_id: rep.local_comm_id,
                remote_qpn: rep.local_qpn,
                ..Dreq::default()
            }));
            let parted = stranger.hears_one(PATIENCE, |message| match message {
                CmMessage::Drep(_) => Some(()),
                _ => None,
            });
            assert!(parted.is_some(), "connection {number} does not end");
            if number % 500 == 499 {
                slowest = slowest.max(befriend(to, from, b"friend"));
                friends += 1;
                most = most.max(resident_kib());
            }
        }
        befriend(to, from, b"last");
        server.join().expect("no panic");
        println!(
            "{count} connections, {friends} friends, the slowest {slowest:?}; {before} KiB, {most} KiB"
        );
        let room = GUESTS_MAX * 64 + 65_536;
        assert!(most < before + room, "{before} KiB became {most}");
    });
}

/// A guest that cannot be taken in is refused, and the next one is taken.
#[test]
fn a_guest_that_cannot_be_made_does_not_end_the_listener() {
    let listener = cm::listen(SocketAddr::new(address(), 0)).expect("listens");
    // More than a QP can have.
    let listener = listener.with_cap(urxe::QpCap {
        max_send_wr: u32::MAX / 4,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    });
    let to = listener.local_addr();
    let client = std::thread::spawn(move || ConnectBuilder::new(to).timeout(PATIENCE).connect());
    let start = Instant::now();
    while !client.is_finished() && start.elapsed() < PATIENCE {
        let accepted = listener.accept_timeout(Duration::from_millis(10));
        assert!(
            accepted
                .expect("a guest's failure is the guest's")
                .is_none()
        );
    }
    let refused = client.join().expect("no panic").expect_err("refused");
    let reason = CmError::Rejected(RejReason::NO_RESOURCES);
    assert_eq!(refused.cm(), Some(reason), "{refused}");
}
