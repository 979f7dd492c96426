//! What participants send each other beside packets: those that came to the wrong owner's socket, on the way to the right
//! one; and memory that packets are to travel through.

use core::mem::MaybeUninit;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, recvmsg, sendmsg_addr,
};
use urxe_seal::Envelope;
use urxe_wire::Gid;

use super::entries::{ROWS, Row};

/// What goes before the packet: both addresses, the source port, the place in its
/// train, the traffic class, whether the packet is sealed, padding, and the header of the envelope that it was in, or zeros.
pub(super) const HEAD: usize = 56;
const SEALED_AT: usize = 37;
const ENVELOPE_AT: usize = 40;
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
    /// It was sealed, and was opened by the one that received it.
    pub(crate) envelope: Option<Envelope>,
    /// It is sealed as it came: the one that received it does not have the keys of its pair.
    pub(crate) is_sealed: bool,
    pub(crate) packet: &'a [u8],
}

impl Handed<'_> {
    /// To QP 1, which all share: the program in the kernel cannot know the owner of each.
    pub(crate) fn is_message(&self) -> bool {
        self.packet.get(5..8) == Some(&[0, 0, 1])
    }
}

/// A participant on this host, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(super) row: Row,
    pub(super) nonce: u64,
}

/// What another participant put into the inbox.
pub(crate) enum Arrived<'a> {
    /// A packet that it got in our place.
    Packet(Handed<'a>),
    /// Memory that it writes its packets for us to; `None` if this process may have no more descriptors.
    Ring(Neighbour, Option<OwnedFd>),
    /// It cannot read the memory that it was offered.
    NoRing(Neighbour),
    /// It has a file with what is to be said if it is killed.
    Farewells(Neighbour),
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
        Delivery::of(self.socket.send_to(bytes, to))
    }

    /// Offers memory to the owner of another inbox, in the name of `me`.
    pub(super) fn send_ring(&self, to: &Path, me: Neighbour, memory: BorrowedFd<'_>) -> Delivery {
        let memory = [memory];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&memory));
        let bytes = me.emit(OFFER);
        let mut send = || -> io::Result<usize> {
            let to = SocketAddrUnix::new(to)?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let bytes = [IoSlice::new(&bytes)];
            Ok(sendmsg_addr(
                &self.socket,
                &to,
                &bytes,
                &mut control,
                flags,
            )?)
        };
        Delivery::of(send())
    }

    /// Tells the owner of another inbox, in the name of `me`, that its memory is not read.
    pub(super) fn refuse_ring(&self, to: &Path, me: Neighbour) -> Delivery {
        self.send_bytes(to, &me.emit(REFUSAL))
    }

    /// Tells the owner of another inbox, in the name of `me`, that there is a file of farewells.
    pub(super) fn tell_of_farewells(&self, to: &Path, me: Neighbour) -> Delivery {
        self.send_bytes(to, &me.emit(FAREWELLS))
    }

    /// Calls `take` with everything that was handed to us.
    pub(super) fn drain(&self, mut take: impl FnMut(Arrived<'_>)) {
        let mut bytes = [0; HEAD + PACKET_MAX];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let Ok(received) = recvmsg(&self.socket, &mut parts, &mut control, flags) else {
                return;
            };
            let bytes = &bytes[..received.bytes];
            // More descriptors than have room, the kernel closes; those that no offer came with are closed here.
            let memory = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
                _ => None,
            });
            if let Some(handed) = Handed::parse(bytes) {
                take(Arrived::Packet(handed));
            } else if let Some(from) = Neighbour::parse(bytes, OFFER) {
                take(Arrived::Ring(from, memory));
            } else if let Some(from) = Neighbour::parse(bytes, REFUSAL) {
                take(Arrived::NoRing(from));
            } else if let Some(from) = Neighbour::parse(bytes, FAREWELLS) {
                take(Arrived::Farewells(from));
            }
        }
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

impl Delivery {
    fn of(sent: io::Result<usize>) -> Delivery {
        match sent {
            Ok(_) => Delivery::Taken,
            // No process has the socket open, though its name may have stayed.
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Delivery::Gone,
                _ => Delivery::Full,
            },
        }
    }
}

/// What an offer of memory begins with, and the answer that it is not read.
const OFFER: [u8; 8] = *b"urxering";
const REFUSAL: [u8; 8] = *b"urxenone";
/// What tells of a file of farewells begins with.
const FAREWELLS: [u8; 8] = *b"urxebyes";
/// Shorter than the head of any packet that is handed over.
const OFFER_LEN: usize = 18;

impl Neighbour {
    fn emit(self, what: [u8; 8]) -> [u8; OFFER_LEN] {
        let mut bytes = [0; OFFER_LEN];
        bytes[..8].copy_from_slice(&what);
        bytes[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[16..].copy_from_slice(&self.row.0.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8], what: [u8; 8]) -> Option<Neighbour> {
        let bytes: &[u8; OFFER_LEN] = bytes.try_into().ok()?;
        let row = u16::from_be_bytes([bytes[16], bytes[17]]);
        let is_it = bytes[..8] == what && usize::from(row) < ROWS;
        is_it.then(|| Neighbour {
            row: Row(row),
            nonce: u64::from_be_bytes(bytes[8..16].try_into().expect("eight bytes")),
        })
    }
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
        head[37..].fill(0);
        head[SEALED_AT] = u8::from(self.is_sealed);
        if let Some(envelope) = &self.envelope {
            head[ENVELOPE_AT..].copy_from_slice(&envelope.emit());
        }
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
            envelope: head[ENVELOPE_AT..].first_chunk().and_then(Envelope::parse),
            is_sealed: head[SEALED_AT] == 1,
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
        let envelope = Envelope {
            has_rider: false,
            mode: urxe_seal::Mode::Seal,
            epoch: 1,
            key_id: 2,
            sender: 3,
            counter: 4,
        };
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
            envelope: packet.get(3).map(|_| envelope),
            is_sealed: packet.len() == 3,
            packet,
        });
        for one in &handed {
            assert_eq!(a.send(&path("inbox-b"), one), Delivery::Taken);
        }
        let mut at = 0;
        b.drain(|got| {
            assert!(matches!(got, Arrived::Packet(got) if got == handed[at]));
            at += 1;
        });
        assert_eq!(at, 2);
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

    #[test]
    fn offers_arrive_with_their_memory_and_refusals_without() {
        let directory = std::env::temp_dir();
        let path = |name: &str| directory.join(format!("urxe-{name}-{}", std::process::id()));
        let a = Inbox::create(path("offer-a")).expect("a socket");
        let b = Inbox::create(path("offer-b")).expect("a socket");
        let from = Neighbour {
            row: Row(7),
            nonce: 0x1234_5678_9abc_def0,
        };
        let offer = from.emit(OFFER);
        assert_eq!(Neighbour::parse(&offer, OFFER), Some(from));
        assert_eq!(Neighbour::parse(&offer, REFUSAL), None);
        assert_eq!(Neighbour::parse(&offer[1..], OFFER), None);
        let null = fs::File::open("/dev/null").expect("every system has it");
        let beyond = Neighbour {
            row: Row(ROWS as u16),
            ..from
        };
        for one in [from, beyond] {
            let sent = a.send_ring(&path("offer-b"), one, null.as_fd());
            assert_eq!(sent, Delivery::Taken);
        }
        // Its memory is missing where the system had no descriptor for it.
        assert_eq!(a.send_bytes(&path("offer-b"), &offer), Delivery::Taken);
        assert_eq!(a.refuse_ring(&path("offer-b"), from), Delivery::Taken);
        let mut got = Vec::new();
        b.drain(|arrived| {
            got.push(match arrived {
                Arrived::Ring(from, memory) => (from, Some(memory.is_some())),
                Arrived::NoRing(from) => (from, None),
                Arrived::Packet(handed) => panic!("{handed:?}"),
                Arrived::Farewells(from) => panic!("{from:?}"),
            });
        });
        let wanted = [Some(true), Some(false), None].map(|what| (from, what));
        assert_eq!(got, wanted);
        a.close();
        b.close();
    }
}
