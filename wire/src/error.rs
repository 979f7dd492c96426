//! Parse errors: why bytes are not a packet.

use core::fmt;

macro_rules! layers {
    ($($name:ident = $text:literal;)*) => {
        /// Part of a frame or packet that a parse error is about.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[non_exhaustive]
        pub enum Layer { $(#[doc = concat!("The ", $text, ".")] $name,)* }

        impl fmt::Display for Layer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Layer::$name => $text,)* })
            }
        }
    };
}

layers! {
    Ethernet = "Ethernet header";
    LinuxCooked = "Linux cooked header";
    MacControl = "MAC control frame";
    Ipv4 = "IPv4 header";
    Ipv6 = "IPv6 header";
    Udp = "UDP header";
    Grh = "GRH";
    Bth = "BTH";
    Extension = "extension headers";
    Payload = "payload";
    Icrc = "ICRC";
    Mad = "MAD header";
    Cm = "CM message";
}

/// Why bytes are not a packet.
///
/// ```
/// use urxe_wire::Packet;
/// let error = Packet::parse(&[0x11; 9]).unwrap_err();
/// assert_eq!(error.to_string(), "truncated in the BTH: 12 bytes needed, 9 there");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end within a layer.
    #[error("truncated in the {layer}: {needed} bytes needed, {have} there")]
    Truncated {
        /// The layer.
        layer: Layer,
        /// Bytes that it needs, counted from where the parse of the layer began.
        needed: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// The opcode is not assigned.
    #[error("opcode {0:#04x} is not assigned")]
    UnknownOpcode(u8),
    /// Payload and padding are not a multiple of 4 bytes.
    #[error("payload and padding of {len} bytes are not a multiple of 4")]
    Misaligned {
        /// Bytes between headers and ICRC.
        len: usize,
    },
    /// A payload has a length that its opcode forbids.
    #[error("a payload of {have} bytes where the opcode has {expected}")]
    PayloadLength {
        /// Bytes that the opcode asks for.
        expected: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A version that is not known.
    #[error("version {version} in the {layer} is not known")]
    Version {
        /// The layer.
        layer: Layer,
        /// The version that it states.
        version: u8,
    },
    /// A length field that cannot be.
    #[error("length {len} in the {layer} cannot be")]
    Length {
        /// The layer.
        layer: Layer,
        /// The length that it states.
        len: usize,
    },
    /// A form that RoCE has no use for: IP options, extension headers, fragments.
    #[error("options, fragments or extensions in the {0}")]
    Unsupported(Layer),
    /// Another protocol, named by an ethertype, a protocol number or a port.
    #[error("the {layer} names another protocol, {number:#x}")]
    NotRoce {
        /// The layer that names it.
        layer: Layer,
        /// The protocol's number.
        number: u16,
    },
}

impl ParseError {
    #[cold]
    pub(crate) const fn truncated(layer: Layer, needed: usize, have: usize) -> ParseError {
        ParseError::Truncated {
            layer,
            needed,
            have,
        }
    }

    #[cold]
    pub(crate) const fn version(layer: Layer, version: u8) -> ParseError {
        ParseError::Version { layer, version }
    }

    #[cold]
    pub(crate) const fn length(layer: Layer, len: usize) -> ParseError {
        ParseError::Length { layer, len }
    }

    #[cold]
    pub(crate) fn not_roce(layer: Layer, number: impl Into<u16>) -> ParseError {
        let number = number.into();
        ParseError::NotRoce { layer, number }
    }
}
