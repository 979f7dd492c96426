//! IPv4 header without options.

use core::net::Ipv4Addr;

use crate::error::{Layer, ParseError};

/// IPv4 header without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4 {
    /// Type of service: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// Length of header and payload.
    pub total_len: u16,
    /// Identification; the ICRC covers it.
    pub ident: u16,
    /// Reserved flag, DF, MF and fragment offset; 0x4000 is DF alone.
    pub flags_and_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// The protocol of the payload; 17 is UDP.
    pub protocol: u8,
    /// Checksum as it stands in the header; see [`Ipv4::computed_checksum`].
    pub checksum: u16,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

impl Ipv4 {
    /// Length in bytes.
    pub const LEN: usize = 20;
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
            return Err(ParseError::Version {
                layer: Layer::Ipv4,
                version: b[0] >> 4,
            });
        }
        if b[0] & 0xf != 5 {
            return Err(ParseError::Unsupported(Layer::Ipv4));
        }
        let total_len = u16::from_be_bytes([b[2], b[3]]);
        let end = usize::from(total_len);
        if end < Self::LEN {
            return Err(ParseError::Length {
                layer: Layer::Ipv4,
                len: end,
            });
        }
        let payload = bytes.get(Self::LEN..end).ok_or(truncated(end))?;
        let header = Ipv4::from_bytes(b);
        Ok((header, payload))
    }

    /// Reads 20 bytes; version and header length are taken to be those without options.
    pub(crate) fn from_bytes(b: &[u8; 20]) -> Ipv4 {
        Ipv4 {
            tos: b[1],
            total_len: u16::from_be_bytes([b[2], b[3]]),
            ident: u16::from_be_bytes([b[4], b[5]]),
            flags_and_offset: u16::from_be_bytes([b[6], b[7]]),
            ttl: b[8],
            protocol: b[9],
            checksum: u16::from_be_bytes([b[10], b[11]]),
            src: Ipv4Addr::new(b[12], b[13], b[14], b[15]),
            dst: Ipv4Addr::new(b[16], b[17], b[18], b[19]),
        }
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

    /// The 20 bytes, with the checksum field as it is.
    pub fn emit(&self) -> [u8; 20] {
        let mut b = [0; 20];
        b[0] = 0x45;
        b[1] = self.tos;
        b[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        b[4..6].copy_from_slice(&self.ident.to_be_bytes());
        b[6..8].copy_from_slice(&self.flags_and_offset.to_be_bytes());
        b[8] = self.ttl;
        b[9] = self.protocol;
        b[10..12].copy_from_slice(&self.checksum.to_be_bytes());
        b[12..16].copy_from_slice(&self.src.octets());
        b[16..].copy_from_slice(&self.dst.octets());
        b
    }
}
