//! ICRC: the fast way agrees with the definition over the same bytes; a hidden
//! Identification is found; and an Identification is never found without being right.

use urxe_wire::{IcrcPolicy, IcrcSeed, IcrcVerdict, PathHeader, icrc_of_l3};

/// Input: 2 bytes of IPv4 Identification, 36 of path, then a packet from BTH to ICRC.
pub fn target(data: &[u8]) {
    let Some((ident, rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let Some((path, packet)) = rest.split_first_chunk::<36>() else {
        return;
    };
    let ident = u16::from_be_bytes(*ident);
    let Some((covered, icrc)) = packet.split_last_chunk::<4>() else {
        return;
    };
    if covered.len() < 12 || covered.len() > 9000 {
        return;
    }
    for v6 in [false, true] {
        let ident = if v6 { 0 } else { ident };
        let (header, mut l3) = ip_packet(v6, ident, path, packet);
        let seed = IcrcSeed::new(&header);
        let right = seed.compute(ident, covered);
        assert_eq!(icrc_of_l3(&l3), Ok(right), "fast and slow disagree");

        let as_received = seed.verify(ident, packet);
        if right == u32::from_le_bytes(*icrc) {
            assert_eq!(as_received, IcrcVerdict::Ok { ident });
        }
        if let IcrcVerdict::Ok { ident } = as_received {
            assert_eq!(seed.compute(ident, covered), u32::from_le_bytes(*icrc));
        } else {
            assert_eq!(
                seed.verify_with(IcrcPolicy::Exact, ident, packet),
                IcrcVerdict::Bad
            );
        }

        let end = l3.len() - 4;
        l3[end..].copy_from_slice(&right.to_le_bytes());
        let repaired = &l3[l3.len() - packet.len()..];
        for hint in [0, ident, !ident] {
            assert_eq!(seed.verify(hint, repaired), IcrcVerdict::Ok { ident });
        }
    }
}

/// An IP packet with its headers, as it would be captured.
fn ip_packet(v6: bool, ident: u16, path: &[u8; 36], packet: &[u8]) -> (PathHeader, Vec<u8>) {
    let mut octets = [0; 32];
    octets.copy_from_slice(&path[..32]);
    let (sport, dport) = (
        u16::from_be_bytes([path[32], path[33]]),
        u16::from_be_bytes([path[34], path[35]]),
    );
    let udp_len = (packet.len() + 8) as u16;
    let mut l3 = Vec::new();
    let header = if v6 {
        let (mut src, mut dst) = ([0; 16], [0; 16]);
        src.copy_from_slice(&octets[..16]);
        dst.copy_from_slice(&octets[16..]);
        // Traffic class, flow label and hop limit do not count.
        l3.extend([0x60 | octets[0] >> 4, octets[1], octets[2], octets[3]]);
        l3.extend(udp_len.to_be_bytes());
        l3.extend([17, octets[4]]);
        l3.extend(octets);
        PathHeader::V6 {
            src,
            dst,
            sport,
            dport,
        }
    } else {
        let src = [octets[0], octets[1], octets[2], octets[3]];
        let dst = [octets[4], octets[5], octets[6], octets[7]];
        // TOS, TTL and checksum do not count.
        l3.extend([0x45, octets[8]]);
        l3.extend((udp_len + 20).to_be_bytes());
        l3.extend(ident.to_be_bytes());
        l3.extend([0x40, 0, octets[9], 17, octets[10], octets[11]]);
        l3.extend(src);
        l3.extend(dst);
        PathHeader::V4 {
            src,
            dst,
            sport,
            dport,
        }
    };
    l3.extend(sport.to_be_bytes());
    l3.extend(dport.to_be_bytes());
    l3.extend(udp_len.to_be_bytes());
    // Nor does the UDP checksum.
    l3.extend([octets[12], octets[13]]);
    l3.extend(packet);
    (header, l3)
}
