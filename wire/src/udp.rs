//! UDP header.

use crate::error::{Layer, ParseError};
use crate::field::fields;

/// The UDP destination port of RoCEv2.
pub const ROCE_V2_PORT: u16 = 4791;
/// The number of UDP in IP headers.
pub const PROTOCOL_UDP: u8 = 17;

fields! {
    /// UDP header.
    Udp, 8, fn from_bytes;
    /// Source port: entropy for multipath routing, any value.
    src_port: u16 = 16;
    /// Destination port: [`ROCE_V2_PORT`].
    dst_port: u16 = 16;
    /// Length of header and payload.
    len: u16 = 16;
    /// Checksum; 0 for none. Adapters send 0, over IPv6 too.
    checksum: u16 = 16;
}

impl Udp {
    /// Reads the header; returns it with its payload, cut to the length.
    ///
    /// # Errors
    /// Truncated, or a length below 8.
    pub fn parse(bytes: &[u8]) -> Result<(Udp, &[u8]), ParseError> {
        let truncated = |needed| ParseError::truncated(Layer::Udp, needed, bytes.len());
        let header = Udp::from_bytes(bytes.first_chunk().ok_or(truncated(8))?);
        let end = usize::from(header.len);
        if end < Self::LEN {
            return Err(ParseError::length(Layer::Udp, end));
        }
        Ok((header, bytes.get(Self::LEN..end).ok_or(truncated(end))?))
    }
}
