//! Multicast groups on loopback: every socket of a group receives a copy.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use common::{PATIENCE, loopback, send_all};
use urxe_udp::{Dest, RecvBatch, SocketSet, Transmit, UdpConfig, UdpSocket};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A group and port that no other test has: the port is one that the system gave out.
fn group() -> (SocketAddr, UdpSocket) {
    let holder = loopback(false, &UdpConfig::default());
    let ip = IpAddr::V4(Ipv4Addr::new(239, 255, 71, 3));
    (SocketAddr::new(ip, holder.local_addr().port()), holder)
}

fn join(group: SocketAddr) -> UdpSocket {
    UdpSocket::bind_group(group, LOCAL, 0, &UdpConfig::default()).expect("joins")
}

fn send(from: &UdpSocket, to: SocketAddr, bytes: &[u8]) {
    let transmit = Transmit::single(0..bytes.len(), Dest::new(to));
    send_all(from, bytes, &[transmit]);
}

/// The next datagram of a socket.
fn next(socket: &UdpSocket) -> Vec<u8> {
    let ready = urxe_udp::wait(&[socket.as_fd()], Some(PATIENCE)).expect("wait");
    assert!(ready.is_ready(0), "nothing came");
    let mut batch = RecvBatch::new(1);
    assert_eq!(socket.recv(&mut batch).expect("recv"), 1);
    let datagram = batch.iter().next().expect("one");
    datagram.data.to_vec()
}

fn has_more(socket: &UdpSocket) -> bool {
    socket.recv(&mut RecvBatch::new(1)).expect("recv") > 0
}

#[test]
fn every_member_receives_one_copy_and_others_none() {
    let (group, unicast) = group();
    let (first, second) = (join(group), join(group));
    let sender = loopback(false, &UdpConfig::default());
    sender.send_to_groups(0, 1).expect("IPv4 sockets take it");
    send(&sender, group, b"to all");
    for member in [&first, &second] {
        assert_eq!(next(member), b"to all");
        assert!(!has_more(member), "one copy");
    }
    assert!(!has_more(&unicast), "bound to an address, not the group");
    // A member that is closed has left; the others stay.
    drop(first);
    send(&sender, group, b"again");
    assert_eq!(next(&second), b"again");
}

#[test]
fn a_set_is_ready_while_one_of_its_sockets_is() {
    let (group, _unicast) = group();
    let (member, idle) = (join(group), loopback(false, &UdpConfig::default()));
    let set = SocketSet::new().expect("a descriptor");
    let is_ready = |patience| {
        let ready = urxe_udp::wait(&[set.as_fd()], Some(patience));
        ready.expect("wait").is_ready(0)
    };
    set.add(&member).expect("adds");
    set.add(&idle).expect("adds");
    let again = set.add(&member).expect_err("it is in the set");
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    assert!(!is_ready(std::time::Duration::ZERO));
    send(&idle, group, b"x");
    assert!(is_ready(PATIENCE));
    assert_eq!(next(&member), b"x");
    assert!(!is_ready(std::time::Duration::ZERO));
    set.remove(&member).expect("it is in the set");
    let again = set.remove(&member).expect_err("it is not in the set");
    assert_eq!(again.kind(), io::ErrorKind::NotFound);
    send(&idle, group, b"y");
    assert_eq!(next(&member), b"y");
    assert!(!is_ready(std::time::Duration::ZERO));
}

#[test]
fn what_is_no_group_cannot_be_joined() {
    let config = UdpConfig::default();
    let unicast = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 0);
    let error = UdpSocket::bind_group(unicast, LOCAL, 0, &config).expect_err("refused");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let v6 = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
    let (group, _holder) = group();
    let error = UdpSocket::bind_group(group, v6, 0, &config).expect_err("refused");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
