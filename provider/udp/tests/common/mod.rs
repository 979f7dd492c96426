//! What the socket tests share.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::SocketAddr;
use std::time::Duration;

use urxe_udp::{Dest, RecvBatch, SendBatch, SendOutcome, Transmit, UdpConfig, UdpSocket};

/// Longer than anything here takes; a test that waits it out fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A socket on any free port of the IPv4 or IPv6 loopback address.
pub(crate) fn loopback(ipv6: bool, config: &UdpConfig) -> UdpSocket {
    let addr = if ipv6 { "[::1]:0" } else { "127.0.0.1:0" };
    UdpSocket::bind(addr.parse().expect("literal"), config).expect("bind to loopback")
}

/// Joining from the first packet on, so that a single train shows it.
pub(crate) fn eager() -> UdpConfig {
    UdpConfig {
        gro_on_demand: false,
        ..UdpConfig::default()
    }
}

pub(crate) fn dest(socket: &UdpSocket) -> Dest {
    Dest::new(socket.local_addr())
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|k| ((k * 31) >> 3) as u8 ^ k as u8).collect()
}

/// Sends all of it, singly where runs are refused; returns how many runs were.
pub(crate) fn send_all(socket: &UdpSocket, bytes: &[u8], transmits: &[Transmit]) -> usize {
    let mut rest = transmits.to_vec();
    let mut refused = 0;
    loop {
        match socket.send(SendBatch {
            bytes,
            transmits: &rest,
        }) {
            SendOutcome::All { sent } => {
                assert_eq!(sent, rest.len());
                return refused;
            }
            SendOutcome::GsoRefused { sent } => {
                refused += 1;
                let singles = rest[sent].singles().collect::<Vec<_>>();
                rest.splice(..=sent, singles);
            }
            SendOutcome::WouldBlock { sent } => {
                rest.drain(..sent);
                let ready = urxe_udp::wait_for(
                    &[urxe_udp::Interest::writable(socket.as_fd())],
                    Some(PATIENCE),
                );
                assert!(!ready.expect("wait").is_timeout(), "never writable");
            }
            SendOutcome::Failed { sent, error } => panic!("descriptor {sent}: {error}"),
        }
    }
}

/// A packet as received: bytes, sender, traffic class, place in its train.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) source: SocketAddr,
    pub(crate) tos: u8,
    pub(crate) index: usize,
}

/// Receives `count` packets.
pub(crate) fn receive(socket: &UdpSocket, count: usize) -> Vec<Packet> {
    let mut batch = RecvBatch::new(RecvBatch::DEFAULT_SLOTS);
    let mut packets = Vec::new();
    while packets.len() < count {
        let ready = urxe_udp::wait(&[socket.as_fd()], Some(PATIENCE)).expect("wait");
        assert!(
            !ready.is_timeout(),
            "{} of {count} packets came to {}, which dropped {:?}",
            packets.len(),
            socket.local_addr(),
            socket.receive_drops()
        );
        socket.recv(&mut batch).expect("recv");
        for datagram in batch.iter() {
            assert!(!datagram.truncated);
            packets.extend(datagram.segments().map(|(index, packet)| Packet {
                bytes: packet.to_vec(),
                source: datagram.source,
                tos: datagram.tos,
                index,
            }));
        }
    }
    packets
}

/// True if nothing is waiting in the socket.
pub(crate) fn is_empty(socket: &UdpSocket) -> bool {
    socket.recv(&mut RecvBatch::new(1)).expect("recv") == 0
}
