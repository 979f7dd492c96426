//! Connection manager messages (IBTA volume 1, chapter 12): management datagrams on QP 1.
//!
//! Three traps of the protocol, which these values do not hide:
//!
//! - The starting PSN in a REQ or REP is the one that the *other* side sends with first.
//! - `responder_resources` and `initiator_depth` cross over: what one side can serve is
//!   what the other may start.
//! - The RNR retry count is for the *peer's* sender.
//!
//! Every bit of a message is in its value, reserved ones too, so that a message that was
//! read is written again as it was.

mod ip_cm;
mod messages;
mod reasons;

pub use ip_cm::{IpCmHeader, PortSpace, service_id};
pub use messages::{Apr, CmPath, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
pub use reasons::{MraMessage, RejMessage, RejReason, SidrStatus};

use crate::error::{Layer, ParseError};
use crate::mad::{MAD_LEN, MadHeader};

/// Bytes of a message after the MAD header.
pub const CM_BODY_LEN: usize = MAD_LEN - MadHeader::LEN;

/// A connection manager message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "all messages are 232 bytes on the wire"
)]
pub enum CmMessage {
    /// Request for communication.
    Req(Req),
    /// Message receipt acknowledgement: wait longer.
    Mra(Mra),
    /// Reject.
    Rej(Rej),
    /// Reply to a request.
    Rep(Rep),
    /// Ready to use.
    Rtu(Rtu),
    /// Request to disconnect.
    Dreq(Dreq),
    /// Reply to a request to disconnect.
    Drep(Drep),
    /// Service id resolution request: which UD QP serves this?
    SidrReq(SidrReq),
    /// Service id resolution reply.
    SidrRep(SidrRep),
    /// Load alternate path.
    Lap(Lap),
    /// Alternate path response.
    Apr(Apr),
}

macro_rules! dispatch {
    ($($variant:ident),*) => {
        impl CmMessage {
            /// Reads the body of a message that has this attribute.
            ///
            /// # Errors
            /// [`ParseError::NotRoce`] if the attribute is none of the connection
            /// manager's.
            pub fn parse_body(
                attribute_id: u16,
                body: &[u8; CM_BODY_LEN],
            ) -> Result<CmMessage, ParseError> {
                match attribute_id {
                    $($variant::ATTRIBUTE => Ok(CmMessage::$variant($variant::parse(body))),)*
                    number => Err(ParseError::not_roce(Layer::Mad, number)),
                }
            }

            /// The message's bytes after the MAD header.
            pub fn emit_body(&self) -> [u8; CM_BODY_LEN] {
                match self {
                    $(CmMessage::$variant(message) => message.emit(),)*
                }
            }

            /// The attribute of its MAD header.
            pub const fn attribute_id(&self) -> u16 {
                match self {
                    $(CmMessage::$variant(_) => $variant::ATTRIBUTE,)*
                }
            }

            /// Its name, as in `SIDR_REQ`.
            pub const fn name(&self) -> &'static str {
                match self {
                    $(CmMessage::$variant(_) => $variant::NAME,)*
                }
            }
        }
    };
}

dispatch!(
    Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr
);

impl CmMessage {
    /// Reads a management datagram: the payload of a UD packet to QP 1.
    ///
    /// # Errors
    /// Not 256 bytes, or not a message of the connection manager (class 7, version 2,
    /// method Send).
    pub fn parse(mad: &[u8]) -> Result<(MadHeader, CmMessage), ParseError> {
        let (header, rest) = MadHeader::parse(mad)?;
        if header.base_version != 1 {
            return Err(ParseError::version(Layer::Mad, header.base_version));
        }
        if header.mgmt_class != MadHeader::CLASS_CM || header.method != MadHeader::METHOD_SEND {
            let number = u16::from_be_bytes([header.mgmt_class, header.method]);
            return Err(ParseError::not_roce(Layer::Mad, number));
        }
        if header.class_version != 2 {
            return Err(ParseError::version(Layer::Cm, header.class_version));
        }
        let truncated = ParseError::truncated(Layer::Cm, MAD_LEN, mad.len());
        let (body, beyond) = rest.split_first_chunk::<CM_BODY_LEN>().ok_or(truncated)?;
        if !beyond.is_empty() {
            return Err(ParseError::length(Layer::Mad, mad.len()));
        }
        Ok((header, CmMessage::parse_body(header.attribute_id, body)?))
    }

    /// The management datagram with this header.
    pub fn emit(&self, header: &MadHeader) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        bytes[..MadHeader::LEN].copy_from_slice(&header.emit());
        bytes[MadHeader::LEN..].copy_from_slice(&self.emit_body());
        bytes
    }

    /// The management datagram of this message in a transaction.
    pub fn emit_mad(&self, transaction_id: u64) -> [u8; MAD_LEN] {
        self.emit(&MadHeader::cm(self.attribute_id(), transaction_id))
    }
}
