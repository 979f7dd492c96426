//! The path of a received packet: addresses and ports.

use core::net::IpAddr;

use urxe_wire::{Gid, IcrcSeed, PathHeader, ROCE_V2_PORT};

/// Where a packet came from, computed once for all packets of a received train.
#[derive(Debug)]
pub struct RxPath {
    /// The sender's address.
    pub source: IpAddr,
    /// The address that it was sent to.
    pub local: IpAddr,
    /// The traffic class of its IP header.
    pub tos: u8,
    /// What the ICRC of every packet on this path has in common.
    pub seed: IcrcSeed,
    /// The UDP port that it was sent from; 4791 if it came through memory.
    pub source_port: u16,
}

impl RxPath {
    /// The path of a datagram from `source`:`source_port` to `local`:4791.
    pub fn new(source: IpAddr, source_port: u16, local: IpAddr, tos: u8) -> RxPath {
        RxPath {
            source,
            local,
            tos,
            seed: icrc_seed(source, source_port, local),
            source_port,
        }
    }

    /// The same for packets that came through memory, without an ICRC.
    pub fn in_memory(source: IpAddr, local: IpAddr, tos: u8) -> RxPath {
        RxPath {
            source,
            local,
            tos,
            seed: IcrcSeed::IN_MEMORY,
            source_port: ROCE_V2_PORT,
        }
    }

    /// The two ECN bits of its IP header.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }
}

/// What every packet from `source`:`source_port` to `dest`:4791 has in common, as the
/// ICRC sees it.
pub(crate) fn icrc_seed(source: IpAddr, source_port: u16, dest: IpAddr) -> IcrcSeed {
    let (sport, dport) = (source_port, ROCE_V2_PORT);
    let path = match (source, dest) {
        (IpAddr::V4(s), IpAddr::V4(d)) => PathHeader::V4 {
            src: s.octets(),
            dst: d.octets(),
            sport,
            dport,
        },
        (s, d) => PathHeader::V6 {
            src: Gid::from(s).0,
            dst: Gid::from(d).0,
            sport,
            dport,
        },
    };
    IcrcSeed::new(&path)
}
