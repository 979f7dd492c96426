//! For fuzz targets: the parsers of what is read from files and sockets that other processes of the user can write to.
//! Each function takes the bytes, and panics on a finding.

use std::fs::File;
use std::net::IpAddr;

use super::entries::{ChunkEntry, Participant, SocketEntry};
use super::farewells;
use super::hand_over::{HEAD, Handed};
use super::ports::Ports;
use super::steer;
use super::tables::{LEN, Tables};

/// The file with the QPNs' holders: `bytes` from its beginning. What parses is written again as it was read, and steers.
pub fn registry(bytes: &[u8]) {
    let mut whole = vec![0; LEN];
    let len = bytes.len().min(LEN);
    whole[..len].copy_from_slice(&bytes[..len]);
    let Ok(tables) = Tables::parse(&whole) else {
        return;
    };
    for participant in &tables.participants {
        assert_eq!(Participant::parse(&participant.emit()), *participant);
    }
    for socket in tables.sockets.iter().flatten() {
        assert_eq!(SocketEntry::parse(&socket.emit()), Ok(Some(*socket)));
        let _ = steer::program(&tables, socket.addr);
        assert!(tables.sockets_on(socket.addr).count() > 0);
    }
    for chunk in &tables.chunks {
        assert_eq!(ChunkEntry::parse(&chunk.emit()), Ok(*chunk));
    }
    assert!(tables.participants().count() <= tables.participants.len());
    assert!(tables.held_chunks().count() <= tables.chunks.len());
}

/// The file of ports: `bytes` behind its head. An owner that is there holds nothing twice.
pub fn ports(bytes: &[u8]) {
    let file = File::open("/dev/null").expect("every system has it");
    let ports = Ports::parse(file, bytes);
    for addr in [
        IpAddr::from([10, 1, 2, 3]),
        IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        for port in [0, 4791, 32_768, 60_991, u16::MAX] {
            let _ = ports.listener((0x106, addr, port), |_| true);
        }
    }
    ports.check();
}

/// What a participant has to have said to its peers: `bytes` from the beginning of its file.
pub fn farewells(bytes: &[u8]) {
    for farewell in farewells::parse_all(bytes) {
        let written = farewells::emit(&farewell);
        let mut read = farewells::parse_all(&written);
        assert_eq!((read.next(), read.next()), (Some(farewell), None));
    }
}

/// A packet that a neighbour hands over. What parses is written again byte for byte, but for padding.
pub fn handed(bytes: &[u8]) {
    let Some(handed) = Handed::parse(bytes) else {
        assert!(bytes.len() < HEAD);
        return;
    };
    let mut out = vec![0; bytes.len()];
    assert_eq!(handed.emit(&mut out), Some(bytes.len()));
    assert_eq!(Handed::parse(&out), Some(handed));
}
