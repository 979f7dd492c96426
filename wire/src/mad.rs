//! Management datagram header: the 24 bytes before a connection manager message.

use crate::error::{Layer, ParseError};
use crate::field::fields;

/// Length of a management datagram, header included.
pub const MAD_LEN: usize = 256;

fields! {
    /// Management datagram header. The value keeps all bits.
    MadHeader, 24, fn from_bytes;
    /// Base version: 1.
    base_version: u8 = 8;
    /// Management class: [`MadHeader::CLASS_CM`].
    mgmt_class: u8 = 8;
    /// Class version: 2 for the connection manager.
    class_version: u8 = 8;
    /// Method: [`MadHeader::METHOD_SEND`].
    method: u8 = 8;
    /// Status; 0 in a request.
    status: u16 = 16;
    /// Class specific; 0 for the connection manager.
    class_specific: u16 = 16;
    /// Transaction: REP, RTU, REJ and MRA repeat the one of their REQ.
    transaction_id: u64 = 64;
    /// The attribute: which message the datagram is.
    attribute_id: u16 = 16;
    /// Reserved; sent as 0.
    reserved: u16 = 16;
    /// Attribute modifier: enhanced connection establishment data in REQ and REP, else 0.
    attribute_modifier: u32 = 32;
}

impl MadHeader {
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
        let (b, rest) = bytes.split_first_chunk().ok_or(truncated)?;
        Ok((MadHeader::from_bytes(b), rest))
    }
}
