//! The path of a received packet: addresses and ports.

use core::net::IpAddr;

use urxe_wire::IcrcSeed;

use crate::qp::modify::icrc_seed;

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
}

impl RxPath {
    /// The path of a datagram from `source`:`source_port` to `local`:4791.
    pub fn new(source: IpAddr, source_port: u16, local: IpAddr, tos: u8) -> RxPath {
        RxPath {
            source,
            local,
            tos,
            seed: icrc_seed(source, source_port, local),
        }
    }

    /// The two ECN bits of its IP header.
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }
}
