//! Atomic extended transport header. On the wire the swap value stands before the compare value.

use crate::bytes::{be32, be64};
use crate::ids::Rkey;

/// Atomic extended transport header. On the wire the swap value stands before the compare value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: Rkey,
    /// Value to swap in, or to add.
    pub swap_add: u64,
    /// Value to compare with; 0 for fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Length in bytes.
    pub const LEN: usize = 28;

    /// Reads the 28 bytes.
    #[inline]
    pub fn parse(b: &[u8; 28]) -> AtomicEth {
        AtomicEth {
            va: be64(b, 0),
            rkey: Rkey(be32(b, 8)),
            swap_add: be64(b, 12),
            compare: be64(b, 20),
        }
    }

    /// The 28 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 28] {
        let mut b = [0; 28];
        b[..8].copy_from_slice(&self.va.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        b[12..20].copy_from_slice(&self.swap_add.to_be_bytes());
        b[20..].copy_from_slice(&self.compare.to_be_bytes());
        b
    }
}
