//! What is at which index of a listed device's GID table.

use core::net::Ipv6Addr;

use urxe_wire::Gid;

/// The protocol that an entry of a GID table is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[doc(alias = "ibv_gid_type")]
pub enum RoceVersion {
    /// RoCE v1: on Ethernet itself. Adapters have it; here such entries are there to be seen.
    V1,
    /// RoCE v2: over UDP.
    V2,
}

/// An entry of a listed device's GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct GidPlace {
    /// The protocol that it is for.
    pub version: RoceVersion,
    /// Which of the device's addresses it is; `None`: the link-local one, which adapters have and urxe does not send from.
    pub address: Option<usize>,
}

impl GidPlace {
    pub(crate) fn v2(address: Option<usize>) -> GidPlace {
        let version = RoceVersion::V2;
        GidPlace { version, address }
    }

    /// The address that a QP or an address handle can have by this entry, if it can.
    pub fn source(&self) -> Option<usize> {
        self.address.filter(|_| self.version == RoceVersion::V2)
    }
}

/// The link-local address of an interface, as adapters make it: of the Ethernet address (EUI-64).
pub(crate) fn link_local(mac: [u8; 6]) -> Gid {
    let [a, b, c, d, e, f] = mac;
    let interface = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&[0xfe, 0x80]);
    bytes[8..].copy_from_slice(&interface);
    Gid::from(core::net::IpAddr::V6(Ipv6Addr::from(bytes)))
}

#[cfg(test)]
#[test]
fn a_link_local_address_has_the_ethernet_address_in_it() {
    let gid = link_local([0x02, 0x42, 0xac, 0x11, 0x00, 0x02]);
    let wanted: Ipv6Addr = "fe80::42:acff:fe11:2".parse().expect("an address");
    assert_eq!(gid.0, wanted.octets());
}
