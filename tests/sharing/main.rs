//! Many processes on one address, of which some are killed all the time; and processes that are refused the address.
//!
//! `tests/soak sharing` runs it with 64 processes for a minute; the test command takes fewer.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod ball;
mod crowd;
mod leaks;
mod member;
mod peer;
mod refused;

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crowd::Crowd;

/// Processes and seconds, instead of 16 and 8.
const SIZE: &str = "URXE_SHARING";

/// An address on loopback that no other test has: from the process id, and a number.
fn address(number: u8) -> IpAddr {
    let pid = std::process::id();
    let (high, low) = (210 + (pid / 250 % 40) as u8, (pid % 250) as u8);
    IpAddr::V4(Ipv4Addr::new(127, high, low, number))
}

/// What the environment says, as numbers.
fn numbers(name: &str) -> Vec<u64> {
    let text = std::env::var(name).unwrap_or_default();
    let parse = |word: &str| word.parse().unwrap_or_else(|_| panic!("{name}={text}?"));
    text.split_whitespace().map(parse).collect()
}

/// All of them play ball with all others. Again and again a quarter is killed, and others come in their place: those who
/// live lose nothing but their connections to the dead, and of the dead nothing is left.
#[test]
fn a_quarter_is_killed_again_and_again() {
    let (count, seconds) = match numbers(SIZE)[..] {
        [] => (16, 8),
        [count, seconds] => (count, seconds),
        ref other => panic!("{SIZE}={other:?}: processes and seconds"),
    };
    let seed = numbers("URXE_SEED").first().copied().unwrap_or(1);
    println!("{count} processes for {seconds} s; URXE_SEED={seed} repeats what is killed and when");
    let mut crowd = Crowd::gather(address(1), count as usize, seed);
    crowd.until("all are connected", Crowd::is_whole);
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        crowd.kill_a_quarter();
        crowd.all_go_on();
        crowd.replace_the_dead();
        // Every other time the next are killed while these connect.
        if rounds % 2 == 0 {
            crowd.until("the new ones are connected", Crowd::is_whole);
        }
        rounds += 1;
    }
    crowd.until("all are connected", Crowd::is_whole);
    crowd.all_go_on();
    crowd.until(
        "the rings of the dead are unmapped",
        Crowd::has_no_rings_of_the_dead,
    );
    let story = crowd.disperse();
    println!("{rounds} rounds, {story}");
    leaks::nothing_is_left(address(1), &story.pids);
    assert!(rounds > 0 && story.killed > 0);
    let by_sockets = std::env::var("URXE_WIRE").is_ok_and(|wire| wire == "sockets");
    assert_eq!(story.count("tx_records") == 0, by_sockets);
}
