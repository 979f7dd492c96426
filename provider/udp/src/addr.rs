//! Socket addresses in the form in which the kernel takes them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A destination, encoded once so that sending needs no conversion.
///
/// The bytes are those of the platform's `sockaddr_in` or `sockaddr_in6`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C, align(4))]
pub struct Dest {
    bytes: [u8; Dest::CAPACITY],
    len: u32,
}

impl Dest {
    /// Size of `sockaddr_in6`, the longer of the two.
    pub(crate) const CAPACITY: usize = 28;
    const V4_LEN: u32 = 16;
    const V6_LEN: u32 = 28;

    /// Encodes `addr`.
    #[inline]
    pub fn new(addr: SocketAddr) -> Dest {
        match addr {
            SocketAddr::V4(addr) => Dest::v4(addr),
            SocketAddr::V6(addr) => Dest::v6(addr),
        }
    }

    /// The address, decoded.
    pub fn addr(&self) -> SocketAddr {
        self.decode().expect("only valid addresses are encoded")
    }

    /// An empty buffer for the kernel to write an address into.
    pub(crate) const EMPTY: Dest = Dest {
        bytes: [0; Dest::CAPACITY],
        len: 0,
    };

    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "system calls take it")
    )]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "system calls fill it")
    )]
    pub(crate) fn buffer_mut(&mut self) -> &mut [u8; Dest::CAPACITY] {
        &mut self.bytes
    }

    /// Takes over what the kernel wrote; `None` if that is no IP address.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "system calls fill it")
    )]
    pub(crate) fn set_len(&mut self, len: u32) {
        self.len = len.min(Dest::CAPACITY as u32);
    }

    #[inline]
    pub(crate) fn decode(&self) -> Option<SocketAddr> {
        let (b, len) = (&self.bytes, self.len);
        let family = i32::from(family_of(b));
        let port = u16::from_be_bytes([b[2], b[3]]);
        if family == libc::AF_INET && len >= Dest::V4_LEN {
            let ip: [u8; 4] = b[4..8].try_into().expect("4 bytes");
            Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(ip), port)))
        } else if family == libc::AF_INET6 && len >= Dest::V6_LEN {
            let word = |at: usize| [b[at], b[at + 1], b[at + 2], b[at + 3]];
            let ip: [u8; 16] = b[8..24].try_into().expect("16 bytes");
            // Flow information as std keeps it: the bytes as they are.
            let (flow, scope) = (u32::from_ne_bytes(word(4)), u32::from_ne_bytes(word(24)));
            Some(SocketAddr::V6(SocketAddrV6::new(
                Ipv6Addr::from(ip),
                port,
                flow,
                scope,
            )))
        } else {
            None
        }
    }

    #[inline]
    fn v4(addr: SocketAddrV4) -> Dest {
        let mut dest = Dest {
            len: Dest::V4_LEN,
            ..Dest::EMPTY
        };
        set_family(&mut dest.bytes, libc::AF_INET, Dest::V4_LEN);
        dest.bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        dest.bytes[4..8].copy_from_slice(&addr.ip().octets());
        dest
    }

    fn v6(addr: SocketAddrV6) -> Dest {
        let mut dest = Dest {
            len: Dest::V6_LEN,
            ..Dest::EMPTY
        };
        set_family(&mut dest.bytes, libc::AF_INET6, Dest::V6_LEN);
        dest.bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        dest.bytes[4..8].copy_from_slice(&addr.flowinfo().to_ne_bytes());
        dest.bytes[8..24].copy_from_slice(&addr.ip().octets());
        dest.bytes[24..28].copy_from_slice(&addr.scope_id().to_ne_bytes());
        dest
    }
}

impl From<SocketAddr> for Dest {
    fn from(addr: SocketAddr) -> Dest {
        Dest::new(addr)
    }
}

impl fmt::Debug for Dest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decode() {
            Some(addr) => write!(f, "Dest({addr})"),
            None => f.write_str("Dest(none)"),
        }
    }
}

/// BSD systems have a length byte and one byte of family; others two of family.
const HAS_LEN: bool = cfg!(any(
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly"
));

fn set_family(bytes: &mut [u8; Dest::CAPACITY], family: i32, len: u32) {
    let first = if HAS_LEN {
        [len as u8, family as u8]
    } else {
        (family as u16).to_ne_bytes()
    };
    bytes[..2].copy_from_slice(&first);
}

fn family_of(bytes: &[u8; Dest::CAPACITY]) -> u16 {
    if HAS_LEN {
        u16::from(bytes[1])
    } else {
        u16::from_ne_bytes([bytes[0], bytes[1]])
    }
}
