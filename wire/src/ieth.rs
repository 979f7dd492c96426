//! Invalidate extended transport header.

use crate::bytes::be32;
use crate::ids::Rkey;

/// Invalidate extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ieth {
    /// Remote key to invalidate.
    pub rkey: Rkey,
}

impl Ieth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the 4 bytes.
    #[inline]
    pub fn parse(b: &[u8; 4]) -> Ieth {
        Ieth {
            rkey: Rkey(be32(b, 0)),
        }
    }

    /// The 4 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 4] {
        self.rkey.0.to_be_bytes()
    }
}
