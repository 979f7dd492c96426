//! Addresses of hosts, and the headers around a packet.

use std::net::{IpAddr, Ipv4Addr};

use urxe_wire::{EtherType, Ethernet, Ipv4, Mac, ROCE_V2_PORT, Udp, VlanTag};

use crate::engine::mix64;
use crate::frame::Frame;
use crate::link::ETHERNET_OVERHEAD;
use crate::qos::Qos;
use crate::topology::HostId;

/// Where the IP header begins in an untagged frame.
pub(crate) const IP_OFFSET: usize = 14;

/// The first multicast address of IPv4. A frame for a group has the group's address in place of a host's number, which no
/// host has.
const GROUPS: u32 = 0xe000_0000;

/// Whether what a frame is for is a multicast group.
#[inline]
pub(crate) fn is_group(dst: HostId) -> bool {
    dst.0 >= GROUPS
}

/// The IP address of a host: 10.x.y.z, where x.y.z is its number plus 1.
pub fn address_of(host: HostId) -> IpAddr {
    if is_group(host) {
        return IpAddr::V4(Ipv4Addr::from_bits(host.0));
    }
    let [_, x, y, z] = (host.0 + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, x, y, z))
}

/// What switches hash to choose among equal paths: addresses and the UDP source port (the
/// destination port and the protocol are the same always).
pub(crate) fn flow_hash(src: HostId, dst: HostId, source_port: u16) -> u32 {
    let pair = u64::from(src.0) << 32 | u64::from(dst.0);
    mix64(mix64(pair) ^ u64::from(source_port)) as u32
}

/// Rewrites the TOS byte and the TTL of an IPv4 header, and its checksum for both (RFC 1624).
pub(crate) fn patch_ipv4(header: &mut [u8], tos: u8, ttl: u8) {
    let Some(header) = header.first_chunk_mut::<20>() else {
        return;
    };
    let old = [[header[0], header[1]], [header[8], header[9]]];
    (header[1], header[8]) = (tos, ttl);
    let new = [[header[0], header[1]], [header[8], header[9]]];
    let mut sum = u32::from(!u16::from_be_bytes([header[10], header[11]]));
    for (old, new) in old.into_iter().zip(new) {
        sum += u32::from(!u16::from_be_bytes(old)) + u32::from(u16::from_be_bytes(new));
    }
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    [header[10], header[11]] = (!(sum as u16)).to_be_bytes();
}

/// What is around a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Envelope {
    pub(crate) src: HostId,
    pub(crate) dst: HostId,
    pub(crate) source_port: u16,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// Priority of the VLAN tag, where there is one.
    pub(crate) pcp: Option<u8>,
}

/// IP and UDP headers.
pub(crate) const IP_UDP_LEN: u32 = (Ipv4::LEN + Udp::LEN) as u32;

/// The host of an address, or the group.
pub(crate) fn host_of(address: Ipv4Addr) -> Option<HostId> {
    if address.is_multicast() {
        return Some(HostId(address.to_bits()));
    }
    let [ten, x, y, z] = address.octets();
    let number = u32::from_be_bytes([0, x, y, z]);
    (ten == 10)
        .then(|| number.checked_sub(1).map(HostId))
        .flatten()
}

fn v4_of(host: HostId) -> Ipv4Addr {
    match address_of(host) {
        IpAddr::V4(v4) => v4,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// A host's own address on the Ethernet.
fn mac_of(host: HostId) -> Mac {
    let [a, b, c, d] = host.0.to_be_bytes();
    if is_group(host) {
        // RFC 1112: the lower 23 bits.
        return Mac([0x01, 0x00, 0x5e, b & 0x7f, c, d]);
    }
    Mac([0x02, 0x48, a, b, c, d])
}

/// Writes the whole frame without its check sequence; returns its length.
pub(crate) fn encode(out: &mut [u8], envelope: &Envelope, packet: &[u8]) -> usize {
    let at = headers(out, envelope, ROCE_V2_PORT, packet.len());
    out[at..at + packet.len()].copy_from_slice(packet);
    at + packet.len()
}

/// Writes the headers before so many bytes of a datagram; returns their length.
#[inline]
fn headers(out: &mut [u8], envelope: &Envelope, dst_port: u16, len: usize) -> usize {
    let vlan = |pcp| VlanTag {
        tpid: EtherType::VLAN,
        pcp,
        drop_eligible: false,
        vid: 1,
    };
    let ethernet = Ethernet {
        dst: mac_of(envelope.dst),
        src: mac_of(envelope.src),
        tags: [envelope.pcp.map(vlan), None],
        ethertype: EtherType::IPV4,
    };
    let mut at = ethernet.emit(out);
    let udp_len = (Udp::LEN + len) as u16;
    let mut ip = Ipv4 {
        tos: envelope.tos,
        total_len: Ipv4::LEN as u16 + udp_len,
        ident: 0,
        flags_and_offset: Ipv4::DF,
        ttl: envelope.ttl,
        protocol: 17,
        checksum: 0,
        src: v4_of(envelope.src),
        dst: v4_of(envelope.dst),
    };
    ip.checksum = ip.computed_checksum();
    let udp = Udp {
        src_port: envelope.source_port,
        dst_port,
        len: udp_len,
        checksum: 0,
    };
    for part in [&ip.emit()[..], &udp.emit()[..]] {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    at
}

/// Bytes that [`flow_headers`] writes at most: with a tag, and the numbers of flow and packet.
pub(crate) const FLOW_HEADERS_LEN: usize = 14 + 4 + Ipv4::LEN + Udp::LEN + 8;

/// The port that discards whatever comes.
const DISCARD_PORT: u16 = 9;

/// Writes what a frame of a plain flow would begin with, if it were made of bytes; returns its length.
pub(crate) fn flow_headers(
    out: &mut [u8; FLOW_HEADERS_LEN],
    frame: &Frame,
    numbers: (u32, u32),
    qos: &Qos,
) -> usize {
    let envelope = Envelope {
        src: frame.src,
        dst: frame.dst,
        source_port: 0xc000 | numbers.0 as u16,
        tos: frame.tos,
        ttl: frame.ttl,
        pcp: (qos.tag_len() > 0).then_some(frame.priority),
    };
    let around = ETHERNET_OVERHEAD + qos.tag_len() + IP_UDP_LEN;
    let len = frame.len.saturating_sub(around) as usize;
    let at = headers(out, &envelope, DISCARD_PORT, len);
    for (place, number) in out[at..].chunks_exact_mut(4).zip(<[u32; 2]>::from(numbers)) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    at + 8
}

/// Reads a frame as a host does: `None` if it is not a datagram to the RoCE port, or its IP header is
/// damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Envelope, &[u8])> {
    let (ethernet, rest) = Ethernet::parse(bytes).ok()?;
    let (ip, rest) = Ipv4::parse(rest).ok()?;
    let (udp, packet) = Udp::parse(rest).ok()?;
    let is_roce = ethernet.ethertype == EtherType::IPV4
        && ip.protocol == 17
        && udp.dst_port == ROCE_V2_PORT
        && ip.checksum == ip.computed_checksum();
    let envelope = Envelope {
        src: host_of(ip.src)?,
        dst: host_of(ip.dst)?,
        source_port: udp.src_port,
        tos: ip.tos,
        ttl: ip.ttl,
        pcp: ethernet.tags[0].map(|tag| tag.pcp),
    };
    is_roce.then_some((envelope, packet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patched_header_has_a_right_checksum() {
        let Some(src) = "10.0.0.1".parse().ok() else {
            panic!("an address")
        };
        let mut ip = Ipv4 {
            tos: 0x6a,
            total_len: 1084,
            ident: 0,
            flags_and_offset: Ipv4::DF,
            ttl: 64,
            protocol: 17,
            checksum: 0,
            src,
            dst: Ipv4Addr::new(10, 0, 3, 255),
        };
        ip.checksum = ip.computed_checksum();
        for (tos, ttl) in [(0x6b, 63), (0x6a, 64), (0, 1), (255, 255)] {
            let mut bytes = [ip.emit().to_vec(), vec![0; 10]].concat();
            patch_ipv4(&mut bytes, tos, ttl);
            let Ok((read, _)) = Ipv4::parse(&[bytes, vec![0; 1100]].concat()) else {
                panic!("still a header")
            };
            assert_eq!((read.tos, read.ttl), (tos, ttl));
            assert_eq!(read.checksum, read.computed_checksum());
        }
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        for pcp in [None, Some(3)] {
            let envelope = Envelope {
                src: HostId(2),
                dst: HostId(70_000),
                source_port: 0xc123,
                tos: 0x6a,
                ttl: 64,
                pcp,
            };
            let mut bytes = [0; 128];
            let len = encode(&mut bytes, &envelope, b"a packet");
            assert_eq!(decode(&bytes[..len]), Some((envelope, &b"a packet"[..])));
            let ip = IP_OFFSET + if pcp.is_some() { 4 } else { 0 };
            patch_ipv4(&mut bytes[ip..], 0x6b, 61);
            let patched = Envelope {
                tos: 0x6b,
                ttl: 61,
                ..envelope
            };
            assert_eq!(decode(&bytes[..len]).map(|d| d.0), Some(patched));
            // A flipped bit in the IP header, which no ICRC need see.
            bytes[ip + 8] ^= 4;
            assert_eq!(decode(&bytes[..len]), None);
        }
        assert_eq!(decode(&[0; 60]), None);
    }

    #[test]
    fn hosts_have_addresses_of_their_own() {
        assert_eq!(address_of(HostId(0)).to_string(), "10.0.0.1");
        assert_eq!(address_of(HostId(1023)).to_string(), "10.0.4.0");
        assert_ne!(
            flow_hash(HostId(0), HostId(1), 0xc000),
            flow_hash(HostId(0), HostId(1), 0xc001)
        );
    }
}
