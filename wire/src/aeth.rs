//! Acknowledge extended transport header.

use crate::bytes::be32;
use crate::psn::Msn;
use crate::syndrome::Syndrome;

/// Acknowledge extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// Acknowledged, not ready, or refused.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed.
    pub msn: Msn,
}

impl Aeth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the 4 bytes.
    #[inline]
    pub fn parse(b: &[u8; 4]) -> Aeth {
        Aeth {
            syndrome: Syndrome(b[0]),
            msn: Msn::new(be32(b, 0)),
        }
    }

    /// The 4 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 4] {
        let mut b = self.msn.get().to_be_bytes();
        b[0] = self.syndrome.0;
        b
    }
}
