//! IPv6 header without extension headers. The GRH of InfiniBand has the same form.

use core::net::Ipv6Addr;

use crate::error::{Layer, ParseError};

/// The next-header value that announces a BTH (RoCEv1).
pub(crate) const NEXT_HEADER_BTH: u8 = 0x1b;

/// IPv6 header, or the GRH of RoCEv1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6 {
    /// Traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_len: u16,
    /// What follows; 17 is UDP, 0x1b an InfiniBand BTH.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Ipv6 {
    /// Length in bytes.
    pub const LEN: usize = 40;

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
            return Err(ParseError::Version {
                layer,
                version: b[0] >> 4,
            });
        }
        let header = Ipv6::from_bytes(b);
        let len = usize::from(header.payload_len);
        let payload = rest.get(..len).ok_or(truncated(Self::LEN + len))?;
        Ok((header, payload))
    }

    /// Reads 40 bytes; the version is taken to be 6.
    pub(crate) fn from_bytes(b: &[u8; 40]) -> Ipv6 {
        let word = u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&b[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        Ipv6 {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            payload_len: u16::from_be_bytes([b[4], b[5]]),
            next_header: b[6],
            hop_limit: b[7],
            src: address(8),
            dst: address(24),
        }
    }

    /// The 40 bytes.
    pub fn emit(&self) -> [u8; 40] {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let mut b = [0; 40];
        b[..4].copy_from_slice(&word.to_be_bytes());
        b[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        b[8..24].copy_from_slice(&self.src.octets());
        b[24..].copy_from_slice(&self.dst.octets());
        b
    }
}
