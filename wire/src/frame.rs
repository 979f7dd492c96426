//! Finds the packet in a captured frame: Ethernet or bare IP, RoCEv2 and RoCEv1.

use core::net::IpAddr;

use crate::error::{Layer, ParseError};
use crate::ethernet::{EtherType, Ethernet};
use crate::icrc::{PathHeader, icrc_of_l3};
use crate::ipv4::Ipv4;
use crate::ipv6::{Ipv6, NEXT_HEADER_BTH};
use crate::packet::Packet;
use crate::pfc::PauseFrame;
use crate::udp::{PROTOCOL_UDP, ROCE_V2_PORT, Udp};

/// The link layer of a capture's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinkType {
    /// Ethernet.
    Ethernet,
    /// IPv4 or IPv6, without a link header.
    RawIp,
    /// Linux "cooked" mode, version 1 (`tcpdump -i any`).
    LinuxCooked,
    /// Linux "cooked" mode, version 2.
    LinuxCooked2,
}

impl LinkType {
    /// The link type with a number of the pcap registry (`LINKTYPE_...`).
    pub const fn from_pcap(number: u16) -> Option<LinkType> {
        match number {
            1 => Some(LinkType::Ethernet),
            // RAW as some systems number it, RAW, IPV4, IPV6.
            12 | 14 | 101 | 228 | 229 => Some(LinkType::RawIp),
            113 => Some(LinkType::LinuxCooked),
            276 => Some(LinkType::LinuxCooked2),
            _ => None,
        }
    }
}

/// A frame.
// A frame is made, looked at and dropped: no boxing for its size.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "no allocator in this crate")]
pub enum Frame<'a> {
    /// A frame with a packet of the InfiniBand transport.
    Roce(RoceFrame<'a>),
    /// A pause frame.
    Pause(PauseFrame),
}

/// Header that carries the addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// RoCEv2 over IPv4.
    V4(Ipv4, Udp),
    /// RoCEv2 over IPv6.
    V6(Ipv6, Udp),
    /// RoCEv1: a GRH.
    Grh(Ipv6),
}

/// A frame with a packet of the InfiniBand transport.
#[derive(Clone, Copy, Debug)]
pub struct RoceFrame<'a> {
    /// Ethernet header, where the link has one.
    pub ethernet: Option<Ethernet>,
    /// Network headers.
    pub network: Network,
    /// The packet.
    pub packet: Packet<'a>,
    /// The ICRC that the frame should have. Compare with [`RoceFrame::is_icrc_ok`].
    pub icrc_expected: u32,
}

impl<'a> Frame<'a> {
    /// Takes a whole frame apart.
    ///
    /// # Errors
    /// [`ParseError::NotRoce`] if it carries something else, other errors if it is
    /// RoCE and broken or cut off.
    pub fn parse(link_type: LinkType, bytes: &'a [u8]) -> Result<Frame<'a>, ParseError> {
        let cooked = |len, at: usize| {
            let truncated = ParseError::truncated(Layer::LinuxCooked, len, bytes.len());
            let rest = bytes.get(len..).ok_or(truncated)?;
            let ethertype = EtherType(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            Ok((None, ethertype, rest))
        };
        let (ethernet, ethertype, rest) = match link_type {
            LinkType::Ethernet => {
                let (ethernet, rest) = Ethernet::parse(bytes)?;
                (Some(ethernet), ethernet.ethertype, rest)
            }
            LinkType::RawIp => {
                let is_v6 = bytes.first().is_some_and(|b| b >> 4 == 6);
                let ethertype = if is_v6 {
                    EtherType::IPV6
                } else {
                    EtherType::IPV4
                };
                (None, ethertype, bytes)
            }
            LinkType::LinuxCooked => cooked(16, 14)?,
            LinkType::LinuxCooked2 => cooked(20, 0)?,
        };
        if ethertype == EtherType::MAC_CONTROL && ethernet.is_some() {
            return PauseFrame::parse(bytes).map(Frame::Pause);
        }
        Self::parse_network(ethernet, ethertype, rest).map(Frame::Roce)
    }

    fn parse_network(
        ethernet: Option<Ethernet>,
        ethertype: EtherType,
        bytes: &'a [u8],
    ) -> Result<RoceFrame<'a>, ParseError> {
        let (network, inner, l3_len) = match ethertype {
            EtherType::IPV4 => {
                let (ip, payload) = Ipv4::parse(bytes)?;
                check_protocol(Layer::Ipv4, ip.protocol)?;
                if ip.is_fragment() {
                    return Err(ParseError::Unsupported(Layer::Ipv4));
                }
                let (udp, inner) = parse_udp(payload)?;
                (Network::V4(ip, udp), inner, Ipv4::LEN + Udp::LEN)
            }
            EtherType::IPV6 => {
                let (ip, payload) = Ipv6::parse(bytes)?;
                check_protocol(Layer::Ipv6, ip.next_header)?;
                let (udp, inner) = parse_udp(payload)?;
                (Network::V6(ip, udp), inner, Ipv6::LEN + Udp::LEN)
            }
            EtherType::ROCE_V1 => {
                let (grh, inner) = Ipv6::parse_as(Layer::Grh, bytes)?;
                if grh.next_header != NEXT_HEADER_BTH {
                    return Err(ParseError::not_roce(Layer::Grh, grh.next_header));
                }
                (Network::Grh(grh), inner, Ipv6::LEN)
            }
            EtherType(number) => {
                return Err(ParseError::not_roce(Layer::Ethernet, number));
            }
        };
        // To be looked at: what the transport would drop is shown, too.
        let packet = Packet::parse_any(inner)?;
        let icrc_expected = icrc_of_l3(&bytes[..l3_len + inner.len()])?;
        Ok(RoceFrame {
            ethernet,
            network,
            packet,
            icrc_expected,
        })
    }
}

fn check_protocol(layer: Layer, protocol: u8) -> Result<(), ParseError> {
    match protocol {
        PROTOCOL_UDP => Ok(()),
        other => Err(ParseError::not_roce(layer, other)),
    }
}

fn parse_udp(bytes: &[u8]) -> Result<(Udp, &[u8]), ParseError> {
    // The port first: the length of another protocol's datagram does not matter.
    if let Some(&[_, _, d0, d1]) = bytes.first_chunk::<4>() {
        let number = u16::from_be_bytes([d0, d1]);
        if number != ROCE_V2_PORT {
            return Err(ParseError::not_roce(Layer::Udp, number));
        }
    }
    let (udp, inner) = Udp::parse(bytes)?;
    if inner.len() + Udp::LEN != bytes.len() {
        // A UDP length below the IP payload's would leave bytes that no ICRC covers.
        return Err(ParseError::length(Layer::Udp, usize::from(udp.len)));
    }
    Ok((udp, inner))
}

impl RoceFrame<'_> {
    /// Whether the ICRC in the packet is the one that the frame should have.
    pub fn is_icrc_ok(&self) -> bool {
        u32::from_le_bytes(self.packet.icrc()) == self.icrc_expected
    }

    /// The sender's address.
    pub fn src(&self) -> IpAddr {
        match self.network {
            Network::V4(ip, _) => IpAddr::V4(ip.src),
            Network::V6(ip, _) | Network::Grh(ip) => IpAddr::V6(ip.src),
        }
    }

    /// The destination's address.
    pub fn dst(&self) -> IpAddr {
        match self.network {
            Network::V4(ip, _) => IpAddr::V4(ip.dst),
            Network::V6(ip, _) | Network::Grh(ip) => IpAddr::V6(ip.dst),
        }
    }

    /// The UDP header; RoCEv1 has none.
    pub fn udp(&self) -> Option<Udp> {
        match self.network {
            Network::V4(_, udp) | Network::V6(_, udp) => Some(udp),
            Network::Grh(_) => None,
        }
    }

    /// The IPv4 Identification that the packet travelled under.
    pub fn ident(&self) -> Option<u16> {
        match self.network {
            Network::V4(ip, _) => Some(ip.ident),
            _ => None,
        }
    }

    /// DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        match self.network {
            Network::V4(ip, _) => ip.tos,
            Network::V6(ip, _) | Network::Grh(ip) => ip.traffic_class,
        }
    }

    /// What a receiver behind a UDP socket knows of the path; RoCEv1 has none.
    pub fn path(&self) -> Option<PathHeader> {
        match self.network {
            Network::V4(ip, udp) => Some(PathHeader::V4 {
                src: ip.src.octets(),
                dst: ip.dst.octets(),
                sport: udp.src_port,
                dport: udp.dst_port,
            }),
            Network::V6(ip, udp) => Some(PathHeader::V6 {
                src: ip.src.octets(),
                dst: ip.dst.octets(),
                sport: udp.src_port,
                dport: udp.dst_port,
            }),
            Network::Grh(_) => None,
        }
    }

    /// Writes the frame from its values at the start of `out`; returns its length.
    /// What Ethernet padded it with is not written.
    ///
    /// # Panics
    /// If `out` is too short; 82 bytes more than the packet always suffice.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut at = self.ethernet.map_or(0, |ethernet| ethernet.emit(out));
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        match self.network {
            Network::V4(ip, _) => put(&ip.emit()),
            Network::V6(ip, _) | Network::Grh(ip) => put(&ip.emit()),
        }
        if let Some(udp) = self.udp() {
            put(&udp.emit());
        }
        let len = self.packet.bytes().len();
        at + self.packet.emit(&mut out[at..at + len])
    }
}
