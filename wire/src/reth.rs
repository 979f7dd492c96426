//! RDMA extended transport header: where a READ or WRITE goes.

use crate::bytes::{be32, be64};
use crate::ids::Rkey;

/// RDMA extended transport header: where a READ or WRITE goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// Virtual address of the first byte.
    pub va: u64,
    /// Remote key.
    pub rkey: Rkey,
    /// Length of the whole message.
    pub dma_len: u32,
}

impl Reth {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Reads the 16 bytes.
    #[inline]
    pub fn parse(b: &[u8; 16]) -> Reth {
        Reth {
            va: be64(b, 0),
            rkey: Rkey(be32(b, 8)),
            dma_len: be32(b, 12),
        }
    }

    /// The 16 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&self.va.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        b[12..].copy_from_slice(&self.dma_len.to_be_bytes());
        b
    }
}
