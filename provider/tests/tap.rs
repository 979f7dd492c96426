//! The packet tap: what it writes is what was on the wire, with valid ICRCs.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::capture::{Capture, packets};
use crate::common::{self, End, address, connect};
use urxe::{ConnectOptions, Context, SendWr, Wire};
use urxe_wire::{Frame, LinkType};

fn converse(v6: bool, capture: &Capture, other: &Capture) {
    let turn = v6.then(common::v6_in_turn);
    let open = |capture: &Capture| {
        let addr = turn.as_ref().map_or_else(address, |(addr, _)| *addr);
        Context::builder(addr).pcap(&capture.0).open()
    };
    let first = match open(capture) {
        Ok(context) => context,
        Err(error) if v6 => return println!("skipped: no IPv6 here ({error})"),
        Err(error) => panic!("{error}"),
    };
    let second = if v6 {
        first.clone()
    } else {
        open(other).expect("free")
    };
    let (a, b) = (End::on(first), End::on(second));
    let options = ConnectOptions {
        traffic_class: 0x6a,
        ..ConnectOptions::default()
    };
    connect(&a.qp, &b.qp, &options);
    let (from, to) = (a.memory(50_000), b.memory(50_000));
    for n in 0..10 {
        b.recv(n, &to);
        let len = 5000 * n as usize + n as usize;
        a.qp.post_send(&SendWr::send(n, &[from.sge(..len)]).signaled())
            .expect("room");
        b.succeed();
        a.succeed();
    }
    let (sent, received) = (a.counter("sent_pkts"), a.counter("rcvd_pkts"));
    drop((a, b, from, to));
    let packets = capture.packets();
    assert_eq!(
        packets.len() as u64,
        sent + received,
        "every packet, once for each way it went"
    );
    let went = |way| packets.iter().filter(|(flags, _)| *flags == way).count() as u64;
    assert_eq!((went(1), went(2)), (received, sent), "each says which way");
    for (_, packet) in &packets {
        match Frame::parse(LinkType::RawIp, packet).expect("a RoCEv2 packet") {
            Frame::Roce(frame) => assert!(frame.is_icrc_ok(), "{frame:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_packet_is_there_with_a_valid_icrc() {
    converse(false, &Capture::new("v4-a"), &Capture::new("v4-b"));
    converse(true, &Capture::new("v6"), &Capture::new("v6"));
}

/// The kernel may give a packet to another socket of the address, and for sealed messages to QP 1 it knows no better.
#[test]
fn what_another_context_received_is_there_too() {
    let (shared, capture) = (address(), Capture::new("handed"));
    let sockets = |addr| Context::builder(addr).wire(Wire::Sockets);
    let first = End::on(sockets(shared).open().expect("free"));
    let second = sockets(shared).pcap(&capture.0).open().expect("free");
    let second = End::on(second);
    let far = End::on(sockets(address()).open().expect("free"));
    connect(&second.qp, &far.qp, &ConnectOptions::default());
    common::steer_all_to(shared, 0);
    common::exchange(&second, &far, 1);
    assert!(second.counter("taken_over") > 0);
    let counts = (second.counter("rcvd_pkts"), second.counter("sent_pkts"));
    drop((first, second, far));
    let packets = capture.packets();
    let went = |way| packets.iter().filter(|(flags, _)| *flags == way).count() as u64;
    assert_eq!((went(1), went(2)), counts);
    for (_, packet) in &packets {
        match Frame::parse(LinkType::RawIp, packet).expect("a RoCEv2 packet") {
            Frame::Roce(frame) => assert!(frame.is_icrc_ok(), "{frame:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_file_in_use_is_left_alone_and_the_process_id_can_be_in_the_name() {
    let capture = Capture::new("shared-%p");
    let pid = std::process::id().to_string();
    let real = PathBuf::from(capture.0.to_string_lossy().replace("%p", &pid));
    let first = Context::builder(address())
        .pcap(&capture.0)
        .open()
        .expect("free");
    let second = Context::builder(address())
        .pcap(&capture.0)
        .open()
        .expect("free");
    drop((first, second));
    let stem = real
        .file_stem()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let directory = std::fs::read_dir(std::env::temp_dir()).expect("readable");
    let files: Vec<PathBuf> = directory
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().contains(&stem))
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        assert!(packets(&file).is_empty());
        std::fs::remove_file(file).expect("ours");
    }
}

#[test]
fn a_full_disk_stops_the_tap_and_not_the_traffic() {
    if !Path::new("/dev/full").exists() {
        return println!("skipped: no /dev/full here");
    }
    let open = || {
        Context::builder(address())
            .pcap("/dev/full")
            .open()
            .expect("free")
    };
    let (a, b) = (End::on(open()), End::on(open()));
    connect(&a.qp, &b.qp, &ConnectOptions::default());
    let (from, to) = (a.memory(2 << 20), b.memory(2 << 20));
    b.recv(1, &to);
    a.qp.post_send(&SendWr::send(1, &[from.sge(..)]).signaled())
        .expect("room");
    assert_eq!(b.succeed().byte_len, 2 << 20);
    a.succeed();
}

/// What owners of an address send to themselves, to see which socket is theirs, is no traffic. What strangers send is.
#[test]
fn probes_of_sockets_are_left_out() {
    const PROBE: &[u8] = b"\xffURX\0\0\0\0somebody";
    let capture = Capture::new("probes");
    let addr = address();
    let context = Context::builder(addr).pcap(&capture.0).open();
    let end = End::on(context.expect("free"));
    let stranger = UdpSocket::bind((addr, 0)).expect("a socket");
    for bytes in [PROBE, b"one", b"two", b"three"] {
        stranger.send_to(bytes, (addr, 4791)).expect("room");
    }
    let start = Instant::now();
    while end.counter("rcvd_pkts") < 3 {
        assert!(start.elapsed() < common::PATIENCE, "they do not arrive");
        end.cq.poll(&mut []).expect("it works");
    }
    drop(end);
    let packets = capture.packets();
    assert!(packets.iter().any(|(_, packet)| packet.ends_with(b"one")));
    assert!(!packets.iter().any(|(_, packet)| packet.ends_with(PROBE)));
}
