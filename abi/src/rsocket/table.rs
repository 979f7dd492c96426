//! Sockets by descriptor.

use core::ffi::c_int;
use core::net::SocketAddr;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::datagram::Datagram;
use super::stream::Stream;
use crate::cm::exit::end_connections_at_exit;
use crate::errno::Errno;

/// The socket behind a descriptor.
pub(super) enum Socket {
    Stream(Stream),
    Datagram(Datagram),
}

/// Does the same with a socket of either kind.
macro_rules! either {
    ($socket:expr, $it:ident => $does:expr) => {
        match $socket {
            Socket::Stream($it) => $does,
            Socket::Datagram($it) => $does,
        }
    };
}

impl Socket {
    /// The stream socket. `EOPNOTSUPP` of others.
    pub(super) fn stream(&self) -> Result<&Stream, Errno> {
        match self {
            Socket::Stream(stream) => Ok(stream),
            Socket::Datagram(_) => Err(Errno::NOT_SUPPORTED),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        either!(self, socket => socket.fd())
    }

    pub(super) fn bind(&self, addr: SocketAddr) -> Result<(), Errno> {
        either!(self, socket => socket.bind(addr))
    }

    pub(super) fn connect(&self, addr: SocketAddr) -> Result<(), Errno> {
        either!(self, socket => socket.connect(addr))
    }

    pub(super) fn address(&self, of_peer: bool) -> Result<SocketAddr, Errno> {
        either!(self, socket => socket.address(of_peer))
    }

    pub(super) fn close(&self) {
        either!(self, socket => socket.close());
    }

    /// `to` is for datagrams alone: a stream has its peer.
    pub(super) fn send(
        &self,
        parts: &[&[u8]],
        to: Option<SocketAddr>,
        flags: c_int,
    ) -> Result<usize, Errno> {
        match self {
            Socket::Stream(_) if to.is_some() => Err(Errno(libc::EISCONN)),
            Socket::Stream(stream) => stream.send(parts, flags),
            Socket::Datagram(datagram) => datagram.send(parts, to, flags),
        }
    }

    /// Receives; returns the length and the sender.
    pub(super) fn recv(
        &self,
        parts: &mut [&mut [u8]],
        flags: c_int,
    ) -> Result<(usize, Option<SocketAddr>), Errno> {
        match self {
            Socket::Stream(stream) => Ok((stream.recv(parts, flags)?, stream.address(true).ok())),
            Socket::Datagram(datagram) => {
                let (len, from) = datagram.recv(parts, flags)?;
                Ok((len, Some(from)))
            }
        }
    }

    pub(super) fn ready(&self, events: i16) -> i16 {
        either!(self, socket => socket.ready(events))
    }

    pub(super) fn arm(&self) -> Result<RawFd, Errno> {
        either!(self, socket => socket.arm())
    }

    pub(super) fn disarm(&self) {
        either!(self, socket => socket.disarm());
    }

    pub(super) fn flags(&self) -> c_int {
        either!(self, socket => socket.lock().flags)
    }

    pub(super) fn set_flags(&self, flags: c_int) {
        either!(self, socket => socket.lock().flags = flags);
    }
}

type Table = RwLock<HashMap<RawFd, Arc<Socket>>>;

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(Table::default)
}

/// The socket with a descriptor. `EBADF` if there is none.
pub(super) fn find(fd: RawFd) -> Result<Arc<Socket>, Errno> {
    let table = table().read().unwrap_or_else(PoisonError::into_inner);
    table.get(&fd).cloned().ok_or(Errno(libc::EBADF))
}

pub(super) fn insert(socket: Socket) -> RawFd {
    end_connections_at_exit();
    let fd = socket.fd();
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    table.insert(fd, Arc::new(socket));
    fd
}

pub(super) fn remove(fd: RawFd) -> Result<Arc<Socket>, Errno> {
    let mut table = table().write().unwrap_or_else(PoisonError::into_inner);
    table.remove(&fd).ok_or(Errno(libc::EBADF))
}

pub(crate) fn close_all() {
    let all = std::mem::take(&mut *table().write().unwrap_or_else(PoisonError::into_inner));
    for socket in all.into_values() {
        socket.close();
    }
}
