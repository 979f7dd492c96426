//! XRC extended transport header.

use crate::bytes::be32;
use crate::ids::Qpn;

/// XRC extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcEth {
    /// Reserved byte; sent as 0.
    pub reserved: u8,
    /// Number of the shared receive queue.
    pub srqn: Qpn,
}

impl XrcEth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the 4 bytes.
    #[inline]
    pub fn parse(b: &[u8; 4]) -> XrcEth {
        XrcEth {
            reserved: b[0],
            srqn: Qpn::new(be32(b, 0)),
        }
    }

    /// The 4 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 4] {
        let mut b = self.srqn.get().to_be_bytes();
        b[0] = self.reserved;
        b
    }
}
