//! Steering: the kernel's program that chooses the socket of a packet, and finding out a socket's
//! number.

use std::io;
use std::net::{IpAddr, SocketAddr};

use urxe_core::qpn_table::{CHUNK_BITS, PROBE};
use urxe_udp::{
    Dest, OtherField, RecvBatch, SendBatch, SendOutcome, Steering, SteeringProgram, Transmit,
    UdpSocket,
};

use super::entries::ROWS;
use super::tables::Tables;

/// The word of a BTH that holds the destination QPN, in its lower 24 bits.
const QPN_OFFSET: u32 = 4;
const QPN_MASK: u32 = 0x00ff_ffff;

/// Messages of the connection manager (QP 1): what they are is two bytes of the management datagram's header, behind BTH
/// and DETH; their owner is in the upper bits of the id that their receiver gave the connection. It is the second word of
/// all but SIDR_REP, where it is the first one. (Requests name no connection: wherever they arrive, they are handed over.)
const MANAGEMENT: OtherField = OtherField {
    value: 1,
    kind_offset: 12 + 8 + 16,
    first_kind: 0x18,
    offsets: [12 + 8 + 24, 12 + 8 + 24 + 4],
    shift: 32 - (24 - CHUNK_BITS),
};

/// Magic, number, nonce.
pub(crate) const PROBE_LEN: usize = 16;

/// The program for the sockets on an address; `None` if no socket has a number, or there
/// are too many chunks for a program.
pub(super) fn program(tables: &Tables, addr: IpAddr) -> Option<SteeringProgram> {
    let mut numbers = [None; ROWS];
    for entry in tables.sockets_on(addr) {
        numbers[usize::from(entry.row.0)] = entry.index;
    }
    let mut map: Vec<(u32, u32)> = Vec::new();
    for (chunk, row) in tables.held_chunks() {
        // The chunks of participants that are not at this address: the process that gets a packet for
        // them drops it.
        let Some(number) = numbers[usize::from(row.0)] else {
            continue;
        };
        if map.last().is_none_or(|&(_, last)| last != number) {
            map.push((chunk.0.into(), number));
        }
    }
    steering(&map).program()
}

fn steering(map: &[(u32, u32)]) -> Steering<'_> {
    Steering {
        probe: PROBE,
        offset: QPN_OFFSET,
        mask: QPN_MASK,
        shift: CHUNK_BITS,
        by_other: Some(MANAGEMENT),
        map,
    }
}

/// A program for a group without any chunk yet.
pub(super) fn probes_only() -> SteeringProgram {
    let program = steering(&[(0, 0)]).program();
    program.expect("one entry is short enough")
}

/// Sends a datagram that the program delivers to the socket with this number.
pub(super) fn send_probe(socket: &UdpSocket, addr: SocketAddr, number: u32, nonce: u64) -> bool {
    let mut bytes = [0; PROBE_LEN];
    bytes[..4].copy_from_slice(&PROBE);
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..].copy_from_slice(&nonce.to_be_bytes());
    let outcome = socket.send(SendBatch {
        bytes: &bytes,
        transmits: &[Transmit::single(0..PROBE_LEN, Dest::new(addr))],
    });
    matches!(outcome, SendOutcome::All { .. })
}

/// The number that a probe of ours was sent to; `None` if it is none, or another's.
pub(super) fn parse_probe(bytes: &[u8], nonce: u64) -> Option<u32> {
    let bytes: &[u8; PROBE_LEN] = bytes.try_into().ok()?;
    let ours = bytes[..4] == PROBE && bytes[8..] == nonce.to_be_bytes();
    ours.then(|| u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
}

/// True if it is a probe, of any participant.
pub(crate) fn is_probe(bytes: &[u8]) -> bool {
    bytes.starts_with(&PROBE)
}

/// Finds out the number of a socket from which only this call receives. `likely` is tried
/// first, then all below `end`. `None` if no probe comes back.
pub(super) fn find_number(
    socket: &UdpSocket,
    nonce: u64,
    likely: u32,
    end: u32,
) -> io::Result<Option<u32>> {
    let mut batch = RecvBatch::new(1);
    let others = (0..end).filter(|&number| number != likely);
    for number in std::iter::once(likely).chain(others) {
        if !send_probe(socket, socket.local_addr(), number, nonce) {
            continue;
        }
        // To an address of this host a datagram is delivered within the call that sends
        // it, so that the wait is for hosts that do it otherwise.
        for wait in [false, true] {
            if wait {
                let timeout =
                    std::time::Duration::from_millis(if number == likely { 5 } else { 1 });
                urxe_udp::wait(&[socket.as_fd()], Some(timeout))?;
            }
            // What else comes meanwhile is for QPs that are not there yet.
            while socket.recv(&mut batch)? > 0 {
                for datagram in batch.iter() {
                    if parse_probe(datagram.data, nonce) == Some(number) {
                        return Ok(Some(number));
                    }
                }
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_probes_count() {
        let mut bytes = [0; PROBE_LEN];
        bytes[..4].copy_from_slice(&PROBE);
        bytes[7] = 9;
        bytes[8..].copy_from_slice(&77_u64.to_be_bytes());
        assert_eq!(parse_probe(&bytes, 77), Some(9));
        assert_eq!(parse_probe(&bytes, 78), None);
        assert_eq!(parse_probe(&bytes[..15], 77), None);
        bytes[0] = 0;
        assert_eq!(parse_probe(&bytes, 77), None);
    }
}
