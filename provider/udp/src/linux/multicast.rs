//! Multicast: sockets that receive what is sent to a group, and sending to groups.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use libc::{IPPROTO_IP, IPPROTO_IPV6, c_int};
use rustix::net::sockopt;

use super::{UdpSocket, sys};
use crate::UdpConfig;

impl UdpSocket {
    /// Joins a group on the interface that has the address `local` (over IPv6: that has
    /// the number `interface`), and binds a socket to the group's own address: it receives
    /// what is sent to the group on that interface, and nothing else.
    ///
    /// Any number of sockets, of any process, may be bound to one group. Each receives a
    /// copy.
    ///
    /// # Errors
    /// What the system says, for example when the interface does not do multicast.
    pub fn bind_group(
        group: SocketAddr,
        local: IpAddr,
        interface: u32,
        config: &UdpConfig,
    ) -> io::Result<UdpSocket> {
        let at = match group {
            // A group of the local link is one only together with the interface.
            SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, interface).into(),
            SocketAddr::V4(_) => group,
        };
        let socket = UdpSocket::bind_as(at, config, true)?;
        let fd = socket.as_fd();
        match (group.ip(), local) {
            (IpAddr::V4(group), IpAddr::V4(local)) => {
                // Only groups that this very socket has joined.
                sys::set_option(fd, IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)?;
                // The address suffices, also where it is one of many that the interface has
                // without listing them (127.0.0.0/8).
                sockopt::set_ip_add_membership(fd, &group, &local)?;
            }
            (IpAddr::V6(group), _) => {
                sys::set_option(fd, IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0)?;
                sockopt::set_ipv6_add_membership(fd, &group, interface)?;
            }
            (IpAddr::V4(_), IpAddr::V6(_)) => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(socket)
    }

    /// Sends datagrams to groups through the interface with this number (0: the
    /// system chooses; over IPv4 always the one that has the socket's address), and lets
    /// them pass so many routers. Members on this host get copies.
    ///
    /// # Errors
    /// What the system says.
    pub fn send_to_groups(&self, interface: u32, hops: u8) -> io::Result<()> {
        let fd = self.as_fd();
        let hops = c_int::from(hops);
        match self.local_addr() {
            // The source address names the interface.
            SocketAddr::V4(_) => sys::set_option(fd, IPPROTO_IP, libc::IP_MULTICAST_TTL, hops),
            SocketAddr::V6(_) => {
                let interface = interface.cast_signed();
                sys::set_option(fd, IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, interface)?;
                sys::set_option(fd, IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, hops)
            }
        }
    }
}
