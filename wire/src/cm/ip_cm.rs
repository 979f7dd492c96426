//! What RDMA-CM adds to the connection manager for IP: a header at the front of the
//! private data of REQ and SIDR_REQ, and service ids that name ports.

use core::net::{IpAddr, Ipv6Addr};

use crate::error::{Layer, ParseError};
use crate::field::fields;

/// Port space of a service id, as RDMA-CM numbers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[doc(alias = "rdma_port_space")]
pub struct PortSpace(pub u16);

impl PortSpace {
    /// IP over InfiniBand.
    pub const IPOIB: PortSpace = PortSpace(0x0002);
    /// Reliable connections.
    #[doc(alias = "RDMA_PS_TCP")]
    pub const TCP: PortSpace = PortSpace(0x0106);
    /// Datagrams.
    #[doc(alias = "RDMA_PS_UDP")]
    pub const UDP: PortSpace = PortSpace(0x0111);
    /// Native addressing.
    pub const IB: PortSpace = PortSpace(0x013f);
}

/// The service id of a port.
///
/// ```
/// use urxe_wire::cm::{PortSpace, service_id};
/// assert_eq!(service_id(PortSpace::TCP, 7174), 0x0000_0000_0106_1c06);
/// ```
pub const fn service_id(space: PortSpace, port: u16) -> u64 {
    (space.0 as u64) << 16 | port as u64
}

fields! {
    /// The 36 bytes at the front of a REQ's or SIDR_REQ's private data. The destination port
    /// is not in it but in the service id.
    #[doc(alias = "cma_hdr")]
    IpCmHeader, 36, fn from_bytes, after 0: u8 = 8;
    /// IP version, 4 or 6.
    ip_version: u8 = 4;
    /// Reserved 4 bits; sent as 0.
    reserved: u8 = 4;
    /// The active side's port.
    src_port: u16 = 16;
    /// Source address; an IPv4 address stands in the last 4 bytes.
    src: [u8; 16] = 128;
    /// Destination address; the same.
    dst: [u8; 16] = 128;
}

impl IpCmHeader {
    /// A header; `None` if the addresses are of different versions.
    pub fn new(src: IpAddr, src_port: u16, dst: IpAddr) -> Option<IpCmHeader> {
        let (ip_version, src, dst) = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => (4, src.to_bits().into(), dst.to_bits().into()),
            (IpAddr::V6(src), IpAddr::V6(dst)) => (6, src.to_bits(), dst.to_bits()),
            _ => return None,
        };
        let (src, dst) = (u128::to_be_bytes(src), u128::to_be_bytes(dst));
        Some(IpCmHeader {
            ip_version,
            reserved: 0,
            src_port,
            src,
            dst,
        })
    }

    /// Reads the front of private data.
    ///
    /// # Errors
    /// Truncated, a header version other than 0, or an IP version other than 4 and 6.
    pub fn parse(private_data: &[u8]) -> Result<IpCmHeader, ParseError> {
        let truncated = ParseError::truncated(Layer::Cm, Self::LEN, private_data.len());
        let b = private_data.first_chunk::<36>().ok_or(truncated)?;
        let ip_version = b[1] >> 4;
        if b[0] != 0 {
            return Err(ParseError::version(Layer::Cm, b[0]));
        }
        if !matches!(ip_version, 4 | 6) {
            return Err(ParseError::version(Layer::Cm, ip_version));
        }
        Ok(IpCmHeader::from_bytes(b))
    }

    /// The active side's address.
    pub fn src_ip(&self) -> IpAddr {
        self.ip(self.src)
    }

    /// The address that it wants to reach.
    pub fn dst_ip(&self) -> IpAddr {
        self.ip(self.dst)
    }

    fn ip(&self, bytes: [u8; 16]) -> IpAddr {
        match (self.ip_version, bytes) {
            (4, [.., a, b, c, d]) => IpAddr::from([a, b, c, d]),
            _ => IpAddr::V6(Ipv6Addr::from(bytes)),
        }
    }
}
