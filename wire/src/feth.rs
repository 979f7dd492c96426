//! Flush extended transport header (IBTA annex A19).

/// Flush extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feth {
    /// Placement type: bit 0 global visibility, bit 1 persistence.
    pub placement: u8,
    /// Selectivity: 0 a range, 1 the whole region.
    pub selectivity: u8,
    /// The other 26 bits, in place; sent as 0.
    pub reserved: u32,
}

impl Feth {
    /// Length in bytes.
    pub const LEN: usize = 4;

    /// Reads the 4 bytes.
    #[inline]
    pub fn parse(b: &[u8; 4]) -> Feth {
        let word = u32::from_be_bytes(*b);
        Feth {
            placement: word as u8 & 0xf,
            selectivity: (word >> 4) as u8 & 3,
            reserved: word & !0x3f,
        }
    }

    /// The 4 bytes.
    #[inline]
    pub fn emit(&self) -> [u8; 4] {
        let word = self.reserved & !0x3f
            | u32::from(self.selectivity & 3) << 4
            | u32::from(self.placement & 0xf);
        word.to_be_bytes()
    }
}
