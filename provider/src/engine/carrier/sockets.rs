//! The UDP sockets of a context: one for each of its addresses.

use core::net::{IpAddr, SocketAddr};
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, ErrorKind};
use urxe_udp::{Interest, SocketSet, UdpConfig, UdpSocket, WAIT_MAX};

/// One address.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) addr: IpAddr,
    pub(crate) socket: UdpSocket,
    /// QPs that are connected through this address. Without any, the socket is not watched.
    users: AtomicU32,
}

impl Port {
    pub(crate) fn new(addr: IpAddr, socket: UdpSocket, users: u32) -> Port {
        Port {
            addr,
            socket,
            users: AtomicU32::new(users),
        }
    }
}

/// Where a QP's packets arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListensAt {
    Nowhere,
    /// The address that it is connected through.
    Address(IpAddr),
    /// Every address: datagrams come from anywhere to anywhere.
    Everywhere,
}

impl ListensAt {
    fn includes(self, addr: IpAddr) -> bool {
        match self {
            ListensAt::Nowhere => false,
            ListensAt::Address(only) => only == addr,
            ListensAt::Everywhere => true,
        }
    }
}

/// The sockets of multicast groups, to wait for; the engine's lock guards the sockets
/// themselves.
#[derive(Debug, Default)]
pub(crate) struct GroupSockets {
    set: OnceLock<SocketSet>,
    count: AtomicU32,
}

impl GroupSockets {
    pub(crate) fn add(&self, socket: &UdpSocket) -> io::Result<()> {
        let set = match self.set.get() {
            Some(set) => set,
            None => {
                let new = SocketSet::new()?;
                self.set.get_or_init(|| new)
            }
        };
        set.add(socket)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn remove(&self, socket: &UdpSocket) {
        if let Some(set) = self.set.get()
            && set.remove(socket).is_ok()
        {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What to wait for, if there are any.
    pub(crate) fn interest(&self) -> Option<Interest<'_>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(Interest::readable(self.set.get()?.as_fd()))
    }
}

/// All addresses, in the order of the GID table.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// One for each address; none on a custom `Network` (for example the simulator).
    ports: Box<[Port]>,
    addrs: Box<[IpAddr]>,
    /// Others have sockets on the same addresses: what is theirs may come to ours, even
    /// while no QP of ours uses an address.
    pub(crate) is_shared: bool,
    pub(crate) groups: GroupSockets,
    /// The UDP port of all of them, and of the peers'.
    pub(crate) port: u16,
    /// How they were opened.
    pub(crate) config: UdpConfig,
}

/// Which sockets to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// Those that QPs use.
    Active,
    /// Those, too: for a thread that polls and looks again in a moment.
    Polled,
    /// Where addresses are shared, those that no QP uses, too.
    All,
}

impl Sockets {
    /// Most addresses: four descriptors are waited for beside them, and one for groups.
    pub(crate) const MAX: usize = WAIT_MAX - 5;

    /// Takes the port of every address.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if another program has one, [`ErrorKind::NoAddress`] if the
    /// host does not have it, or whatever the system says.
    pub(crate) fn bind(addrs: &[IpAddr], port: u16, config: &UdpConfig) -> Result<Sockets, Error> {
        let ports = addrs.iter().map(|&addr| {
            let socket = UdpSocket::bind(SocketAddr::new(addr, port), config);
            Ok(Port::new(
                addr,
                socket.map_err(|error| explain(addr, error))?,
                0,
            ))
        });
        Ok(Sockets {
            ports: ports.collect::<Result<_, Error>>()?,
            ..Sockets::none(addrs, port, config.clone())
        })
    }

    /// The sockets of a context that shares its addresses.
    pub(crate) fn shared(
        addrs: &[IpAddr],
        port: u16,
        sockets: Vec<UdpSocket>,
        config: UdpConfig,
    ) -> Sockets {
        let ports = addrs.iter().zip(sockets);
        Sockets {
            ports: ports
                .map(|(&addr, socket)| Port::new(addr, socket, 0))
                .collect(),
            is_shared: true,
            ..Sockets::none(addrs, port, config)
        }
    }

    /// The addresses of a context on a custom `Network`.
    pub(crate) fn none(addrs: &[IpAddr], port: u16, config: UdpConfig) -> Sockets {
        Sockets {
            ports: Box::default(),
            addrs: addrs.into(),
            is_shared: false,
            groups: GroupSockets::default(),
            port,
            config,
        }
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &UdpSocket> + Clone {
        self.ports.iter().map(|port| &port.socket)
    }

    #[inline]
    pub(crate) fn which(&self, which: Which) -> impl Iterator<Item = &Port> {
        let all = which == Which::All && self.is_shared;
        self.ports
            .iter()
            .filter(move |port| all || port.users.load(Ordering::Relaxed) > 0)
    }

    pub(crate) fn addrs(&self) -> impl Iterator<Item = IpAddr> {
        self.addrs.iter().copied()
    }

    /// The socket, if there is just one.
    #[inline]
    pub(crate) fn only(&self) -> Option<&UdpSocket> {
        match &*self.ports {
            [only] => Some(&only.socket),
            _ => None,
        }
    }

    /// The socket of an address, where there are sockets. QPs have no other addresses than these.
    pub(crate) fn of(&self, addr: IpAddr) -> Option<&UdpSocket> {
        let port = self.ports.iter().find(|port| port.addr == addr);
        port.or(self.ports.first()).map(|port| &port.socket)
    }

    /// Packets in a run that all sockets take.
    pub(crate) fn run_segments_max(&self) -> usize {
        self.ports
            .iter()
            .map(|port| port.socket.caps().gso_segments_max())
            .min()
            .unwrap_or(1)
    }

    /// Bytes that the smallest receive buffer holds, as the kernel counts them.
    pub(crate) fn recv_buffer(&self) -> usize {
        self.ports
            .iter()
            .map(|port| port.socket.caps().recv_buffer())
            .min()
            .unwrap_or(0)
    }

    /// True if every address is in use by a QP.
    pub(crate) fn all_active(&self) -> bool {
        self.ports
            .iter()
            .all(|port| port.users.load(Ordering::Relaxed) > 0)
    }

    /// A QP begins to listen. Returns true if it is the first somewhere.
    pub(crate) fn add_user(&self, at: ListensAt) -> bool {
        let mut is_first = false;
        for port in self.ports.iter().filter(|port| at.includes(port.addr)) {
            is_first |= port.users.fetch_add(1, Ordering::Relaxed) == 0;
        }
        is_first
    }

    /// A QP ends to listen.
    pub(crate) fn remove_user(&self, at: ListensAt) {
        for port in self.ports.iter().filter(|port| at.includes(port.addr)) {
            port.users.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, addr: IpAddr) -> bool {
        self.addrs.contains(&addr)
    }

    /// Puts the sockets, and those of groups, into a list to wait for; returns the new
    /// length.
    pub(crate) fn interests<'a>(
        &'a self,
        writable: bool,
        list: &mut [Interest<'a>; WAIT_MAX],
        mut len: usize,
    ) -> usize {
        for port in self.which(Which::All) {
            let fd = port.socket.as_fd();
            list[len] = if writable {
                Interest::both(fd)
            } else {
                Interest::readable(fd)
            };
            len += 1;
        }
        if let Some(groups) = self.groups.interest() {
            list[len] = groups;
            len += 1;
        }
        len
    }

    /// Datagrams that the kernel threw away because they were not fetched in time.
    pub(crate) fn receive_drops(&self) -> u64 {
        self.ports
            .iter()
            .map(|p| u64::from(p.socket.receive_drops().unwrap_or(0)))
            .sum()
    }
}

pub(crate) fn explain(addr: IpAddr, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => ErrorKind::AddrInUse(addr).into(),
        io::ErrorKind::AddrNotAvailable => ErrorKind::NoAddress(addr).into(),
        _ => Error::io("opening the UDP socket")(error),
    }
}
