//! The datagram that wakes a neighbour which sleeps on its sockets, as there is something for it in memory. It is steered like any
//! packet for a QPN of the neighbour; one that comes to another owner of the address is handed over like any packet, too.

use urxe_core::qpn_table::{CHUNK_BITS, QpnChunk};

/// No opcode begins so, and no probe.
const MAGIC: [u8; 4] = [0xff, 0x55, 0x57, 0x4b];
/// A BTH has this length, and its destination QPN at this place.
const LEN: usize = 12;
const QPN_AT: usize = 4;

/// A wake-up for the owner of a chunk.
pub(super) fn emit(chunk: QpnChunk) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&MAGIC);
    let qpn = u32::from(chunk.0) << CHUNK_BITS;
    bytes[QPN_AT..QPN_AT + 4].copy_from_slice(&qpn.to_be_bytes());
    bytes
}

/// The chunk that a datagram names the owner of, if it is a wake-up.
#[inline]
pub(in crate::engine) fn parse(bytes: &[u8]) -> Option<QpnChunk> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let [_, high, low, _] = rest.first_chunk::<4>()?;
    (*magic == MAGIC).then(|| QpnChunk(u16::from_be_bytes([*high, *low]) >> (16 - CHUNK_BITS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_names_its_chunk_where_packets_have_their_qpn() {
        for chunk in [0, 1, 0x7ff, 0xfff].map(QpnChunk) {
            let bytes = emit(chunk);
            assert_eq!(parse(&bytes), Some(chunk));
            let qpn = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]);
            assert_eq!(qpn >> CHUNK_BITS, u32::from(chunk.0));
            assert!(urxe_wire::Packet::parse(&bytes).is_err());
        }
        assert_eq!(parse(&emit(QpnChunk(3))[1..]), None);
        assert_eq!(parse(&[0; LEN]), None);
    }
}
