//! UDP header.

use crate::error::{Layer, ParseError};

/// The UDP destination port of RoCEv2.
pub const ROCE_V2_PORT: u16 = 4791;
/// The number of UDP in IP headers.
pub const PROTOCOL_UDP: u8 = 17;

/// UDP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Udp {
    /// Source port: entropy for multipath routing, any value.
    pub src_port: u16,
    /// Destination port: [`ROCE_V2_PORT`].
    pub dst_port: u16,
    /// Length of header and payload.
    pub len: u16,
    /// Checksum; 0 for none. Adapters send 0, over IPv6 too.
    pub checksum: u16,
}

impl Udp {
    /// Length in bytes.
    pub const LEN: usize = 8;

    /// Reads the header; returns it with its payload, cut to the length.
    ///
    /// # Errors
    /// Truncated, or a length below 8.
    pub fn parse(bytes: &[u8]) -> Result<(Udp, &[u8]), ParseError> {
        let truncated = |needed| ParseError::truncated(Layer::Udp, needed, bytes.len());
        let &[s0, s1, d0, d1, l0, l1, c0, c1] = bytes.first_chunk().ok_or(truncated(8))?;
        let header = Udp {
            src_port: u16::from_be_bytes([s0, s1]),
            dst_port: u16::from_be_bytes([d0, d1]),
            len: u16::from_be_bytes([l0, l1]),
            checksum: u16::from_be_bytes([c0, c1]),
        };
        let end = usize::from(header.len);
        if end < Self::LEN {
            return Err(ParseError::Length {
                layer: Layer::Udp,
                len: end,
            });
        }
        Ok((header, bytes.get(Self::LEN..end).ok_or(truncated(end))?))
    }

    /// The 8 bytes.
    pub fn emit(&self) -> [u8; 8] {
        let [s0, s1] = self.src_port.to_be_bytes();
        let [d0, d1] = self.dst_port.to_be_bytes();
        let [l0, l1] = self.len.to_be_bytes();
        let [c0, c1] = self.checksum.to_be_bytes();
        [s0, s1, d0, d1, l0, l1, c0, c1]
    }
}
