//! Parse errors: why bytes are not a packet.

use core::fmt;

/// Part of a frame or packet that a parse error is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// Ethernet header and VLAN tags.
    Ethernet,
    /// Linux's "cooked" capture header.
    LinuxCooked,
    /// MAC control: PFC and pause.
    MacControl,
    /// IPv4 header.
    Ipv4,
    /// IPv6 header.
    Ipv6,
    /// UDP header.
    Udp,
    /// Global route header of RoCEv1.
    Grh,
    /// Base transport header.
    Bth,
    /// Extension headers, as the opcode asks for.
    Extension,
    /// Payload and padding.
    Payload,
    /// Invariant CRC.
    Icrc,
    /// Management datagram header.
    Mad,
    /// Connection manager message.
    Cm,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Ethernet => "Ethernet header",
            Layer::LinuxCooked => "Linux cooked header",
            Layer::MacControl => "MAC control frame",
            Layer::Ipv4 => "IPv4 header",
            Layer::Ipv6 => "IPv6 header",
            Layer::Udp => "UDP header",
            Layer::Grh => "GRH",
            Layer::Bth => "BTH",
            Layer::Extension => "extension headers",
            Layer::Payload => "payload",
            Layer::Icrc => "ICRC",
            Layer::Mad => "MAD header",
            Layer::Cm => "CM message",
        })
    }
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
}
