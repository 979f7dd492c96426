//! Identifiers of the InfiniBand transport, each a type of its own.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Queue pair number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[doc(alias = "qp_num")]
pub struct Qpn(u32);

impl Qpn {
    /// The general services QP: connection management datagrams.
    pub const GSI: Qpn = Qpn(1);
    /// Destination of multicast packets.
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);

    /// Takes the low 24 bits.
    #[inline]
    pub const fn new(number: u32) -> Qpn {
        Qpn(number & 0xff_ffff)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Local key of a memory region.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct Lkey(pub u32);

/// Remote key of a memory region or window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Rkey(pub u32);

/// Queue key of datagram QPs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Qkey(pub u32);

impl Qkey {
    /// The well-known key of the general services QP.
    pub const GSI: Qkey = Qkey(0x8001_0000);
}

/// Partition key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pkey(pub u16);

impl Pkey {
    /// Full membership of the default partition: what RoCE uses.
    pub const DEFAULT: Pkey = Pkey(0xffff);

    /// True if packets with `other` are for a holder of this key: the low 15 bits
    /// are equal and not 0, and not both are limited members.
    #[inline]
    pub const fn matches(self, other: Pkey) -> bool {
        let base = self.0 & 0x7fff;
        base == other.0 & 0x7fff && base != 0 && (self.0 | other.0) & 0x8000 != 0
    }
}

/// Global identifier: an IPv6 address, or an IPv4 address mapped into one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[doc(alias = "ibv_gid")]
pub struct Gid(pub [u8; 16]);

impl From<IpAddr> for Gid {
    fn from(addr: IpAddr) -> Gid {
        match addr {
            IpAddr::V4(a) => Gid(a.to_ipv6_mapped().octets()),
            IpAddr::V6(a) => Gid(a.octets()),
        }
    }
}

impl From<Gid> for IpAddr {
    fn from(gid: Gid) -> IpAddr {
        let v6 = Ipv6Addr::from(gid.0);
        v6.to_ipv4_mapped()
            .map_or(IpAddr::V6(v6), |v4: Ipv4Addr| IpAddr::V4(v4))
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({})", Ipv6Addr::from(self.0))
    }
}

macro_rules! debug_hex {
    ($($name:ident),*) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        })*
    };
}

debug_hex!(Qpn, Lkey, Rkey, Qkey, Pkey);

/// As programs of verbs print them.
macro_rules! display_hex {
    ($($name:ident),*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        })*
    };
}

display_hex!(Qpn, Lkey, Rkey, Qkey, Pkey);
