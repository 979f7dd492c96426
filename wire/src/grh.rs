//! The 40 bytes placed before the payload of a UD receive: where it came from.

use core::net::IpAddr;

use crate::error::{Layer, ParseError};
use crate::ids::Gid;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;

/// The area before a UD receive's payload. A RoCEv2 packet over IPv6 leaves its IPv6
/// header there; over IPv4 the IPv4 header stands in the last 20 bytes and the first
/// 20 mean nothing (urxe writes zeros, as Linux's rdma_rxe does).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_grh")]
pub enum Grh {
    /// From an IPv4 packet.
    V4(Ipv4),
    /// From an IPv6 packet, or the GRH itself.
    V6(Ipv6),
}

impl Grh {
    /// Length in bytes, whatever the form.
    pub const LEN: usize = 40;

    /// Reads the area. The form shows in the version of the IPv4 place or the first byte.
    ///
    /// # Errors
    /// Neither form.
    pub fn parse(bytes: &[u8; 40]) -> Result<Grh, ParseError> {
        if bytes[0] >> 4 == 6 {
            return Ok(Grh::V6(Ipv6::from_bytes(bytes)));
        }
        let mut v4 = [0; 20];
        v4.copy_from_slice(&bytes[20..]);
        if v4[0] != 0x45 {
            return Err(ParseError::version(Layer::Grh, v4[0] >> 4));
        }
        Ok(Grh::V4(Ipv4::from_bytes(&v4)))
    }

    /// The 40 bytes.
    pub fn emit(&self) -> [u8; 40] {
        match self {
            Grh::V4(v4) => {
                let mut b = [0; 40];
                b[20..].copy_from_slice(&v4.emit());
                b
            }
            Grh::V6(v6) => v6.emit(),
        }
    }

    /// The sender.
    pub fn sgid(&self) -> Gid {
        match self {
            Grh::V4(v4) => Gid::from(IpAddr::V4(v4.src)),
            Grh::V6(v6) => Gid::from(IpAddr::V6(v6.src)),
        }
    }

    /// The destination: an address of the receiver, or a group.
    pub fn dgid(&self) -> Gid {
        match self {
            Grh::V4(v4) => Gid::from(IpAddr::V4(v4.dst)),
            Grh::V6(v6) => Gid::from(IpAddr::V6(v6.dst)),
        }
    }
}
