//! Atomic acknowledge extended transport header.

use crate::bytes::be64;

/// Atomic acknowledge extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicAckEth {
    /// The 8 bytes of memory before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Reads the 8 bytes.
    #[inline]
    pub fn parse(b: &[u8; 8]) -> AtomicAckEth {
        AtomicAckEth {
            original: be64(b, 0),
        }
    }

    /// The 8 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 8] {
        self.original.to_be_bytes()
    }
}
