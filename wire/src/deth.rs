//! Datagram extended transport header.

use crate::bytes::be32;
use crate::ids::{Qkey, Qpn};

/// Datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// Queue key.
    pub qkey: Qkey,
    /// Reserved byte; sent as 0.
    pub reserved: u8,
    /// Source QP.
    pub src_qp: Qpn,
}

impl Deth {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Reads the 8 bytes.
    #[inline]
    pub fn parse(b: &[u8; 8]) -> Deth {
        Deth {
            qkey: Qkey(be32(b, 0)),
            reserved: b[4],
            src_qp: Qpn::new(be32(b, 4)),
        }
    }

    /// The 8 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 8] {
        let mut b = [0; 8];
        b[..4].copy_from_slice(&self.qkey.0.to_be_bytes());
        b[4..].copy_from_slice(&self.src_qp.get().to_be_bytes());
        b[4] = self.reserved;
        b
    }
}
