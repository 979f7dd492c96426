//! Packets that came to the wrong owner's socket, on the way to the right one.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use urxe_wire::Gid;

/// What goes before the packet: both addresses, the source port, the place in its
/// train, the traffic class, and padding.
pub(super) const HEAD: usize = 40;
/// No packet is longer: a path MTU of 4096 and all headers.
const PACKET_MAX: usize = 8 << 10;

/// A packet as another participant received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handed<'a> {
    pub(crate) source: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) local: IpAddr,
    pub(crate) place: u16,
    pub(crate) tos: u8,
    pub(crate) packet: &'a [u8],
}

/// Where a participant takes its packets. The path is in a directory that other users
/// cannot enter.
#[derive(Debug)]
pub(super) struct Inbox {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Inbox {
    pub(super) fn create(path: PathBuf) -> io::Result<Inbox> {
        // One of the same name belongs to an ended process: the row is ours now.
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path)?;
        socket.set_nonblocking(true)?;
        Ok(Inbox { socket, path })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Hands a packet to the owner of another inbox. If the owner is gone, or does not fetch its packets, it is lost, as if
    /// on the way: nothing waits for that owner. The kernel holds ten packets (`net.unix.max_dgram_qlen`).
    pub(super) fn send(&self, to: &Path, handed: &Handed<'_>) -> Delivery {
        let mut bytes = [0; HEAD + PACKET_MAX];
        match handed.emit(&mut bytes) {
            Some(len) => self.send_bytes(to, &bytes[..len]),
            None => Delivery::Full,
        }
    }

    /// Sends a packet that was written before.
    pub(super) fn send_bytes(&self, to: &Path, bytes: &[u8]) -> Delivery {
        match self.socket.send_to(bytes, to) {
            Ok(_) => Delivery::Taken,
            // No process has the socket open, though its name may have stayed.
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Delivery::Gone,
                _ => Delivery::Full,
            },
        }
    }

    /// Calls `take` with everything that was handed to us; returns how many packets.
    pub(super) fn drain(&self, mut take: impl FnMut(Handed<'_>)) -> usize {
        let mut bytes = [0; HEAD + PACKET_MAX];
        let mut count = 0;
        while let Ok(len) = self.socket.recv(&mut bytes) {
            if let Some(handed) = Handed::parse(&bytes[..len]) {
                take(handed);
                count += 1;
            }
        }
        count
    }

    /// Removes the name, so that others see that this participant has left.
    pub(super) fn close(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// What became of a packet that was handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Delivery {
    Taken,
    /// The inbox is full: its owner has not fetched.
    Full,
    /// There is no such participant any more.
    Gone,
}

impl Handed<'_> {
    /// Bytes that it takes.
    pub(super) fn len(&self) -> usize {
        HEAD + self.packet.len()
    }

    /// Writes it; `None` if there is no room.
    pub(super) fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let len = self.len();
        let (head, packet) = out.get_mut(..len)?.split_at_mut(HEAD);
        head[..16].copy_from_slice(&Gid::from(self.source).0);
        head[16..32].copy_from_slice(&Gid::from(self.local).0);
        head[32..34].copy_from_slice(&self.source_port.to_be_bytes());
        head[34..36].copy_from_slice(&self.place.to_be_bytes());
        head[36] = self.tos;
        packet.copy_from_slice(self.packet);
        Some(len)
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Handed<'_>> {
        let (head, packet) = bytes.split_first_chunk::<HEAD>()?;
        let addr = |at: usize| Gid(head[at..at + 16].try_into().expect("sixteen bytes")).into();
        Some(Handed {
            source: addr(0),
            local: addr(16),
            source_port: u16::from_be_bytes([head[32], head[33]]),
            place: u16::from_be_bytes([head[34], head[35]]),
            tos: head[36],
            packet,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_packet_arrives_as_it_was_received() {
        let directory = std::env::temp_dir();
        let path = |name: &str| directory.join(format!("urxe-{name}-{}", std::process::id()));
        let a = Inbox::create(path("inbox-a")).expect("a socket");
        let b = Inbox::create(path("inbox-b")).expect("a socket");
        let packet = [7; 4200];
        let handed = [
            ("10.1.2.3", "10.1.2.4", &packet[..]),
            ("fe80::1", "fe80::2", &[1, 2, 3]),
        ]
        .map(|(source, local, packet)| Handed {
            source: source.parse().expect("literal"),
            local: local.parse().expect("literal"),
            source_port: 0xc123,
            place: 5,
            tos: 0x6b,
            packet,
        });
        for one in &handed {
            assert_eq!(a.send(&path("inbox-b"), one), Delivery::Taken);
        }
        let mut at = 0;
        let count = b.drain(|got| {
            assert_eq!(got, handed[at]);
            at += 1;
        });
        assert_eq!(count, 2);
        // The owner's process has ended: only the name is left, as soon as no child that a test beside this one forked has the
        // socket open.
        drop(b);
        let until = Instant::now() + Duration::from_secs(60);
        while a.send(&path("inbox-b"), &handed[1]) != Delivery::Gone {
            assert!(Instant::now() < until, "the socket is closed");
            thread::yield_now();
        }
        fs::remove_file(path("inbox-b")).expect("it stayed");
        assert_eq!(a.send(&path("inbox-b"), &handed[1]), Delivery::Gone);
        let long = Handed {
            packet: &[0; PACKET_MAX + 1],
            ..handed[0]
        };
        let sent = a.send(&path("inbox-a"), &long);
        assert_eq!(sent, Delivery::Full, "too long for any packet");
        a.close();
    }
}
