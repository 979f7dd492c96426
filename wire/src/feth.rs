//! Flush extended transport header (IBTA annex A19).

use crate::field::fields;

fields! {
    /// Flush extended transport header.
    Feth, 4, pub fn parse;
    /// Reserved 26 bits; sent as 0.
    reserved: u32 = 26;
    /// Selectivity, 2 bits: 0 a range, 1 the whole region.
    selectivity: u8 = 2;
    /// Placement type, 4 bits: bit 0 global visibility, bit 1 persistence.
    placement: u8 = 4;
}
