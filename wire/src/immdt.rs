//! Immediate data: 4 bytes that are handed to the receiver as they are.

/// Immediate data, in network order and never interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImmDt(pub [u8; 4]);

impl ImmDt {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the 4 bytes.
    #[inline]
    pub fn parse(b: &[u8; 4]) -> ImmDt {
        ImmDt(*b)
    }

    /// The 4 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 4] {
        self.0
    }
}
