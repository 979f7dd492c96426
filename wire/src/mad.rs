//! Management datagram header: the 24 bytes before a connection manager message.

use crate::error::{Layer, ParseError};

/// Length of a management datagram, header included.
pub const MAD_LEN: usize = 256;

/// Management datagram header. The value keeps all bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadHeader {
    /// Base version: 1.
    pub base_version: u8,
    /// Management class: [`MadHeader::CLASS_CM`].
    pub mgmt_class: u8,
    /// Class version: 2 for the connection manager.
    pub class_version: u8,
    /// Method: [`MadHeader::METHOD_SEND`].
    pub method: u8,
    /// Status; 0 in a request.
    pub status: u16,
    /// Class specific; 0 for the connection manager.
    pub class_specific: u16,
    /// Transaction: REP, RTU, REJ and MRA repeat the one of their REQ.
    pub transaction_id: u64,
    /// The attribute: which message the datagram is.
    pub attribute_id: u16,
    /// Reserved; sent as 0.
    pub reserved: u16,
    /// Attribute modifier: enhanced connection establishment data in REQ and REP, else 0.
    pub attribute_modifier: u32,
}

impl MadHeader {
    /// Length in bytes.
    pub const LEN: usize = 24;
    /// Communication management.
    pub const CLASS_CM: u8 = 0x07;
    /// Every connection manager message is a Send.
    pub const METHOD_SEND: u8 = 0x03;

    /// The header of a connection manager message.
    pub const fn cm(attribute_id: u16, transaction_id: u64) -> MadHeader {
        MadHeader {
            base_version: 1,
            mgmt_class: Self::CLASS_CM,
            class_version: 2,
            method: Self::METHOD_SEND,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute_id,
            reserved: 0,
            attribute_modifier: 0,
        }
    }

    /// Reads the header; returns it with the bytes after it.
    ///
    /// # Errors
    /// Truncated.
    pub fn parse(bytes: &[u8]) -> Result<(MadHeader, &[u8]), ParseError> {
        let truncated = ParseError::truncated(Layer::Mad, Self::LEN, bytes.len());
        let (b, rest) = bytes.split_first_chunk::<24>().ok_or(truncated)?;
        let be16 = |at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
        let header = MadHeader {
            base_version: b[0],
            mgmt_class: b[1],
            class_version: b[2],
            method: b[3],
            status: be16(4),
            class_specific: be16(6),
            transaction_id: crate::bytes::be64(b, 8),
            attribute_id: be16(16),
            reserved: be16(18),
            attribute_modifier: crate::bytes::be32(b, 20),
        };
        Ok((header, rest))
    }

    /// The 24 bytes.
    pub fn emit(&self) -> [u8; 24] {
        let mut b = [0; 24];
        b[..4].copy_from_slice(&[
            self.base_version,
            self.mgmt_class,
            self.class_version,
            self.method,
        ]);
        b[4..6].copy_from_slice(&self.status.to_be_bytes());
        b[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        b[8..16].copy_from_slice(&self.transaction_id.to_be_bytes());
        b[16..18].copy_from_slice(&self.attribute_id.to_be_bytes());
        b[18..20].copy_from_slice(&self.reserved.to_be_bytes());
        b[20..].copy_from_slice(&self.attribute_modifier.to_be_bytes());
        b
    }
}
