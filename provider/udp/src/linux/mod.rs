//! The Linux backend: segmentation offload, batched system calls, control messages.

mod cmsg;
mod connected;
mod multicast;
mod probe;
mod recv;
mod send;
mod sys;
mod usual;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, SOL_SOCKET, SOL_UDP, c_int};
use rustix::net::sockopt;

pub use connected::ConnectedSocket;
pub(crate) use recv::RecvState;
use usual::UsualSize;

use crate::{Caps, SteeringProgram, UdpConfig};

/// Accept datagrams without UDP checksum over IPv6 (`linux/udp.h`; not in libc).
const UDP_NO_CHECK6_RX: c_int = 102;

/// A bound, unconnected, non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    local: SocketAddr,
    caps: Caps,
    /// Packets shall be joined from the first burst on.
    gro_wanted: AtomicBool,
    /// No datagram comes with anything to be told about it: receiving is simpler then.
    plain: AtomicBool,
    /// The address that everything received was sent to, if the socket has only one.
    only_ip: Option<IpAddr>,
    /// The traffic class that packets get without being told.
    default_tos: u8,
    usual_size: UsualSize,
}

impl UdpSocket {
    /// Binds a socket to `addr` (port 0: any free one) and probes what it can do.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another socket has the address and port;
    /// [`io::ErrorKind::AddrNotAvailable`] if the host does not have the address.
    pub fn bind(addr: SocketAddr, config: &UdpConfig) -> io::Result<UdpSocket> {
        UdpSocket::bind_as(addr, config, false)
    }

    fn bind_as(addr: SocketAddr, config: &UdpConfig, is_group: bool) -> io::Result<UdpSocket> {
        let ipv6 = addr.is_ipv6();
        let fd = sys::udp_socket(ipv6)?;
        set_ip_options(fd.as_fd(), ipv6, config)?;
        if is_group {
            // Others may bind the same group.
            sockopt::set_socket_reuseaddr(&fd, true)?;
        } else if config.reuse_port {
            sockopt::set_socket_reuseport(&fd, true)?;
        }
        let wildcard = addr.ip().is_unspecified();
        if wildcard {
            let (level, name) = if ipv6 {
                (IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
            } else {
                (IPPROTO_IP, libc::IP_PKTINFO)
            };
            sys::set_option(fd.as_fd(), level, name, 1)?;
        }
        rustix::net::bind(&fd, &addr)?;
        let local = sys::local_addr(fd.as_fd())?;
        let caps = probe_caps(fd.as_fd(), config)?;
        Ok(UdpSocket {
            gro_wanted: AtomicBool::new(caps.gro() && config.gro_on_demand),
            plain: AtomicBool::new(
                !wildcard && !config.recv_tos && (config.gro_on_demand || !caps.gro()),
            ),
            caps,
            fd,
            local,
            only_ip: (!wildcard).then_some(local.ip()),
            default_tos: config.tos,
            usual_size: UsualSize::default(),
        })
    }

    /// The capabilities of this socket.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The address and port it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Datagrams that the kernel has thrown away so far because the receive buffer was
    /// full.
    ///
    /// # Errors
    /// What the system says.
    pub fn receive_drops(&self) -> io::Result<u32> {
        /// `SK_MEMINFO_DROPS` of `linux/sock_diag.h`: the ninth and last word.
        const DROPS: usize = 8;
        let words = sys::option::<9>(self.as_fd(), SOL_SOCKET, libc::SO_MEMINFO)?;
        Ok(words[DROPS] as u32)
    }

    /// Reports the traffic class of received packets from now on, if that was not
    /// asked for when the socket was bound. It costs every lone packet a little.
    ///
    /// # Errors
    /// What the system says.
    pub fn report_tos(&self) -> io::Result<()> {
        self.plain.store(false, Relaxed);
        let (level, name) = match self.local {
            SocketAddr::V4(_) => (IPPROTO_IP, libc::IP_RECVTOS),
            SocketAddr::V6(_) => (IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
        };
        sys::set_option(self.fd.as_fd(), level, name, 1)
    }

    /// Attaches a program that chooses which socket of this port's group gets a datagram
    /// ([`UdpConfig::reuse_port`]); it replaces the one before, even that of another process.
    ///
    /// # Errors
    /// If the socket is in no group, or the kernel refuses the program.
    pub fn attach_steering(&self, program: &SteeringProgram) -> io::Result<()> {
        sys::attach_reuseport(self.as_fd(), &program.insns)
    }

    /// Takes the program away: the kernel spreads datagrams as it likes, which for a
    /// socket by itself costs less. No error if there is none, or if the kernel cannot.
    pub fn detach_steering(&self) {
        /// `SO_DETACH_REUSEPORT_BPF` (Linux 5.3; not in libc).
        const DETACH: c_int = 68;
        let _ = sys::set_option(self.as_fd(), SOL_SOCKET, DETACH, 0);
    }

    /// Makes the kernel join packets from now on, if that was put off
    /// ([`UdpConfig::gro_on_demand`]). Bursts do it by themselves; call it when shorter
    /// trains come again and again.
    ///
    /// Never undone: a train that is in the socket when joining is turned off would
    /// arrive without the size of its packets.
    #[inline]
    pub fn join_packets(&self) {
        if self.gro_wanted.load(Relaxed) {
            self.gro_wanted.store(false, Relaxed);
            self.plain.store(false, Relaxed);
            // It worked when it was probed; if not now, packets go on arriving singly.
            let _ = sys::set_option(self.fd.as_fd(), SOL_UDP, libc::UDP_GRO, 1);
        }
    }

    /// The socket, to wait on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Settings without which packets would be wrong: a failure is an error.
fn set_ip_options(fd: BorrowedFd<'_>, ipv6: bool, config: &UdpConfig) -> io::Result<()> {
    let set = |level, name, value| sys::set_option(fd, level, name, value);
    let tos = c_int::from(config.tos);
    if ipv6 {
        set(IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        // Never fragment: the protocols above have their own MTU.
        set(
            IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )?;
        set(IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
        // Soft-RoCE in the kernel sends UDP checksum 0 over IPv6; without this such
        // packets vanish without a trace.
        set(IPPROTO_UDP, UDP_NO_CHECK6_RX, 1)?;
        set(IPPROTO_IPV6, libc::IPV6_TCLASS, tos)?;
        set(
            IPPROTO_IPV6,
            libc::IPV6_RECVTCLASS,
            c_int::from(config.recv_tos),
        )
    } else {
        // PROBE: Don't Fragment is set and so, the socket being unconnected, the
        // Identification is 0; and a learned path MTU is left to the caller.
        set(IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
        set(IPPROTO_IP, libc::IP_TOS, tos)?;
        set(IPPROTO_IP, libc::IP_RECVTOS, c_int::from(config.recv_tos))
    }
}

/// Settings that only make it faster: a refusal lowers what the socket can do.
fn probe_caps(fd: BorrowedFd<'_>, config: &UdpConfig) -> io::Result<Caps> {
    let gso = config.gso.then(|| probe::gso_segments_max(fd)).flatten();
    let gro = config.gro && sys::set_option(fd, SOL_UDP, libc::UDP_GRO, 1).is_ok();
    if gro && config.gro_on_demand {
        sys::set_option(fd, SOL_UDP, libc::UDP_GRO, 0)?;
    }
    let buffer = |forced, plain, bytes: usize| {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // FORCE goes beyond the administrator's limit and needs CAP_NET_ADMIN.
        if sys::set_option(fd, SOL_SOCKET, forced, bytes).is_err() {
            sys::set_option(fd, SOL_SOCKET, plain, bytes)?;
        }
        let [granted] = sys::option(fd, SOL_SOCKET, plain)?;
        Ok::<_, io::Error>(usize::try_from(granted).unwrap_or(0))
    };
    let recv_buffer = buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.recv_buffer)?;
    let send_buffer = buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer)?;
    Ok(Caps::new(gso, gro, true, recv_buffer, send_buffer))
}
