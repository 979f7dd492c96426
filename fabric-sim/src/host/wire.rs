//! Addresses of hosts, and the headers around a packet.

use std::net::{IpAddr, Ipv4Addr};

use crate::engine::mix64;
use crate::topology::HostId;

/// Where the IP header begins in an untagged frame.
pub(crate) const IP_OFFSET: usize = 14;

/// The IP address of a host: 10.x.y.z, where x.y.z is its number plus 1.
pub fn address_of(host: HostId) -> IpAddr {
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

#[cfg(test)]
mod tests {
    use super::*;
    use urxe_wire::Ipv4;

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
    fn hosts_have_addresses_of_their_own() {
        assert_eq!(address_of(HostId(0)).to_string(), "10.0.0.1");
        assert_eq!(address_of(HostId(1023)).to_string(), "10.0.4.0");
        assert_ne!(
            flow_hash(HostId(0), HostId(1), 0xc000),
            flow_hash(HostId(0), HostId(1), 0xc001)
        );
    }
}
