//! The segment size that a socket has by itself, for trains that are all alike.
//!
//! With a train its segment size comes as a control message, which the kernel must fetch and parse. A ping-pong of short
//! messages sends one pair of packets after another, all of the same sizes: after some of them the size becomes the socket's
//! own, and they leave by the call that lone packets leave by. Anything else takes it back first.
//! `urxe bench send --lat`: 1.40 of the floor so, 1.44 with a control message for each pair (medians of runs in turns).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

use libc::{SOL_UDP, c_int};

use super::sys;
use crate::Transmit;

/// Trains of one segment size in a row until it becomes the socket's own: to give it and to take it back costs
/// less than the control messages of three of them.
const ALIKE: u32 = 32;
/// The longest such size. A socket that has one sends nothing, not even a shorter packet, on a path that a packet of this
/// size is too long for.
const SIZE_MAX: u16 = 512;

/// Which segment size a socket has, or shall get.
#[derive(Debug, Default)]
pub(super) struct UsualSize {
    /// The socket's own; 0 if it has none.
    own: AtomicU16,
    /// That of the last trains, and how many there were in a row.
    last: AtomicU16,
    alike: AtomicU32,
}

impl UsualSize {
    /// True if the socket cuts this one, or leaves it whole, as it should be without being told.
    #[inline]
    pub(super) fn fits(&self, transmit: &Transmit, segments_max: usize) -> bool {
        let own = self.own.load(Relaxed);
        if transmit.is_run() {
            let len_max = u32::from(own) * segments_max as u32;
            transmit.segment_size == own && transmit.len <= len_max
        } else {
            own == 0 || transmit.len <= u32::from(own)
        }
    }

    /// A train of such a segment size left, and the socket has no size of its own.
    #[inline]
    pub(super) fn note(&self, fd: BorrowedFd<'_>, size: u16) {
        let before = if self.last.load(Relaxed) == size {
            self.alike.load(Relaxed)
        } else {
            0
        };
        let alike = before.saturating_add(1);
        self.last.store(size, Relaxed);
        self.alike.store(alike, Relaxed);
        if alike >= ALIKE && size <= SIZE_MAX && set(fd, size).is_ok() {
            self.own.store(size, Relaxed);
        }
    }

    /// The socket has no size of its own any more. Returns whether it had one.
    #[inline]
    pub(super) fn take_back(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        if self.own.load(Relaxed) == 0 {
            return Ok(false);
        }
        set(fd, 0)?;
        self.own.store(0, Relaxed);
        self.alike.store(0, Relaxed);
        Ok(true)
    }
}

#[cold]
fn set(fd: BorrowedFd<'_>, size: u16) -> io::Result<()> {
    sys::set_option(fd, SOL_UDP, libc::UDP_SEGMENT, c_int::from(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dest, RecvBatch, SendBatch, SendOutcome, UdpConfig, UdpSocket};
    use std::time::Duration;

    fn own(socket: &UdpSocket) -> c_int {
        let [size] = sys::option(socket.as_fd(), SOL_UDP, libc::UDP_SEGMENT).expect("it is known");
        size
    }

    /// Whatever size the socket has of its own, what is sent arrives as the packets that it was.
    #[test]
    fn trains_of_one_size_make_it_the_sockets_own_until_something_else_leaves() {
        let config = UdpConfig::default();
        let bind = || UdpSocket::bind("127.0.0.1:0".parse().expect("literal"), &config);
        let (from, to) = (bind().expect("bind"), bind().expect("bind"));
        if !from.caps().gso() {
            eprintln!("skipped: this kernel cuts no trains");
            return;
        }
        let dest = Dest::new(to.local_addr());
        let mut received = RecvBatch::new(8);
        let mut send = |transmits: &[Transmit], expected: &[usize]| {
            let bytes = &[7; 2000];
            let outcome = from.send(SendBatch { bytes, transmits });
            let SendOutcome::All { sent } = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(sent, transmits.len());
            let mut sizes = Vec::new();
            while sizes.len() < expected.len() {
                let ready = crate::wait(&[to.as_fd()], Some(Duration::from_secs(5)));
                assert!(!ready.expect("polls").is_timeout(), "{sizes:?} arrived");
                to.recv(&mut received).expect("receives");
                let packets = received
                    .iter()
                    .flat_map(|d| d.segments().map(|(_, p)| p.len()));
                sizes.extend(packets.collect::<Vec<_>>());
            }
            assert_eq!(sizes, expected);
            own(&from)
        };
        let pair = Transmit::run(0..44, 24, dest);
        for n in 1..=2 * ALIKE {
            let own = send(&[pair], &[24, 20]);
            assert_eq!(own, if n < ALIKE { 0 } else { 24 }, "after {n} trains");
        }
        // What it leaves whole needs nothing else.
        assert_eq!(send(&[Transmit::single(0..20, dest)], &[20]), 24);
        assert_eq!(send(&[Transmit::run(0..72, 24, dest)], &[24, 24, 24]), 24);
        let others: [(&[Transmit], &[usize]); 4] = [
            (&[Transmit::single(0..100, dest)], &[100]),
            (&[Transmit::run(0..70, 30, dest)], &[30, 30, 10]),
            (&[pair, Transmit::single(0..25, dest)], &[24, 20, 25]),
            (&[pair.with_tos(0x20)], &[24, 20]),
        ];
        for (transmits, expected) in others {
            assert_eq!(send(transmits, expected), 0, "{transmits:?}");
            for _ in 0..ALIKE {
                send(&[pair], &[24, 20]);
            }
            assert_eq!(send(&[pair], &[24, 20]), 24);
        }
        // A long size is never the socket's own.
        let long = Transmit::run(0..1200, 513, dest);
        for _ in 0..=ALIKE {
            assert_eq!(send(&[long], &[513, 513, 174]), 0);
        }
    }
}
