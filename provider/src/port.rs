//! A device's one port.

use core::net::IpAddr;

use urxe_core::qp::attr::Mtu;

use crate::device::find_by_address;
use crate::port_speed::PortSpeed;

/// State of a port, with the numbers of `enum ibv_port_state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_port_state")]
pub enum PortState {
    /// The interface is down, or has no carrier.
    Down = 1,
    /// The interface is up and has a carrier.
    Active = 4,
}

/// What is known of a port, as [`crate::Context::query_port`] returns it.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// let context = urxe::Context::open("127.81.0.3".parse().unwrap())?;
/// let port = context.query_port(1)?;
/// assert_eq!(port.state, urxe::PortState::Active);
/// assert_eq!(port.active_mtu, urxe::Mtu::Mtu4096);
/// assert_eq!(port.speed.mbps(), 100_000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[doc(alias = "ibv_port_attr")]
pub struct PortAttr {
    /// Up or down.
    pub state: PortState,
    /// The largest MTU that there is.
    pub max_mtu: Mtu,
    /// The largest that the interface can carry. Both ends of a connection use the same.
    pub active_mtu: Mtu,
    /// How fast it says that it is.
    pub speed: PortSpeed,
    /// Entries in the GID table: the context's addresses.
    pub gid_tbl_len: u32,
    /// Entries in the P_Key table.
    pub pkey_tbl_len: u16,
    /// Bytes in a message.
    pub max_msg_sz: u64,
}

/// Smallest MTU of Ethernet interfaces as they come: what is assumed of an interface that cannot be asked.
const MTU_DEFAULT: u32 = 1500;
/// MTU of Linux's loopback interface.
const MTU_LOOPBACK: u32 = 65_536;

/// The MTU of the interface that has an address, in bytes.
pub(crate) fn interface_mtu(addr: IpAddr) -> u32 {
    match find_by_address(addr) {
        Some(device) => device.mtu(),
        // All of 127/8 is the loopback interface's, though it lists only one of them.
        None if addr.is_loopback() => MTU_LOOPBACK,
        None => MTU_DEFAULT,
    }
}
