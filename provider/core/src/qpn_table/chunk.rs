//! The parts that the space of QPNs is dealt out in.

use urxe_wire::Qpn;

/// Bits of a QPN below its chunk.
pub const CHUNK_BITS: u32 = 12;
/// Chunks that there are.
pub const CHUNKS: usize = 1 << (24 - CHUNK_BITS);
/// QPNs in a chunk.
pub const CHUNK_LEN: usize = 1 << CHUNK_BITS;

/// A part of the QPN space: all QPNs with the same upper 12 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct QpnChunk(pub u16);

impl QpnChunk {
    /// The chunk of a QPN.
    #[inline]
    pub fn of(qpn: Qpn) -> QpnChunk {
        QpnChunk((qpn.get() >> CHUNK_BITS) as u16)
    }
}
