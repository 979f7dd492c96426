//! Watches whether the interface is up and has the context's addresses: the events when that
//! changes. The kernel tells of changes over a netlink socket, which needs no rights; what
//! changed is then looked up.

use core::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pnet_datalink::{MacAddr, NetworkInterface};

use crate::async_event::AsyncEvent;
use crate::lock::lock;

const PORT: u8 = 1;

/// What is known of the port.
#[derive(Debug, Default)]
pub(crate) struct PortWatch {
    /// None where there is no netlink: then nothing is ever noticed.
    socket: Option<OwnedFd>,
    /// Name of the interface; `None` if it could not be told from the address.
    interface: Option<String>,
    /// The system's number of the interface, which it keeps when it gets another name.
    index: Option<u32>,
    /// The interface as it was seen last.
    link: Mutex<Link>,
    addrs: Box<[IpAddr]>,
    is_up: AtomicBool,
    downs: AtomicU64,
    /// Addresses that the interface does not have any more, one bit for each.
    lost: AtomicU64,
    /// Those that it had when the context was opened.
    listed: u64,
}

/// Whether there is the interface still, and under which address on its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Link {
    #[default]
    Unknown,
    There(Option<MacAddr>),
    Removed,
}

/// A change that concerns identifiers of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkChange {
    /// It has another address on the link.
    Moved,
    Removed,
}

/// What a look at the interfaces shows.
#[derive(Debug)]
struct Seen {
    is_up: bool,
    link: Link,
    present: u64,
}

impl PortWatch {
    pub(crate) fn new(addrs: impl Iterator<Item = IpAddr>) -> PortWatch {
        let addrs: Box<[IpAddr]> = addrs.collect();
        // First the socket: no change after the look is missed.
        let socket = open_netlink();
        let interfaces = pnet_datalink::interfaces();
        let interface = addrs.first().and_then(|addr| {
            let mut all = interfaces.iter();
            let of_addr = all.find(|interface| has(interface, *addr));
            of_addr.map(|interface| (interface.name.clone(), interface.index))
        });
        let (interface, index) = interface.unzip();
        let mut watch = PortWatch {
            socket,
            interface,
            index,
            addrs,
            ..PortWatch::default()
        };
        let seen = watch.look(&interfaces);
        watch.listed = seen.present;
        watch.is_up = AtomicBool::new(seen.is_up);
        watch.link = Mutex::new(seen.link);
        watch
    }

    /// The port of a context on a custom `Network`, or one that is watched elsewhere: up.
    pub(crate) fn always_up() -> PortWatch {
        PortWatch {
            is_up: AtomicBool::new(true),
            ..PortWatch::default()
        }
    }

    /// True if the interface is up and has a carrier.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    pub(crate) fn downs(&self) -> u64 {
        self.downs.load(Ordering::Relaxed)
    }

    /// True if the interface had the address with this index and has it no more.
    pub(crate) fn is_lost(&self, index: usize) -> bool {
        index < 64 && self.lost.load(Ordering::Relaxed) >> index & 1 != 0
    }

    /// Readable when something about the host's interfaces changed.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Something changed: finds out what, and tells it; returns what identifiers are to hear.
    pub(crate) fn on_readable(&self, mut tell: impl FnMut(AsyncEvent)) -> Option<LinkChange> {
        let socket = self.socket.as_ref()?;
        let mut buffer = [0u8; 4096];
        // What the messages say is not looked at: some may have been lost, and several
        // may be about one change. ENOBUFS tells of lost ones and does not end the loop.
        while !matches!(
            rustix::net::recv(socket, &mut buffer[..], rustix::net::RecvFlags::DONTWAIT),
            Err(rustix::io::Errno::AGAIN)
        ) {}
        let seen = self.look(&pnet_datalink::interfaces());
        if self.is_up.swap(seen.is_up, Ordering::Relaxed) != seen.is_up {
            self.downs
                .fetch_add(u64::from(!seen.is_up), Ordering::Relaxed);
            tell(if seen.is_up {
                AsyncEvent::PortActive(PORT)
            } else {
                AsyncEvent::PortErr(PORT)
            });
        }
        let lost = self.listed & !seen.present;
        if self.lost.swap(lost, Ordering::Relaxed) != lost {
            tell(AsyncEvent::GidChange(PORT));
        }
        if seen.link == Link::Unknown {
            return None;
        }
        let before = std::mem::replace(&mut *lock(&self.link), seen.link);
        match (before, seen.link) {
            (Link::There(_), Link::Removed) => Some(LinkChange::Removed),
            (Link::There(old), Link::There(new)) if old != new => Some(LinkChange::Moved),
            _ => None,
        }
    }

    fn look(&self, interfaces: &[NetworkInterface]) -> Seen {
        let mine = |interface: &&NetworkInterface| match &self.interface {
            Some(name) => interface.name == *name,
            None => interface.is_loopback() && self.is_on_loopback(),
        };
        let is_up = match interfaces.iter().find(mine) {
            Some(interface) => interface.is_up() && interface.is_running(),
            // Gone; or an address that no interface lists, of which nothing is known.
            None => self.interface.is_none() && !self.is_on_loopback(),
        };
        let bits = self.addrs.iter().take(64).enumerate();
        let present = bits
            .filter(|(_, addr)| interfaces.iter().any(|interface| has(interface, **addr)))
            .map(|(bit, _)| 1 << bit)
            .sum();
        let link = self.link_in(interfaces);
        Seen {
            is_up,
            link,
            present,
        }
    }

    fn link_in(&self, interfaces: &[NetworkInterface]) -> Link {
        // An empty list is a failure: each host has one interface at least.
        let (Some(index), false) = (self.index, interfaces.is_empty()) else {
            return Link::Unknown;
        };
        let mut all = interfaces.iter();
        let found = all.find(|interface| interface.index == index);
        found.map_or(Link::Removed, |interface| Link::There(interface.mac))
    }

    fn is_on_loopback(&self) -> bool {
        self.addrs.first().is_some_and(IpAddr::is_loopback)
    }
}

fn has(interface: &NetworkInterface, addr: IpAddr) -> bool {
    interface.ips.iter().any(|net| net.ip() == addr)
}

/// A socket that hears of links and addresses.
fn open_netlink() -> Option<OwnedFd> {
    use rustix::net::netlink::SocketAddrNetlink;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    /// RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR of `linux/rtnetlink.h`.
    const GROUPS: u32 = 1 | 0x10 | 0x100;
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        // NETLINK_ROUTE, which is 0.
        None,
    )
    .ok()?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, GROUPS)).ok()?;
    Some(socket)
}
