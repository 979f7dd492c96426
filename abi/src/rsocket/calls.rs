//! Creating, connecting and closing sockets.

use core::ffi::{c_int, c_long};
use core::net::SocketAddr;

use super::datagram::Datagram;
use super::epoll;
use super::stream::Stream;
use super::sys;
use super::table::{self, Socket};
use crate::cm::address::{give, read};
use crate::errno::{Errno, minus_one, or_minus_one};

pub(crate) unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // Newer than the header's: flags beside the type, as `socket` takes them.
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let made = match (domain, kind & !flags, protocol) {
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
            Stream::new().map(Socket::Stream)
        }
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
            Datagram::new(domain).map(Socket::Datagram)
        }
        _ => Err(Errno::NOT_SUPPORTED),
    };
    if let Ok(made) = &made
        && flags & libc::SOCK_NONBLOCK != 0
    {
        made.set_flags(libc::O_RDWR | libc::O_NONBLOCK);
    }
    or_minus_one(made.map(table::insert))
}

pub(crate) unsafe extern "C" fn rbind(
    socket: c_int,
    addr: *const libc::sockaddr,
    _len: libc::socklen_t,
) -> c_int {
    // SAFETY: an address, by the rules of the function.
    let addr = unsafe { read(addr) };
    minus_one(addr.and_then(|addr| table::find(socket)?.bind(addr)))
}

pub(crate) unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    let backlog = u32::try_from(backlog).unwrap_or(0);
    minus_one(table::find(socket).and_then(|socket| socket.stream()?.listen(backlog)))
}

pub(crate) unsafe extern "C" fn raccept(
    socket: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> c_int {
    or_minus_one(table::find(socket).and_then(|socket| {
        let accepted = socket.stream()?.accept()?;
        if let Ok(peer) = accepted.address(true) {
            // SAFETY: room for an address, or nulls, by the rules of the function.
            unsafe { give(peer, addr, len) };
        }
        Ok(table::insert(Socket::Stream(accepted)))
    }))
}

pub(crate) unsafe extern "C" fn rconnect(
    socket: c_int,
    addr: *const libc::sockaddr,
    _len: libc::socklen_t,
) -> c_int {
    // SAFETY: an address, by the rules of the function.
    let addr = unsafe { read(addr) };
    minus_one(addr.and_then(|addr| table::find(socket)?.connect(addr)))
}

pub(crate) unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    minus_one(table::find(socket).and_then(|socket| socket.stream()?.shutdown(how)))
}

pub(crate) unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    minus_one(match table::remove(socket) {
        Ok(found) => {
            found.close();
            Ok(())
        }
        Err(_) => epoll::close(socket),
    })
}

pub(crate) unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> c_int {
    // SAFETY: room for an address, by the rules of the function.
    minus_one(address(socket, true).map(|found| unsafe { give(found, addr, len) }))
}

pub(crate) unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> c_int {
    // SAFETY: as above.
    minus_one(address(socket, false).map(|found| unsafe { give(found, addr, len) }))
}

fn address(socket: c_int, of_peer: bool) -> Result<SocketAddr, Errno> {
    table::find(socket)?.address(of_peer)
}

/// Variadic in C; the argument lies where that of a function with three does.
pub(crate) unsafe extern "C" fn rfcntl(socket: c_int, command: c_int, argument: c_long) -> c_int {
    or_minus_one(table::find(socket).and_then(|socket| match command {
        libc::F_GETFL => Ok(socket.flags()),
        libc::F_SETFL => {
            socket.set_flags(argument as c_int);
            Ok(0)
        }
        // Of the descriptor, which the system has.
        libc::F_GETFD | libc::F_SETFD => sys::fcntl(socket.fd(), command, argument),
        _ => Err(Errno::NOT_SUPPORTED),
    }))
}
