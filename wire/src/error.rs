//! Why bytes are not a packet.

use core::fmt;

/// Part of a packet that a parse error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// Base transport header.
    Bth,
    /// Extension headers, as the opcode asks for.
    Extension,
    /// Payload and padding.
    Payload,
    /// Invariant CRC.
    Icrc,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Bth => "BTH",
            Layer::Extension => "extension headers",
            Layer::Payload => "payload",
            Layer::Icrc => "ICRC",
        })
    }
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end within a layer.
    Truncated {
        /// The layer.
        layer: Layer,
        /// Bytes that it needs, counted from the start of the packet.
        needed: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// The opcode is not assigned.
    UnknownOpcode(u8),
    /// Payload and padding are not a multiple of 4 bytes.
    Misaligned {
        /// Bytes between headers and ICRC.
        len: usize,
    },
    /// A payload has a length that its opcode forbids.
    PayloadLength {
        /// Bytes that the opcode asks for.
        expected: usize,
        /// Bytes that there are.
        have: usize,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ParseError::Truncated { layer, needed, have } => {
                write!(f, "truncated in the {layer}: {needed} bytes needed, {have} there")
            }
            ParseError::UnknownOpcode(code) => write!(f, "opcode {code:#04x} is not assigned"),
            ParseError::Misaligned { len } => {
                write!(f, "payload and padding of {len} bytes are not a multiple of 4")
            }
            ParseError::PayloadLength { expected, have } => {
                write!(f, "a payload of {have} bytes where the opcode has {expected}")
            }
        }
    }
}

impl core::error::Error for ParseError {}
