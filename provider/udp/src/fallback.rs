//! The portable backend: one datagram a system call, through std. It tells no traffic
//! class and no destination address, and cannot choose the IPv4 Identification.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{Caps, Dest, RecvBatch, SendBatch, SendOutcome, SteeringProgram, UdpConfig};

/// A bound, unconnected, non-blocking UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    local: SocketAddr,
    caps: Caps,
    only_ip: Option<IpAddr>,
}

impl UdpSocket {
    /// Binds a socket to `addr` (port 0: any free one).
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another socket has the address and port;
    /// [`io::ErrorKind::AddrNotAvailable`] if the host does not have the address.
    pub fn bind(addr: SocketAddr, config: &UdpConfig) -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        if addr.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if config.reuse_port {
            socket.set_reuse_port(true)?;
        }
        // Systems differ in how they refuse sizes beyond their limit: take what is given.
        let _ = socket.set_recv_buffer_size(config.recv_buffer);
        let _ = socket.set_send_buffer_size(config.send_buffer);
        let caps = Caps::new(
            None,
            false,
            false,
            socket.recv_buffer_size()?,
            socket.send_buffer_size()?,
        );
        socket.bind(&addr.into())?;
        let socket = std::net::UdpSocket::from(socket);
        let local = socket.local_addr()?;
        let only_ip = (!local.ip().is_unspecified()).then_some(local.ip());
        Ok(UdpSocket {
            socket,
            local,
            caps,
            only_ip,
        })
    }

    /// Would join a multicast group.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] always: systems differ too much in which sockets get
    /// a copy.
    pub fn bind_group(
        _group: SocketAddr,
        _local: IpAddr,
        _interface: u32,
        _config: &UdpConfig,
    ) -> io::Result<UdpSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Would prepare sending to groups.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] always.
    pub fn send_to_groups(&self, _interface: u32, _hops: u8) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Would have a program choose among sockets; here there is none that can.
    ///
    /// # Errors
    /// Always.
    pub fn attach_steering(&self, _program: &SteeringProgram) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Would take the program away; there is none.
    pub fn detach_steering(&self) {}

    /// Nothing: packets are never joined here.
    pub fn join_packets(&self) {}

    /// Would have the traffic class reported; here there is no way to.
    ///
    /// # Errors
    /// None.
    pub fn report_tos(&self) -> io::Result<()> {
        Ok(())
    }

    /// The capabilities of this socket.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The address and port it is bound to.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Datagrams thrown away because the receive buffer was full.
    ///
    /// # Errors
    /// Always [`io::ErrorKind::Unsupported`]: no portable way to ask.
    pub fn receive_drops(&self) -> io::Result<u32> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The socket, to wait on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends the descriptors of `batch` in order, one system call each. Runs are refused.
    ///
    /// # Panics
    /// If a descriptor names bytes that the batch does not have.
    pub fn send(&self, batch: SendBatch<'_>) -> SendOutcome {
        let mut sent = 0;
        while let Some(transmit) = batch.transmits.get(sent) {
            if transmit.is_run() {
                return SendOutcome::GsoRefused { sent };
            }
            let data = &batch.bytes[transmit.range()];
            match self.socket.send_to(data, transmit.dest.addr()) {
                Ok(_) => sent += 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return SendOutcome::WouldBlock { sent };
                }
                Err(error) => return SendOutcome::Failed { sent, error },
            }
        }
        SendOutcome::All { sent }
    }

    /// Receives what is there, without waiting, into `batch` (its former contents are
    /// forgotten); returns the number of datagrams, 0 if there is nothing.
    ///
    /// # Errors
    /// Errors that the system has noted on the socket. Each is reported once.
    pub fn recv(&self, batch: &mut RecvBatch) -> io::Result<usize> {
        batch.filled = 0;
        let slots = batch
            .buffers
            .chunks_exact_mut(batch.slot_len)
            .zip(&mut batch.meta);
        for (slot, meta) in slots {
            let (len, source) = loop {
                match self.socket.recv_from(slot) {
                    Ok(received) => break received,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(batch.filled);
                    }
                    Err(_) if batch.filled > 0 => return Ok(batch.filled),
                    Err(error) => return Err(error),
                }
            };
            meta.source = Dest::new(source);
            meta.set_len(len, len as u32);
            meta.dst_ip = self.only_ip;
            meta.tos = 0;
            // std does not tell; a slot that is exactly full was probably too short.
            meta.truncated = len == slot.len() && len < RecvBatch::SLOT_LEN;
            batch.filled += 1;
        }
        Ok(batch.filled)
    }
}

/// A socket that sends to one address only; there is none here.
#[derive(Debug)]
pub enum ConnectedSocket {}

impl ConnectedSocket {
    /// Would connect a socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] always: the IPv4 Identification of its packets would not be known.
    pub fn open(_beside: &UdpSocket, _port: u16, _to: SocketAddr) -> io::Result<ConnectedSocket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The port that packets leave from.
    pub fn port(&self) -> u16 {
        match *self {}
    }

    /// The IPv4 Identification that the next packet will have.
    pub fn ident(&self) -> u16 {
        match *self {}
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// None.
    pub fn send(&mut self, _packet: &[u8]) -> io::Result<()> {
        match *self {}
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
