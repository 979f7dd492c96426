//! IPv6 header without extension headers. The GRH of InfiniBand has the same form.

use core::net::Ipv6Addr;

use crate::error::{Layer, ParseError};
use crate::field::fields;

/// The next-header value that announces a BTH (RoCEv1).
pub(crate) const NEXT_HEADER_BTH: u8 = 0x1b;

fields! {
    /// IPv6 header, or the GRH of RoCEv1.
    Ipv6, 40, pub(crate) fn from_bytes, after 6: u8 = 4;
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    traffic_class: u8 = 8;
    /// Flow label, 20 bits.
    flow_label: u32 = 20;
    /// Bytes after this header.
    payload_len: u16 = 16;
    /// What follows; 17 is UDP, 0x1b an InfiniBand BTH.
    next_header: u8 = 8;
    /// Hop limit.
    hop_limit: u8 = 8;
    /// Source address.
    src: Ipv6Addr = 128;
    /// Destination address.
    dst: Ipv6Addr = 128;
}

impl Ipv6 {
    /// Reads the header; returns it with its payload, cut to the payload length.
    ///
    /// # Errors
    /// Truncated, or another version.
    pub fn parse(bytes: &[u8]) -> Result<(Ipv6, &[u8]), ParseError> {
        Self::parse_as(Layer::Ipv6, bytes)
    }

    pub(crate) fn parse_as(layer: Layer, bytes: &[u8]) -> Result<(Ipv6, &[u8]), ParseError> {
        let truncated = |needed| ParseError::truncated(layer, needed, bytes.len());
        let (b, rest) = bytes.split_first_chunk::<40>().ok_or(truncated(40))?;
        if b[0] >> 4 != 6 {
            return Err(ParseError::version(layer, b[0] >> 4));
        }
        let header = Ipv6::from_bytes(b);
        let len = usize::from(header.payload_len);
        let payload = rest.get(..len).ok_or(truncated(Self::LEN + len))?;
        Ok((header, payload))
    }
}
