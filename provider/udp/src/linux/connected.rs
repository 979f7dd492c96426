//! A connected socket, for lone packets to one address of this host: the kernel keeps the way that it found, which it
//! looks up for each packet of a socket that is not connected.
//!
//! Of a connected socket Linux does not leave the IPv4 Identification at 0: it counts it up, from a number that `connect`
//! takes at random. So the number is looked at once, in packets that the socket sends to another socket of this process:
//! a filter there cuts each packet to a length that a byte of its IP header gives.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libc::SOL_SOCKET;
use rustix::net::{SendFlags, send};

use super::{UdpSocket, set_ip_options, sys};
use crate::steer::insns;
use crate::{Dest, UdpConfig};

/// `SO_NETNS_COOKIE` (Linux 5.14; not in libc).
const NETNS_COOKIE: libc::c_int = 71;
/// How long a packet to a socket of this process may take. It is there when the call returns, if the processor
/// that delivers it is not busy with others.
const PATIENCE: Duration = Duration::from_millis(2);

/// A socket that sends to one address only, and receives nothing.
#[derive(Debug)]
pub struct ConnectedSocket {
    fd: OwnedFd,
    port: u16,
    /// That of the next packet; `None` over IPv6, which has no Identification.
    ident: Option<u16>,
}

impl ConnectedSocket {
    /// Connects a socket to `to`, from a port (0: any free one) of the address that `beside` is bound to, and finds out the Identification of
    /// its next packet.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::Unsupported`] if it does not show the Identification, or the thread is in
    /// another network namespace than the socket (or the kernel cannot tell).
    pub fn open(beside: &UdpSocket, port: u16, to: SocketAddr) -> io::Result<ConnectedSocket> {
        let local = beside.local_addr().ip();
        let fd = sys::udp_socket(local.is_ipv6())?;
        if netns(fd.as_fd())? != netns(beside.as_fd())? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let config = UdpConfig {
            tos: beside.default_tos,
            ..UdpConfig::default()
        };
        set_ip_options(fd.as_fd(), local.is_ipv6(), &config)?;
        sys::attach_filter(fd.as_fd(), &insns::NOTHING)?;
        rustix::net::bind(&fd, &SocketAddr::new(local, port))?;
        rustix::net::connect(&fd, &to)?;
        let port = sys::local_addr(fd.as_fd())?.port();
        let ident = match local {
            IpAddr::V4(_) => Some(next_ident(fd.as_fd())?),
            IpAddr::V6(_) => None,
        };
        Ok(ConnectedSocket { fd, port, ident })
    }

    /// The port that packets leave from.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The IPv4 Identification that the next packet will have; 0 over IPv6.
    #[inline]
    pub fn ident(&self) -> u16 {
        self.ident.unwrap_or(0)
    }

    /// Sends a packet, with the traffic class of the socket that it was opened beside.
    ///
    /// # Errors
    /// What the system says: of this packet, or of one before (that no socket was there, for example). The packet has
    /// not left, and the Identification of the next one is not known.
    #[inline]
    pub fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        send(&self.fd, packet, SendFlags::empty())?;
        self.ident = self.ident.map(|ident| ident.wrapping_add(1));
        Ok(())
    }
}

fn netns(fd: BorrowedFd<'_>) -> io::Result<[libc::c_int; 2]> {
    sys::option::<2>(fd, SOL_SOCKET, NETNS_COOKIE)
}

/// The Identification of the next packet of a connected socket.
fn next_ident(fd: BorrowedFd<'_>) -> io::Result<u16> {
    /// Where it is in an IPv4 header.
    const AT: u32 = 4;
    /// As many bytes as a byte can say.
    const PROBE: [u8; 256] = [0; 256];
    let from = sys::local_addr(fd)?;
    let probe = sys::udp_socket(false)?;
    rustix::net::bind(&probe, &SocketAddr::new(from.ip(), 0))?;
    let dest = Dest::new(sys::local_addr(probe.as_fd())?);
    // The packets of no other socket.
    rustix::net::connect(&probe, &from)?;
    let byte = |at: u32| -> io::Result<u8> {
        sys::attach_filter(probe.as_fd(), &insns::as_long_as_byte_says(at))?;
        sys::send_to(fd, &PROBE, &dest)?;
        if crate::wait(&[probe.as_fd()], Some(PATIENCE))?.is_timeout() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut source = Dest::EMPTY;
        let len = sys::recv_from(probe.as_fd(), &mut [0; PROBE.len()], &mut source)?;
        u8::try_from(len).map_err(|_| io::ErrorKind::Unsupported.into())
    };
    // Each byte is that of another packet, of the one after the last.
    let first = u16::from_be_bytes([byte(AT)?, byte(AT + 1)?.wrapping_sub(1)]);
    let next = first.wrapping_add(2);
    let counts = byte(AT)? == next.to_be_bytes()[0]
        && byte(AT + 1)? == next.wrapping_add(1).to_be_bytes()[1];
    if counts {
        Ok(next.wrapping_add(2))
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket, one that is connected beside it, and the peer.
    fn connected() -> (UdpSocket, ConnectedSocket, UdpSocket) {
        let addr = "127.0.0.1:0".parse().expect("literal");
        let bind = || UdpSocket::bind(addr, &UdpConfig::default()).expect("bind");
        let (beside, peer) = (bind(), bind());
        let socket = ConnectedSocket::open(&beside, 0, peer.local_addr());
        (beside, socket.expect("the kernel can"), peer)
    }

    /// Over IPv6 there is no Identification to find out.
    #[test]
    fn over_ipv6_it_connects() {
        let addr = "[::1]:0".parse().expect("literal");
        let bind = || UdpSocket::bind(addr, &UdpConfig::default());
        let (Ok(beside), Ok(to)) = (bind(), bind()) else {
            eprintln!("skipped: no IPv6 here");
            return;
        };
        let mut socket = ConnectedSocket::open(&beside, 0, to.local_addr()).expect("connects");
        for len in 1..10 {
            socket.send(&[7; 10][..len]).expect("sends");
            assert_eq!(socket.ident(), 0);
            let mut batch = crate::RecvBatch::new(1);
            crate::wait(&[to.as_fd()], Some(Duration::from_secs(5))).expect("polls");
            assert_eq!(to.recv(&mut batch).expect("receives"), 1);
            let datagram = batch.iter().next().expect("one");
            assert_eq!(datagram.data, &[7; 10][..len]);
            assert_eq!(datagram.source.port(), socket.port());
        }
    }

    /// What others send to its port does not stay there.
    #[test]
    fn nothing_is_received() {
        let (_beside, socket, peer) = connected();
        let at = Dest::new(sys::local_addr(socket.fd.as_fd()).expect("bound"));
        for _ in 0..100 {
            sys::send_to(peer.as_fd(), b"for the wrong socket", &at).expect("sends");
        }
        let mut source = Dest::EMPTY;
        let received = sys::recv_from(socket.fd.as_fd(), &mut [0; 100], &mut source);
        let error = received.expect_err("nothing is there");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// A peer that is gone is an error of the packet after the first that it does not get.
    #[test]
    fn a_peer_that_is_gone_is_an_error() {
        let (_beside, mut socket, peer) = connected();
        socket.send(b"there").expect("sends");
        drop(peer);
        socket.send(b"gone").expect("it is not known yet");
        let error = socket.send(b"gone").expect_err("the kernel knows");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// The first packets after the probe have the Identifications that were foretold: other filters read them.
    #[test]
    fn the_identification_is_foretold() {
        for _ in 0..50 {
            let (_beside, mut socket, to) = connected();
            for n in 0..600 {
                let (at, ident) = (n % 2, socket.ident().to_be_bytes());
                let filter = insns::as_long_as_byte_says(4 + at);
                sys::attach_filter(to.as_fd(), &filter).expect("attaches");
                socket.send(&[0; 300]).expect("sends");
                let mut source = Dest::EMPTY;
                crate::wait(&[to.as_fd()], Some(Duration::from_secs(5))).expect("polls");
                let len = sys::recv_from(to.as_fd(), &mut [0; 300], &mut source).expect("arrives");
                assert_eq!(len, usize::from(ident[at as usize]), "packet {n}");
                assert_eq!(source.addr().port(), socket.port());
            }
        }
    }
}
