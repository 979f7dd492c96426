//! Any number of sockets behind one descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use rustix::event::epoll;

use crate::UdpSocket;

/// A set of sockets with one descriptor, readable while one of them has a datagram: to
/// wait for more sockets than [`WAIT_MAX`](crate::WAIT_MAX).
#[derive(Debug)]
pub struct SocketSet {
    fd: OwnedFd,
}

impl AsFd for SocketSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl SocketSet {
    /// An empty set.
    ///
    /// # Errors
    /// When the process or the system has no file descriptor left.
    pub fn new() -> io::Result<SocketSet> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(SocketSet { fd })
    }

    /// Adds a socket.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::AlreadyExists`] if it is in the set.
    pub fn add(&self, socket: &UdpSocket) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(self, socket, data, epoll::EventFlags::IN)?)
    }

    /// Takes a socket out. Closing it does not suffice if the process has forked.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::NotFound`] if it is not in the set.
    pub fn remove(&self, socket: &UdpSocket) -> io::Result<()> {
        Ok(epoll::delete(self, socket)?)
    }
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
impl SocketSet {
    /// Would make a set.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] always: only Linux has them.
    pub fn new() -> io::Result<SocketSet> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Would add a socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] always.
    pub fn add(&self, _socket: &UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Would take a socket out.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] always.
    pub fn remove(&self, _socket: &UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
