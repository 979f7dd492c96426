//! System calls that do not go through the C library: programs may have put functions of their own in place of its. Rustix
//! makes them itself; what it does not have is called by number.

use core::ffi::{c_int, c_long};
use core::net::{IpAddr, SocketAddr};
use core::ptr;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd, RawFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto};

use crate::cm::address::write;
use crate::errno::Errno;

/// `poll`, for so many milliseconds (for ever: negative).
pub(super) fn poll(fds: &mut [libc::pollfd], timeout_ms: i32) -> Result<usize, Errno> {
    let time = libc::timespec {
        tv_sec: i64::from(timeout_ms.max(0) / 1000),
        tv_nsec: i64::from(timeout_ms.max(0) % 1000) * 1_000_000,
    };
    let time = if timeout_ms < 0 {
        ptr::null()
    } else {
        &raw const time
    };
    let mask = ptr::null::<libc::sigset_t>();
    // SAFETY: a list with its length; a time or null; no mask.
    let found = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            time,
            mask,
            0_usize,
        )
    };
    usize::try_from(found).map_err(|_| Errno::last())
}

/// True if a descriptor has something to read.
pub(super) fn is_readable(fd: RawFd) -> bool {
    poll(&mut [reading(fd)], 0).is_ok_and(|found| found > 0)
}

/// Asks `poll` whether a descriptor has something to read.
pub(super) fn reading(fd: RawFd) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// What a call returned.
fn result(returned: c_long) -> Result<c_int, Errno> {
    c_int::try_from(returned)
        .ok()
        .filter(|number| *number >= 0)
        .ok_or_else(Errno::last)
}

/// A UDP socket that does not block.
pub(super) fn udp_socket(domain: c_int) -> Result<UdpSocket, Errno> {
    let family = AddressFamily::from_raw(domain as u16);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    Ok(socket.into())
}

pub(super) fn bind(socket: &UdpSocket, addr: SocketAddr) -> Result<(), Errno> {
    Ok(net::bind(socket, &addr)?)
}

/// The socket's address; it gets a port now if it has none.
pub(super) fn bound(socket: &UdpSocket, is_v4: bool) -> Result<SocketAddr, Errno> {
    let addr = name(socket)?;
    if addr.port() != 0 {
        return Ok(addr);
    }
    let any = if is_v4 { "0.0.0.0:0" } else { "[::]:0" };
    bind(socket, any.parse().map_err(|_| Errno::INVAL)?)?;
    name(socket)
}

fn name(socket: &UdpSocket) -> Result<SocketAddr, Errno> {
    Ok(net::getsockname(socket)?.try_into()?)
}

/// The address of this host from which the system would send to a peer.
pub(super) fn route(peer: SocketAddr) -> Result<SocketAddr, Errno> {
    let domain = if peer.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let socket = udp_socket(domain)?;
    net::connect(&socket, &peer)?;
    name(&socket)
}

/// Sends from one of this host's addresses, whatever the socket is bound to.
pub(super) fn send_from(
    fd: RawFd,
    bytes: &[u8],
    to: SocketAddr,
    from: IpAddr,
) -> Result<(), Errno> {
    let (mut storage, len) = write(to);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // Room for the larger of the two, aligned as the kernel has it.
    let mut control = [0_u64; 8];
    // SAFETY: numbers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = storage.as_mut_ptr().cast();
    message.msg_namelen = len;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    match (to, from) {
        (SocketAddr::V4(_), IpAddr::V4(from)) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr {
                    s_addr: u32::from(from).to_be(),
                },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            // SAFETY: there is room for it.
            unsafe { add_control(&mut message, libc::IPPROTO_IP, libc::IP_PKTINFO, info) };
        }
        _ => {
            let from = match from {
                IpAddr::V4(from) => from.to_ipv6_mapped(),
                IpAddr::V6(from) => from,
            };
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr {
                    s6_addr: from.octets(),
                },
                ipi6_ifindex: 0,
            };
            // SAFETY: there is room for it.
            unsafe { add_control(&mut message, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info) };
        }
    }
    // SAFETY: all that it leads to lives until the call returns, and the kernel only reads it.
    result(unsafe { libc::syscall(libc::SYS_sendmsg, fd, &raw const message, 0) }).map(drop)
}

/// Writes the one control message of a message.
///
/// # Safety
/// `msg_control` leads to zeros that are aligned as `u64`, with room for it.
unsafe fn add_control<T>(message: &mut libc::msghdr, level: c_int, kind: c_int, what: T) {
    let len = size_of::<T>() as u32;
    // SAFETY: the caller's promise.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(len) as _;
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(len) as _;
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(what);
    }
}

pub(super) fn epoll() -> Result<OwnedFd, Errno> {
    epoll_with(libc::EPOLL_CLOEXEC)
}

pub(super) fn epoll_with(flags: c_int) -> Result<OwnedFd, Errno> {
    let flags = CreateFlags::from_bits_retain(flags.cast_unsigned());
    Ok(epoll::create(flags)?)
}

/// `epoll_ctl`, with the program's own events.
pub(super) fn epoll_ctl(
    epoll: RawFd,
    op: c_int,
    fd: RawFd,
    event: Option<libc::epoll_event>,
) -> Result<(), Errno> {
    let event = event.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: an event or null, which the kernel reads.
    result(unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, op, fd, event) }).map(drop)
}

/// `epoll_wait`, for so many milliseconds (for ever: negative).
pub(super) fn epoll_wait(
    epoll: RawFd,
    events: &mut [libc::epoll_event],
    timeout_ms: c_int,
) -> Result<usize, Errno> {
    let (at, len) = (events.as_mut_ptr(), events.len().min(c_int::MAX as usize));
    let mask = ptr::null::<libc::sigset_t>();
    // SAFETY: a list with its length, and no mask.
    let found = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            epoll,
            at,
            len,
            timeout_ms,
            mask,
            0_usize,
        )
    };
    usize::try_from(found).map_err(|_| Errno::last())
}

/// Makes the first readable while the second one is.
pub(super) fn watch(all: &OwnedFd, fd: impl AsFd) -> Result<(), Errno> {
    Ok(epoll::add(all, fd, EventData::new_u64(0), EventFlags::IN)?)
}

/// `fcntl` with a number.
pub(super) fn fcntl(fd: RawFd, command: c_int, argument: c_long) -> Result<c_int, Errno> {
    // SAFETY: takes numbers, with the commands that callers give.
    result(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) })
}

/// Sets an option that is a number.
pub(super) fn set_option(fd: RawFd, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    // SAFETY: a number with its size.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            fd,
            level,
            name,
            &raw const value,
            size_of::<c_int>(),
        )
    };
    result(returned).map(drop)
}

/// An option that is a number.
pub(super) fn option(fd: RawFd, level: c_int, name: c_int) -> Result<c_int, Errno> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: room for a number, and its size.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd,
            level,
            name,
            &raw mut value,
            &raw mut len,
        )
    };
    result(returned).map(|_| value)
}
