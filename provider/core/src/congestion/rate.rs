//! Rates, and what a packet takes of them beside its bytes.

use core::net::IpAddr;
use core::num::NonZeroU64;

/// Bits per second; never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// A rate of `bits` per second; 0 is taken as 1.
    pub const fn from_bps(bits: u64) -> Rate {
        match NonZeroU64::new(bits) {
            Some(bits) => Rate(bits),
            None => Rate(NonZeroU64::MIN),
        }
    }

    /// A rate in gigabits (10^9 bits) per second.
    pub const fn from_gbps(gigabits: u64) -> Rate {
        Rate::from_bps(gigabits.saturating_mul(1_000_000_000))
    }

    /// Bits per second.
    pub const fn bps(self) -> u64 {
        self.0.get()
    }
}

/// Bytes that a datagram has beside its UDP payload on an Ethernet link, the gap between
/// frames and the preamble included: what a rate has to pay for besides the packet.
pub(crate) const FRAME_OVERHEAD_IPV4: u32 = 14 + 20 + 8 + 4 + 20;
/// The overhead over IPv6.
const FRAME_OVERHEAD_IPV6: u32 = FRAME_OVERHEAD_IPV4 + 20;

/// Bytes that a datagram to that address has beside its UDP payload on an Ethernet link: headers of Ethernet, IP and UDP, the FCS,
/// preamble and gap. 66 over IPv4, 86 over IPv6.
pub const fn frame_overhead(remote: &IpAddr) -> u32 {
    match remote {
        IpAddr::V4(_) => FRAME_OVERHEAD_IPV4,
        IpAddr::V6(_) => FRAME_OVERHEAD_IPV6,
    }
}
