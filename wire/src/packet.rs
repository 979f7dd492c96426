//! A whole packet, from the BTH to the ICRC: what a UDP datagram to port 4791 holds.

use crate::bth::{BTH_LEN, Bth};
use crate::error::{Layer, ParseError};
use crate::extensions::for_extensions;
use crate::opcode::{Headers, Opcode, OpcodeInfo, PayloadRule};

/// Length of the ICRC in bytes.
pub const ICRC_LEN: usize = 4;

/// A packet with a proven structure: the headers that its opcode asks for are
/// there, and padding and ICRC too. Accessors cannot fail.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    /// The BTH, of which each user reads a few fields.
    head: &'a [u8; BTH_LEN],
    info: &'static OpcodeInfo,
    payload_end: usize,
}

impl<'a> Packet<'a> {
    /// Checks the structure. The ICRC is not verified here: see
    /// [`crate::IcrcSeed::verify`].
    ///
    /// # Errors
    /// [`ParseError`] says which layer, and how much is missing.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        Self::parse_as(bytes, Opcode::info)
    }

    /// Parses for tools that show packets and do not act on them: an opcode that
    /// the table does not have (a vendor's transport) is no error. Its packet has the
    /// table entry [`OpcodeInfo::UNASSIGNED`], and what follows its BTH is payload. A
    /// transport must use [`Packet::parse`], and drop such packets.
    ///
    /// # Errors
    /// [`ParseError`], but never [`ParseError::UnknownOpcode`].
    pub fn parse_any(bytes: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        Self::parse_as(bytes, |opcode| {
            Some(opcode.info().unwrap_or(OpcodeInfo::UNASSIGNED))
        })
    }

    #[inline(always)]
    fn parse_as(
        bytes: &'a [u8],
        info_of: impl FnOnce(Opcode) -> Option<&'static OpcodeInfo>,
    ) -> Result<Packet<'a>, ParseError> {
        let have = bytes.len();
        let truncated = |layer, needed| ParseError::Truncated {
            layer,
            needed,
            have,
        };
        let Some(head) = bytes.first_chunk::<BTH_LEN>() else {
            return Err(truncated(Layer::Bth, BTH_LEN));
        };
        let bth = Bth::parse(head);
        let info = info_of(bth.opcode).ok_or(ParseError::UnknownOpcode(bth.opcode.0))?;
        let header_len = info.header_len as usize;
        if have < header_len {
            return Err(truncated(Layer::Extension, header_len));
        }
        if have < header_len + ICRC_LEN {
            return Err(truncated(Layer::Icrc, header_len + ICRC_LEN));
        }
        let padded = have - header_len - ICRC_LEN;
        if !padded.is_multiple_of(4) {
            return Err(ParseError::Misaligned { len: padded });
        }
        let pad = bth.pad_count as usize;
        if padded < pad {
            return Err(truncated(Layer::Payload, header_len + pad + ICRC_LEN));
        }
        let payload_len = padded - pad;
        // Where a payload has one length only. The other rules are the transport's to
        // check; a public capture holds ACKs with a payload, and a decoder shows them.
        let expected = match info.payload {
            PayloadRule::Exactly(n) => n as usize,
            _ => payload_len,
        };
        if payload_len != expected {
            return Err(ParseError::PayloadLength {
                expected,
                have: payload_len,
            });
        }
        Ok(Packet {
            bytes,
            head,
            info,
            payload_end: header_len + payload_len,
        })
    }

    /// The base transport header.
    #[inline]
    pub fn bth(&self) -> Bth {
        Bth::parse(self.head)
    }

    /// The opcode.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        self.bth().opcode
    }

    /// What the table says about the opcode.
    #[inline]
    pub fn info(&self) -> &'static OpcodeInfo {
        self.info
    }

    /// The payload, without padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.info.header_len as usize..self.payload_end]
    }

    /// The padding.
    #[inline]
    pub fn pad(&self) -> &'a [u8] {
        &self.bytes[self.payload_end..self.bytes.len() - ICRC_LEN]
    }

    /// The ICRC as it stands in the packet.
    #[inline]
    pub fn icrc(&self) -> [u8; ICRC_LEN] {
        *self.bytes.last_chunk().expect("parse() found an ICRC")
    }

    /// All bytes of the packet.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    fn header<const N: usize>(&self, header: Headers) -> Option<&'a [u8; N]> {
        let at = self.info.headers.offset_of(header)?;
        self.bytes[at..].first_chunk::<N>()
    }
}

macro_rules! readers {
    ($($method:ident: $type:ty = $header:ident;)*) => {
        impl Packet<'_> {
            $(
                #[doc = concat!(stringify!($header), ", if the opcode has one.")]
                #[inline]
                pub fn $method(&self) -> Option<$type> {
                    self.header(Headers::$header).map(<$type>::parse)
                }
            )*
        }
    };
}

for_extensions!(readers);
