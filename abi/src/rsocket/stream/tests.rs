//! Two connections that talk to each other, without the connection manager.

use std::time::{Duration, Instant};

use urxe::{ConnectOptions, Context};

use super::connection::{Connection, Link};
use crate::rsocket::settings::Settings;
use crate::rsocket::wire::Message;

/// Both ends, on an address that no other test has.
fn pair(last: u8, settings: &Settings) -> (Connection, Connection) {
    let (one, other) = pair_without_receives(last, settings);
    for end in [&one, &other] {
        end.post_receives().expect("there is room");
    }
    (one, other)
}

pub(super) fn pair_without_receives(last: u8, settings: &Settings) -> (Connection, Connection) {
    let pid = std::process::id();
    let addr = format!("127.{}.{}.{last}", 100 + pid / 250 % 90, pid % 250);
    let context = Context::open(addr.parse().expect("an address")).expect("loopback is there");
    let pd = context.alloc_pd().expect("a new context has room");
    let make = || Connection::new(&pd, settings).expect("there is room");
    let (mut one, mut other) = (make(), make());
    for (from, to) in [(&one, &other), (&other, &one)] {
        let peer = to.qp.endpoint();
        from.qp
            .connect(&peer, &ConnectOptions::default())
            .expect("both are new");
    }
    one.meet(other.introduction());
    other.meet(one.introduction());
    (one, other)
}

/// Until it holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::yield_now();
    }
}

fn number(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *seed >> 33
}

/// Both directions at once, in pieces of all sizes, through rings of different sizes: what arrives is what was sent.
#[test]
fn a_stream_is_the_same_at_the_other_end() {
    const BYTES: usize = 4 << 20;
    for (last, send_bytes, recv_bytes, depth) in [(1, 1 << 17, 1 << 17, 384), (2, 5000, 9000, 16)] {
        let settings = Settings {
            send_bytes,
            recv_bytes,
            send_depth: depth,
            recv_depth: depth,
            ..Settings::default()
        };
        let (mut one, mut other) = pair(last, &settings);
        let mut seed = 20_26;
        let bytes: Vec<u8> = (0..BYTES).map(|_| number(&mut seed) as u8).collect();
        let (mut sent, mut got) = ([0; 2], [Vec::new(), Vec::new()]);
        until("all has arrived", || {
            for (index, end) in [&mut one, &mut other].into_iter().enumerate() {
                end.progress();
                let most = 1 + number(&mut seed) as usize % 70_000;
                if sent[index] < BYTES && end.can_send() {
                    sent[index] += end.send(&bytes[sent[index]..], most).expect("it is up");
                }
                let mut part = vec![0; 1 + number(&mut seed) as usize % 50_000];
                let peeked = end.recv(&mut part, true);
                let copy = part[..peeked].to_vec();
                let len = end.recv(&mut part, false);
                assert_eq!(copy, part[..len], "what was looked at is what was read");
                got[index].extend_from_slice(&part[..len]);
                assert_eq!(end.link, Link::Up);
            }
            got.iter().all(|got| got.len() == BYTES)
        });
        assert!(got[0] == bytes && got[1] == bytes, "seed 2026");
    }
}

/// A side that does not read stops the other one, and is not overrun.
#[test]
fn a_full_ring_stops_the_sender() {
    let settings = Settings::default();
    let (mut one, mut other) = pair(3, &settings);
    let bytes = vec![7; 1 << 20];
    let mut sent = 0;
    let stop = Instant::now() + Duration::from_millis(300);
    while Instant::now() < stop {
        one.progress();
        other.progress();
        if one.can_send() {
            sent += one.send(&bytes, 1 << 16).expect("it is up");
        }
    }
    assert_eq!(sent, settings.recv_bytes as usize);
    let mut part = vec![0; 1 << 17];
    assert_eq!(other.recv(&mut part, false), sent);
    until("there is room again", || {
        other.progress();
        one.progress();
        one.can_send()
    });
}

#[test]
fn goodbyes_end_one_direction_or_both() {
    let (mut one, mut other) = pair(4, &Settings::default());
    one.writes = false;
    one.send_control(Message::Shutdown).expect("it is up");
    until("one direction ends", || {
        other.progress();
        one.progress();
        !other.reads
    });
    assert_eq!(other.link, Link::Up);
    assert!(other.is_readable(), "the end is told");
    other.send_control(Message::Disconnect).expect("it is up");
    until("both are down", || {
        other.progress();
        one.progress();
        one.link == Link::Down && other.link == Link::Down
    });
    assert!(one.is_idle() && other.is_idle());
}

/// Memory that one side mapped, and the other writes to.
#[test]
fn mapped_memory_is_written_to_by_its_offset() {
    let settings = Settings {
        iomap_size: 8,
        ..Settings::default()
    };
    let (mut one, mut other) = pair(5, &settings);
    let mut memory = vec![0_u8; 10_000];
    let place = (memory.as_mut_ptr(), memory.len());
    // SAFETY: it outlives both.
    unsafe { one.map(place, true, 1 << 32) }.expect("there are eight places");
    one.tell_map().expect("it is up");
    until("the peer knows", || {
        one.progress();
        other.progress();
        other.find_map((1 << 32) + 9_999).is_some()
    });
    assert!(other.find_map((1 << 32) + 10_000).is_none());
    assert!(other.find_map(5).is_none());
    let (addr, room, key) = other.find_map((1 << 32) + 100).expect("it is inside");
    assert_eq!(room, 9_900);
    let written = other
        .send_direct(b"directly", 100, addr, key)
        .expect("it is up");
    assert_eq!(written, 8);
    until("it is there", || {
        other.progress();
        other.is_idle()
    });
    assert_eq!(&memory[99..109], b"\0directly\0");
    one.unmap(place.0.addr(), place.1).expect("it is mapped");
    assert!(one.unmap(place.0.addr(), place.1).is_err());
}

/// A peer that says it sent more than there was room for is one that lies.
#[test]
fn lies_about_lengths_break_the_connection() {
    let (one, mut other) = pair(6, &Settings::default());
    let lie = Message::Data((1 << 29) - 1).to_imm();
    let request = urxe::SendWr::rdma_write_with_imm(0, &[], 0, urxe::Rkey(0), lie);
    one.qp.post_send(&request).expect("it is up");
    until("it is noticed", || {
        other.progress();
        other.link == Link::Broken(crate::errno::Errno(libc::EPROTO))
    });
    assert_eq!(other.recv(&mut [0; 100], false), 0);
    drop(one);
}
