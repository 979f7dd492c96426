//! The host's membership in multicast groups: one socket for each group that a QP of the
//! context is attached to, bound to the group's address. The sockets at the context's
//! own addresses receive nothing of groups.
//!
//! Sockets of several contexts and processes may be bound to one group: each gets its
//! copy from the kernel.

use core::net::{IpAddr, SocketAddr};
use std::io;

use urxe_core::qp::attr::AddressVector;
use urxe_udp::UdpSocket;

use super::seam::NO_GROUPS;
use super::sockets::{Port, Sockets};
use crate::device;
use crate::engine::Engine;
use crate::engine::calls::post::QpShared;
use crate::engine::objects::REPORT_TOS;
use crate::error::{Error, ErrorKind};

/// How far datagrams to groups travel. A UDP socket has one such limit for all groups, so
/// that of an address handle is not used for them; this is what rdma_cm takes.
const GROUP_HOP_LIMIT: u8 = 64;

impl Engine {
    /// Makes the sockets ready for datagrams on this path.
    pub(crate) fn prepare_path(&self, path: &AddressVector) -> Result<(), Error> {
        self.check_process()?;
        self.check_path(path)?;
        if path.remote.is_multicast() {
            if let Some(network) = self.network() {
                return network.groups().map(drop).ok_or(NO_GROUPS.into());
            }
            let socket = self.sockets.of(path.local).ok_or(NO_GROUPS)?;
            socket
                .send_to_groups(interface_of(path.local), GROUP_HOP_LIMIT)
                .map_err(Error::io("preparing the socket for multicast"))?;
        } else {
            self.enter()?.expect(path.remote);
        }
        Ok(())
    }

    pub(crate) fn attach_mcast(&self, qp: &QpShared, group: IpAddr) -> Result<(), Error> {
        let mut state = self.enter()?;
        if !state.shard.attach_mcast(qp.index, group)? {
            return Ok(());
        }
        if let Err(error) = state.join(group) {
            // It was attached just now.
            let _ = state.shard.detach_mcast(qp.index, group);
            return Err(error);
        }
        drop(state);
        // A sleeping thread must sleep on one more socket.
        self.progress.activated.notify();
        self.progress.kick();
        Ok(())
    }

    pub(crate) fn detach_mcast(&self, qp: &QpShared, group: IpAddr) -> Result<(), Error> {
        let mut state = self.enter()?;
        if state.shard.detach_mcast(qp.index, group)? {
            state.leave_groups();
        }
        Ok(())
    }
}

impl Sockets {
    /// Opens a socket that hears a group, and has it waited for.
    pub(in crate::engine) fn join(&self, group: IpAddr) -> Result<Port, Error> {
        let local = self
            .addrs()
            .find(|addr| addr.is_ipv4() == group.is_ipv4())
            .ok_or(ErrorKind::NoAddressForGroup(group))?;
        let at = SocketAddr::new(group, self.port);
        let socket = UdpSocket::bind_group(at, local, interface_of(local), &self.config).map_err(
            |error| match error.kind() {
                io::ErrorKind::AddrInUse => ErrorKind::AddrInUse(group).into(),
                _ => Error::io("joining the multicast group")(error),
            },
        )?;
        socket.report_tos().map_err(Error::io(REPORT_TOS))?;
        let added = self.groups.add(&socket);
        added.map_err(Error::io("watching the group's socket"))?;
        Ok(Port::new(group, socket, 1))
    }
}

/// The number of the interface that has an address; 0 leaves it to the system, which
/// finds it for IPv4 by the address itself.
fn interface_of(addr: IpAddr) -> u32 {
    device::find_by_address(addr).map_or(0, |device| device.index)
}
