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

use super::objects::REPORT_TOS;
use super::post::QpShared;
use super::shard_state::ShardState;
use super::sockets::Port;
use super::{Engine, ROCE_PORT};
use crate::device;
use crate::error::{Error, ErrorKind};

/// How far datagrams to groups travel. A UDP socket has one such limit for all groups, so
/// that of an address handle is not used for them; this is what rdma_cm takes.
const GROUP_HOP_LIMIT: u8 = 64;

/// Where there are no sockets.
const NO_GROUPS: ErrorKind =
    ErrorKind::Unsupported("a network that is no sockets has no multicast groups");

impl Engine {
    /// Makes the sockets ready for datagrams on this path.
    pub(crate) fn prepare_path(&self, path: &AddressVector) -> Result<(), Error> {
        self.check_process()?;
        self.check_path(path)?;
        if path.remote.is_multicast() {
            let socket = self.sockets.of(path.local).ok_or(NO_GROUPS)?;
            socket
                .send_to_groups(interface_of(path.local), GROUP_HOP_LIMIT)
                .map_err(Error::io("preparing the socket for multicast"))?;
        }
        Ok(())
    }

    pub(crate) fn attach_mcast(&self, qp: &QpShared, group: IpAddr) -> Result<(), Error> {
        let mut state = self.enter()?;
        if !state.shard.attach_mcast(qp.index, group)? {
            return Ok(());
        }
        let joined = self.join(group).and_then(|port| {
            let added = self.sockets.groups.add(&port.socket);
            added.map_err(Error::io("watching the group's socket"))?;
            Ok(port)
        });
        match joined {
            Ok(port) => {
                state.groups.push(port);
                drop(state);
                // Whoever sleeps must sleep on one more socket.
                self.progress.activated.notify();
                self.progress.kick();
                Ok(())
            }
            Err(error) => {
                // It was attached just now.
                let _ = state.shard.detach_mcast(qp.index, group);
                Err(error)
            }
        }
    }

    pub(crate) fn detach_mcast(&self, qp: &QpShared, group: IpAddr) -> Result<(), Error> {
        let mut state = self.enter()?;
        if state.shard.detach_mcast(qp.index, group)? {
            self.leave_groups(&mut state);
        }
        Ok(())
    }

    /// Closes the sockets of groups that nobody is attached to any more.
    pub(crate) fn leave_groups(&self, state: &mut ShardState) {
        let ShardState { groups, shard, .. } = state;
        groups.retain(|port| {
            let stays = shard.has_members(port.addr);
            if !stays {
                self.sockets.groups.remove(&port.socket);
            }
            stays
        });
    }

    fn join(&self, group: IpAddr) -> Result<Port, Error> {
        if self.network.is_some() {
            return Err(NO_GROUPS.into());
        }
        let local = self
            .sockets
            .addrs()
            .find(|addr| addr.is_ipv4() == group.is_ipv4())
            .ok_or(ErrorKind::NoAddressForGroup(group))?;
        let at = SocketAddr::new(group, ROCE_PORT);
        let socket = UdpSocket::bind_group(at, local, interface_of(local), &self.sockets.config)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => ErrorKind::AddrInUse(group).into(),
                _ => Error::io("joining the multicast group")(error),
            })?;
        socket.report_tos().map_err(Error::io(REPORT_TOS))?;
        Ok(Port::of_group(group, socket))
    }
}

/// The number of the interface that has an address; 0 leaves it to the system, which
/// finds it for IPv4 by the address itself.
fn interface_of(addr: IpAddr) -> u32 {
    device::find_by_address(addr).map_or(0, |device| device.index())
}
