//! The AETH syndrome: credits, RNR timers and NAK codes.

use core::time::Duration;

/// First byte of an AETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Syndrome(pub u8);

/// The meaning of a syndrome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyndromeKind {
    /// Acknowledged; so many receives are posted.
    Ack(CreditCode),
    /// No receive is posted: come again after this time.
    RnrNak(RnrTimer),
    /// Refused.
    Nak(NakCode),
    /// A reserved kind: ignore.
    Reserved,
}

impl Syndrome {
    /// An acknowledgement with credits.
    #[inline]
    pub const fn ack(credits: CreditCode) -> Syndrome {
        Syndrome(credits.0)
    }

    /// A receiver-not-ready NAK.
    #[inline]
    pub const fn rnr(timer: RnrTimer) -> Syndrome {
        Syndrome(0x20 | timer.0)
    }

    /// A NAK.
    #[inline]
    pub const fn nak(code: NakCode) -> Syndrome {
        Syndrome(0x60 | code.number())
    }

    /// What it says. Bit 7 is reserved: a syndrome with it is of no known kind.
    #[inline]
    pub const fn decode(self) -> SyndromeKind {
        let value = self.0 & 0x1f;
        match self.0 >> 5 {
            0 => SyndromeKind::Ack(CreditCode(value)),
            1 => SyndromeKind::RnrNak(RnrTimer(value)),
            3 => SyndromeKind::Nak(NakCode::from_number(value)),
            _ => SyndromeKind::Reserved,
        }
    }
}

/// Receives that a responder has posted, as a code of 5 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CreditCode(u8);

/// Code to number of receives (IBTA table of end-to-end credits).
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

impl CreditCode {
    /// No limit: flow control is not used (shared receive queues).
    pub const UNLIMITED: CreditCode = CreditCode(31);

    /// Takes the low 5 bits.
    pub const fn new(code: u8) -> CreditCode {
        CreditCode(code & 0x1f)
    }

    /// The largest code that does not promise more than `free` receives.
    #[inline]
    pub fn encode(free: u32) -> CreditCode {
        CreditCode(CREDITS.partition_point(|&c| c <= free) as u8 - 1)
    }

    /// Number of receives; `None` means no limit.
    #[inline]
    pub fn credits(self) -> Option<u32> {
        CREDITS.get(self.0 as usize).copied()
    }

    /// The code.
    pub const fn code(self) -> u8 {
        self.0
    }
}

/// Time to wait after an RNR NAK, as a code of 5 bits. Code 0 is the longest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct RnrTimer(u8);

/// Code to time, in units of 10 microseconds.
const RNR_TIMES_10US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// Takes the low 5 bits.
    pub const fn new(code: u8) -> RnrTimer {
        RnrTimer(code & 0x1f)
    }

    /// The code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time in nanoseconds.
    pub const fn duration_ns(self) -> u64 {
        RNR_TIMES_10US[self.0 as usize] as u64 * 10_000
    }

    /// The time.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.duration_ns())
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum NakCode {
    /// A packet is missing.
    PsnSequence,
    /// The request is not valid here.
    InvalidRequest,
    /// The memory may not be accessed so.
    RemoteAccess,
    /// The responder is at fault itself.
    RemoteOperational,
    /// Invalid reliable datagram request.
    InvalidRd,
    /// A reserved code.
    Other(u8),
}

impl NakCode {
    /// The code's number, 5 bits.
    #[inline]
    pub const fn number(self) -> u8 {
        match self {
            NakCode::PsnSequence => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRd => 4,
            NakCode::Other(n) => n & 0x1f,
        }
    }

    /// The code with a number, of which the low 5 bits count.
    #[inline]
    pub const fn from_number(number: u8) -> NakCode {
        match number & 0x1f {
            0 => NakCode::PsnSequence,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccess,
            3 => NakCode::RemoteOperational,
            4 => NakCode::InvalidRd,
            n => NakCode::Other(n),
        }
    }
}
