//! IPv4 header without options.

use core::net::Ipv4Addr;

use crate::error::{Layer, ParseError};
use crate::field::fields;

fields! {
    /// IPv4 header without options.
    Ipv4, 20, pub(crate) fn from_bytes, after 0x45: u8 = 8;
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    tos: u8 = 8;
    /// Length of header and payload.
    total_len: u16 = 16;
    /// Identification; the ICRC covers it.
    ident: u16 = 16;
    /// Reserved flag, DF, MF and fragment offset; 0x4000 is DF alone.
    flags_and_offset: u16 = 16;
    /// Time to live.
    ttl: u8 = 8;
    /// The protocol of the payload; 17 is UDP.
    protocol: u8 = 8;
    /// Checksum as it stands in the header; see [`Ipv4::computed_checksum`].
    checksum: u16 = 16;
    /// Source address.
    src: Ipv4Addr = 32;
    /// Destination address.
    dst: Ipv4Addr = 32;
}

impl Ipv4 {
    /// The flags and offset of an unfragmented packet with DF.
    pub const DF: u16 = 0x4000;

    /// Reads the header; returns it with its payload, cut to the total length (Ethernet
    /// pads short frames).
    ///
    /// # Errors
    /// Truncated, another version, options, or a total length below 20.
    pub fn parse(bytes: &[u8]) -> Result<(Ipv4, &[u8]), ParseError> {
        let truncated = |needed| ParseError::truncated(Layer::Ipv4, needed, bytes.len());
        let b = bytes.first_chunk::<20>().ok_or(truncated(20))?;
        if b[0] >> 4 != 4 {
            return Err(ParseError::version(Layer::Ipv4, b[0] >> 4));
        }
        if b[0] & 0xf != 5 {
            return Err(ParseError::Unsupported(Layer::Ipv4));
        }
        let header = Ipv4::from_bytes(b);
        let end = usize::from(header.total_len);
        if end < Self::LEN {
            return Err(ParseError::length(Layer::Ipv4, end));
        }
        let payload = bytes.get(Self::LEN..end).ok_or(truncated(end))?;
        Ok((header, payload))
    }

    /// Whether this is a part of a larger packet.
    pub const fn is_fragment(&self) -> bool {
        self.flags_and_offset & 0x3fff != 0
    }

    /// The checksum that the other fields ask for.
    pub fn computed_checksum(&self) -> u16 {
        let bytes = Ipv4 {
            checksum: 0,
            ..*self
        }
        .emit();
        let words = bytes
            .chunks_exact(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum: u32 = words.sum();
        // Ten words of 16 bits: two folds bring every carry in.
        let once = (sum & 0xffff) + (sum >> 16);
        !((once & 0xffff) + (once >> 16)) as u16
    }
}
