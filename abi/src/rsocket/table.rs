//! Sockets by descriptor.

use core::ffi::c_int;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock, RwLock};

use super::datagram::Datagram;
use super::keepalive::{self, Peered};
use super::stream::Stream;
use crate::cm::exit::end_connections_at_exit;
use crate::errno::Errno;
use crate::lock::whole;

/// The socket behind a descriptor.
pub(super) enum Socket {
    Stream(Stream),
    Datagram(Datagram),
}

/// What a socket of either kind does.
macro_rules! calls {
    ($($name:ident($($arg:ident: $type:ty)?) $(-> $result:ty)?;)*) => {
        impl Socket {
            $(pub(super) fn $name(&self $(, $arg: $type)?) $(-> $result)? {
                match self {
                    Socket::Stream(socket) => socket.$name($($arg)?),
                    Socket::Datagram(socket) => socket.$name($($arg)?),
                }
            })*
        }
    };
}

calls! {
    fd() -> RawFd;
    bind(addr: SocketAddr) -> Result<(), Errno>;
    connect(addr: SocketAddr) -> Result<(), Errno>;
    address(of_peer: bool) -> Result<SocketAddr, Errno>;
    ready(events: i16) -> i16;
    turns() -> [u32; 2];
    arm() -> Result<RawFd, Errno>;
    disarm();
    close();
}

impl Socket {
    /// The stream socket. `EOPNOTSUPP` of others.
    pub(super) fn stream(&self) -> Result<&Stream, Errno> {
        match self {
            Socket::Stream(stream) => Ok(stream),
            Socket::Datagram(_) => Err(Errno::NOT_SUPPORTED),
        }
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

    pub(super) fn flags(&self) -> c_int {
        match self {
            Socket::Stream(stream) => stream.lock().flags,
            Socket::Datagram(datagram) => datagram.lock().flags,
        }
    }

    pub(super) fn set_flags(&self, flags: c_int) {
        match self {
            Socket::Stream(stream) => stream.lock().flags = flags,
            Socket::Datagram(datagram) => datagram.lock().flags = flags,
        }
    }
}

impl Peered for Socket {
    fn silence(&self) -> Option<(Duration, u32)> {
        let stream = self.stream().ok()?;
        let idle = stream.lock().settings.keepalive()?;
        Some((idle, stream.turns()[0]))
    }

    fn probe(&self) {
        if let Socket::Stream(stream) = self {
            stream.probe();
        }
    }
}

type Table = RwLock<HashMap<RawFd, Arc<Socket>>>;

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(Table::default)
}

/// The socket with a descriptor. `EBADF` if there is none.
pub(super) fn find(fd: RawFd) -> Result<Arc<Socket>, Errno> {
    let table = whole(table().read());
    table.get(&fd).cloned().ok_or(Errno(libc::EBADF))
}

pub(super) fn insert(socket: Socket) -> RawFd {
    end_connections_at_exit();
    let fd = socket.fd();
    let socket = Arc::new(socket);
    // An accepted one has its listener's options.
    keepalive::watch(socket.clone());
    let mut table = whole(table().write());
    table.insert(fd, socket);
    fd
}

pub(super) fn remove(fd: RawFd) -> Result<Arc<Socket>, Errno> {
    let mut table = whole(table().write());
    table.remove(&fd).ok_or(Errno(libc::EBADF))
}

pub(crate) fn close_all() {
    let all = std::mem::take(&mut *whole(table().write()));
    for socket in all.into_values() {
        socket.close();
    }
}
