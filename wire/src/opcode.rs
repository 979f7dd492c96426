//! The opcode table: what every BTH opcode is, and which headers follow it.

use core::fmt;

/// BTH opcode. Any byte; [`Opcode::info`] says whether it is assigned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

/// Transport service that an opcode belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Congestion notification.
    Cnp,
    /// None that the table knows: see [`OpcodeInfo::UNASSIGNED`].
    Unassigned,
}

/// The operation that a packet is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Operation {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledgement or NAK.
    Acknowledge,
    /// Acknowledgement of an atomic, with its result.
    AtomicAcknowledge,
    /// Compare-and-swap.
    CompareSwap,
    /// Fetch-and-add.
    FetchAdd,
    /// FLUSH.
    Flush,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// Congestion notification.
    Cnp,
    /// Something that the table does not know: see [`OpcodeInfo::UNASSIGNED`].
    Unassigned,
}

/// Place of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    Only,
}

/// How much payload a packet has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PayloadRule {
    /// Exactly the path MTU.
    ExactlyMtu,
    /// From 1 byte to the path MTU.
    OneToMtu,
    /// From nothing to the path MTU.
    UpToMtu,
    /// None.
    Nothing,
    /// Exactly so many bytes.
    Exactly(u8),
    /// Not known: everything after the BTH, whatever it is.
    Unknown,
}

/// Which extension headers follow the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Headers(u16);

impl Headers {
    /// No extension header.
    pub const NONE: Headers = Headers(0);
    /// DETH, 8 bytes.
    pub const DETH: Headers = Headers(1);
    /// XRCETH, 4 bytes.
    pub const XRCETH: Headers = Headers(2);
    /// FETH, 4 bytes.
    pub const FETH: Headers = Headers(4);
    /// RETH, 16 bytes.
    pub const RETH: Headers = Headers(8);
    /// AtomicETH, 28 bytes.
    pub const ATOMIC_ETH: Headers = Headers(16);
    /// AETH, 4 bytes.
    pub const AETH: Headers = Headers(32);
    /// AtomicAckETH, 8 bytes.
    pub const ATOMIC_ACK_ETH: Headers = Headers(64);
    /// ImmDt, 4 bytes.
    pub const IMM: Headers = Headers(128);
    /// IETH, 4 bytes.
    pub const IETH: Headers = Headers(256);

    /// In the order in which they stand in a packet, with their sizes.
    pub const ORDER: [(Headers, u8); 9] = [
        (Headers::DETH, 8),
        (Headers::XRCETH, 4),
        (Headers::FETH, 4),
        (Headers::RETH, 16),
        (Headers::ATOMIC_ETH, 28),
        (Headers::AETH, 4),
        (Headers::ATOMIC_ACK_ETH, 8),
        (Headers::IMM, 4),
        (Headers::IETH, 4),
    ];

    /// True if all of `other` are here.
    #[inline]
    pub const fn contains(self, other: Headers) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    pub const fn with(self, other: Headers) -> Headers {
        Headers(self.0 | other.0)
    }

    /// Bytes of all of them together.
    pub const fn len(self) -> u8 {
        let (mut i, mut len) = (0, 0);
        while i < Self::ORDER.len() {
            if self.contains(Self::ORDER[i].0) {
                len += Self::ORDER[i].1;
            }
            i += 1;
        }
        len
    }

    /// True if there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Offset of one header from the start of the BTH, if it is here.
    #[inline]
    pub const fn offset_of(self, wanted: Headers) -> Option<usize> {
        if !self.contains(wanted) {
            return None;
        }
        // Bits are numbered in the order of the wire, and mostly nothing precedes.
        match Headers(self.0 & (wanted.0 - 1)) {
            Headers::NONE => Some(12),
            preceding => Some(12 + preceding.len() as usize),
        }
    }
}

/// Everything the table knows about an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpcodeInfo {
    /// Service.
    pub service: Service,
    /// Operation.
    pub operation: Operation,
    /// Place in the message.
    pub position: Position,
    /// Extension headers.
    pub headers: Headers,
    /// Bytes of BTH and extension headers.
    pub header_len: u8,
    /// Payload.
    pub payload: PayloadRule,
    /// Name, as in `RC SEND First`.
    pub name: &'static str,
}

impl OpcodeInfo {
    /// What stands for the entry of an opcode that has none, in
    /// [`Packet::parse_any`](crate::Packet::parse_any) only: a vendor's transport, or
    /// RD. Headers that may follow the BTH count as payload.
    pub const UNASSIGNED: &'static OpcodeInfo = &OpcodeInfo {
        service: Service::Unassigned,
        operation: Operation::Unassigned,
        position: Position::Only,
        headers: Headers::NONE,
        header_len: 12,
        payload: PayloadRule::Unknown,
        name: "unassigned opcode",
    };

    /// Responses go to the requester half, everything else to the responder half.
    #[inline]
    pub const fn is_response(&self) -> bool {
        matches!(
            self.operation,
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// Carries immediate data.
    #[inline]
    pub const fn has_imm(&self) -> bool {
        self.headers.contains(Headers::IMM)
    }
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal, $service:ident $operation:ident $position:ident, $payload:expr, [$($header:ident)*];)*) => {
        impl Opcode {
            $(
                #[doc = $text]
                pub const $name: Opcode = Opcode($code);
            )*
        }

        /// The table. Unassigned opcodes have no entry, so nothing can be computed
        /// with them by accident.
        pub static OPCODES: [Option<OpcodeInfo>; 256] = {
            let mut table = [const { None }; 256];
            $({
                let headers = Headers::NONE$(.with(Headers::$header))*;
                table[$code] = Some(OpcodeInfo {
                    service: Service::$service,
                    operation: Operation::$operation,
                    position: Position::$position,
                    headers,
                    header_len: 12 + headers.len(),
                    payload: $payload,
                    name: $text,
                });
            })*
            table
        };
    };
}

use PayloadRule::{Exactly, ExactlyMtu, Nothing, OneToMtu, UpToMtu};

opcodes! {
    RC_SEND_FIRST = 0x00, "RC SEND First", Rc Send First, ExactlyMtu, [];
    RC_SEND_MIDDLE = 0x01, "RC SEND Middle", Rc Send Middle, ExactlyMtu, [];
    RC_SEND_LAST = 0x02, "RC SEND Last", Rc Send Last, OneToMtu, [];
    RC_SEND_LAST_WITH_IMM = 0x03, "RC SEND Last with Immediate", Rc Send Last, OneToMtu, [IMM];
    RC_SEND_ONLY = 0x04, "RC SEND Only", Rc Send Only, UpToMtu, [];
    RC_SEND_ONLY_WITH_IMM = 0x05, "RC SEND Only with Immediate", Rc Send Only, UpToMtu, [IMM];
    RC_WRITE_FIRST = 0x06, "RC RDMA WRITE First", Rc Write First, ExactlyMtu, [RETH];
    RC_WRITE_MIDDLE = 0x07, "RC RDMA WRITE Middle", Rc Write Middle, ExactlyMtu, [];
    RC_WRITE_LAST = 0x08, "RC RDMA WRITE Last", Rc Write Last, OneToMtu, [];
    RC_WRITE_LAST_WITH_IMM = 0x09, "RC RDMA WRITE Last with Immediate", Rc Write Last, OneToMtu, [IMM];
    RC_WRITE_ONLY = 0x0a, "RC RDMA WRITE Only", Rc Write Only, UpToMtu, [RETH];
    RC_WRITE_ONLY_WITH_IMM = 0x0b, "RC RDMA WRITE Only with Immediate", Rc Write Only, UpToMtu, [RETH IMM];
    RC_READ_REQUEST = 0x0c, "RC RDMA READ Request", Rc ReadRequest Only, Nothing, [RETH];
    RC_READ_RESPONSE_FIRST = 0x0d, "RC RDMA READ Response First", Rc ReadResponse First, ExactlyMtu, [AETH];
    RC_READ_RESPONSE_MIDDLE = 0x0e, "RC RDMA READ Response Middle", Rc ReadResponse Middle, ExactlyMtu, [];
    RC_READ_RESPONSE_LAST = 0x0f, "RC RDMA READ Response Last", Rc ReadResponse Last, OneToMtu, [AETH];
    RC_READ_RESPONSE_ONLY = 0x10, "RC RDMA READ Response Only", Rc ReadResponse Only, UpToMtu, [AETH];
    RC_ACKNOWLEDGE = 0x11, "RC Acknowledge", Rc Acknowledge Only, Nothing, [AETH];
    RC_ATOMIC_ACKNOWLEDGE = 0x12, "RC ATOMIC Acknowledge", Rc AtomicAcknowledge Only, Nothing, [AETH ATOMIC_ACK_ETH];
    RC_COMPARE_SWAP = 0x13, "RC CmpSwap", Rc CompareSwap Only, Nothing, [ATOMIC_ETH];
    RC_FETCH_ADD = 0x14, "RC FetchAdd", Rc FetchAdd Only, Nothing, [ATOMIC_ETH];
    RC_SEND_LAST_WITH_INV = 0x16, "RC SEND Last with Invalidate", Rc Send Last, OneToMtu, [IETH];
    RC_SEND_ONLY_WITH_INV = 0x17, "RC SEND Only with Invalidate", Rc Send Only, UpToMtu, [IETH];
    RC_FLUSH = 0x1c, "RC FLUSH", Rc Flush Only, Nothing, [FETH RETH];
    RC_ATOMIC_WRITE = 0x1d, "RC ATOMIC WRITE", Rc AtomicWrite Only, Exactly(8), [RETH];

    UC_SEND_FIRST = 0x20, "UC SEND First", Uc Send First, ExactlyMtu, [];
    UC_SEND_MIDDLE = 0x21, "UC SEND Middle", Uc Send Middle, ExactlyMtu, [];
    UC_SEND_LAST = 0x22, "UC SEND Last", Uc Send Last, OneToMtu, [];
    UC_SEND_LAST_WITH_IMM = 0x23, "UC SEND Last with Immediate", Uc Send Last, OneToMtu, [IMM];
    UC_SEND_ONLY = 0x24, "UC SEND Only", Uc Send Only, UpToMtu, [];
    UC_SEND_ONLY_WITH_IMM = 0x25, "UC SEND Only with Immediate", Uc Send Only, UpToMtu, [IMM];
    UC_WRITE_FIRST = 0x26, "UC RDMA WRITE First", Uc Write First, ExactlyMtu, [RETH];
    UC_WRITE_MIDDLE = 0x27, "UC RDMA WRITE Middle", Uc Write Middle, ExactlyMtu, [];
    UC_WRITE_LAST = 0x28, "UC RDMA WRITE Last", Uc Write Last, OneToMtu, [];
    UC_WRITE_LAST_WITH_IMM = 0x29, "UC RDMA WRITE Last with Immediate", Uc Write Last, OneToMtu, [IMM];
    UC_WRITE_ONLY = 0x2a, "UC RDMA WRITE Only", Uc Write Only, UpToMtu, [RETH];
    UC_WRITE_ONLY_WITH_IMM = 0x2b, "UC RDMA WRITE Only with Immediate", Uc Write Only, UpToMtu, [RETH IMM];

    UD_SEND_ONLY = 0x64, "UD SEND Only", Ud Send Only, UpToMtu, [DETH];
    UD_SEND_ONLY_WITH_IMM = 0x65, "UD SEND Only with Immediate", Ud Send Only, UpToMtu, [DETH IMM];

    CNP = 0x81, "CNP", Cnp Cnp Only, Exactly(16), [];

    XRC_SEND_FIRST = 0xa0, "XRC SEND First", Xrc Send First, ExactlyMtu, [XRCETH];
    XRC_SEND_MIDDLE = 0xa1, "XRC SEND Middle", Xrc Send Middle, ExactlyMtu, [XRCETH];
    XRC_SEND_LAST = 0xa2, "XRC SEND Last", Xrc Send Last, OneToMtu, [XRCETH];
    XRC_SEND_LAST_WITH_IMM = 0xa3, "XRC SEND Last with Immediate", Xrc Send Last, OneToMtu, [XRCETH IMM];
    XRC_SEND_ONLY = 0xa4, "XRC SEND Only", Xrc Send Only, UpToMtu, [XRCETH];
    XRC_SEND_ONLY_WITH_IMM = 0xa5, "XRC SEND Only with Immediate", Xrc Send Only, UpToMtu, [XRCETH IMM];
    XRC_WRITE_FIRST = 0xa6, "XRC RDMA WRITE First", Xrc Write First, ExactlyMtu, [XRCETH RETH];
    XRC_WRITE_MIDDLE = 0xa7, "XRC RDMA WRITE Middle", Xrc Write Middle, ExactlyMtu, [XRCETH];
    XRC_WRITE_LAST = 0xa8, "XRC RDMA WRITE Last", Xrc Write Last, OneToMtu, [XRCETH];
    XRC_WRITE_LAST_WITH_IMM = 0xa9, "XRC RDMA WRITE Last with Immediate", Xrc Write Last, OneToMtu, [XRCETH IMM];
    XRC_WRITE_ONLY = 0xaa, "XRC RDMA WRITE Only", Xrc Write Only, UpToMtu, [XRCETH RETH];
    XRC_WRITE_ONLY_WITH_IMM = 0xab, "XRC RDMA WRITE Only with Immediate", Xrc Write Only, UpToMtu, [XRCETH RETH IMM];
    XRC_READ_REQUEST = 0xac, "XRC RDMA READ Request", Xrc ReadRequest Only, Nothing, [XRCETH RETH];
    XRC_READ_RESPONSE_FIRST = 0xad, "XRC RDMA READ Response First", Xrc ReadResponse First, ExactlyMtu, [AETH];
    XRC_READ_RESPONSE_MIDDLE = 0xae, "XRC RDMA READ Response Middle", Xrc ReadResponse Middle, ExactlyMtu, [];
    XRC_READ_RESPONSE_LAST = 0xaf, "XRC RDMA READ Response Last", Xrc ReadResponse Last, OneToMtu, [AETH];
    XRC_READ_RESPONSE_ONLY = 0xb0, "XRC RDMA READ Response Only", Xrc ReadResponse Only, UpToMtu, [AETH];
    XRC_ACKNOWLEDGE = 0xb1, "XRC Acknowledge", Xrc Acknowledge Only, Nothing, [AETH];
    XRC_ATOMIC_ACKNOWLEDGE = 0xb2, "XRC ATOMIC Acknowledge", Xrc AtomicAcknowledge Only, Nothing, [AETH ATOMIC_ACK_ETH];
    XRC_COMPARE_SWAP = 0xb3, "XRC CmpSwap", Xrc CompareSwap Only, Nothing, [XRCETH ATOMIC_ETH];
    XRC_FETCH_ADD = 0xb4, "XRC FetchAdd", Xrc FetchAdd Only, Nothing, [XRCETH ATOMIC_ETH];
    XRC_SEND_LAST_WITH_INV = 0xb6, "XRC SEND Last with Invalidate", Xrc Send Last, OneToMtu, [XRCETH IETH];
    XRC_SEND_ONLY_WITH_INV = 0xb7, "XRC SEND Only with Invalidate", Xrc Send Only, UpToMtu, [XRCETH IETH];
}

impl Opcode {
    /// The table's entry, if the opcode is assigned.
    #[inline]
    pub fn info(self) -> Option<&'static OpcodeInfo> {
        OPCODES[self.0 as usize].as_ref()
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(info) => write!(f, "Opcode({:#04x} {})", self.0, info.name),
            None => write!(f, "Opcode({:#04x} unassigned)", self.0),
        }
    }
}
