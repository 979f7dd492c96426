//! Transmissions: what is to be sent, and the outcome.

use std::io;
use std::net::IpAddr;
use std::ops::Range;

use crate::Dest;

/// One descriptor: a packet, or a run of equal-sized packets to one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where its bytes start in the batch.
    pub start: u32,
    /// How many bytes it has, over all packets.
    pub len: u32,
    /// Size of every packet but the last, which may be shorter. 0, or anything from
    /// `len` on, means one packet.
    pub segment_size: u16,
    /// Traffic class byte: DSCP and ECN.
    pub tos: u8,
    /// The destination.
    pub dest: Dest,
    /// The address to send from, if not the one the socket is bound to.
    pub src_ip: Option<IpAddr>,
}

impl Transmit {
    /// One packet, traffic class 0.
    pub fn single(range: Range<usize>, dest: Dest) -> Transmit {
        Transmit::run(range, 0, dest)
    }

    /// A run of packets of `segment_size` bytes (the last may be shorter), traffic class 0.
    ///
    /// # Panics
    /// If the range or the size is beyond what a datagram can hold.
    #[inline]
    pub fn run(range: Range<usize>, segment_size: usize, dest: Dest) -> Transmit {
        Transmit {
            start: u32::try_from(range.start).expect("a batch is below 4 GiB"),
            len: u32::try_from(range.len()).expect("a batch is below 4 GiB"),
            segment_size: u16::try_from(segment_size).expect("a packet is below 64 KiB"),
            tos: 0,
            dest,
            src_ip: None,
        }
    }

    /// This transmission with another traffic class.
    #[must_use]
    pub fn with_tos(self, tos: u8) -> Transmit {
        Transmit { tos, ..self }
    }

    /// This transmission from `src_ip`: for a socket bound to no particular address.
    #[must_use]
    pub fn with_src_ip(self, src_ip: IpAddr) -> Transmit {
        Transmit {
            src_ip: Some(src_ip),
            ..self
        }
    }

    /// Its bytes in the batch.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    /// True if it holds more than one packet.
    #[inline]
    pub fn is_run(&self) -> bool {
        self.segment_size != 0 && self.len > u32::from(self.segment_size)
    }

    /// Number of packets.
    #[inline]
    pub fn segments(&self) -> usize {
        if self.is_run() {
            self.len.div_ceil(u32::from(self.segment_size)) as usize
        } else {
            1
        }
    }

    /// The packets one by one, to send them when the run was refused.
    ///
    /// Over IPv4 each will then travel under Identification 0 and not under its place
    /// in the run: a checksum that covers the IP header must be made anew.
    pub fn singles(self) -> impl Iterator<Item = Transmit> {
        let size = if self.is_run() {
            u32::from(self.segment_size)
        } else {
            self.len
        };
        (0..self.segments() as u32).map(move |k| Transmit {
            start: self.start + k * size,
            len: size.min(self.len - k * size),
            segment_size: 0,
            ..self
        })
    }
}

/// Descriptors and the bytes that they name.
#[derive(Clone, Copy, Debug)]
pub struct SendBatch<'a> {
    /// Packets, one after another.
    pub bytes: &'a [u8],
    /// Descriptors, in the order in which they shall leave.
    pub transmits: &'a [Transmit],
}

/// How far [`UdpSocket::send`](crate::UdpSocket::send) got.
///
/// `sent` counts the descriptors that were handed to the network, from the first on.
/// Those after the one that stopped the call were not tried.
#[must_use = "descriptors may be left to send"]
#[derive(Debug)]
pub enum SendOutcome {
    /// Everything went.
    All {
        /// The number of packets sent.
        sent: usize,
    },
    /// The send buffer is full. Wait until the socket is writable and send the rest.
    WouldBlock {
        /// Descriptors sent.
        sent: usize,
    },
    /// Descriptor number `sent` is a run, and this socket or the path of that packet
    /// takes no such run. [`Caps`](crate::Caps) already tells what is taken from now
    /// on. Send its packets singly ([`Transmit::singles`]), then the rest.
    GsoRefused {
        /// Descriptors sent; the refused one is the next.
        sent: usize,
    },
    /// Descriptor number `sent` cannot be sent: too long, no route, forbidden, or so.
    /// Treat it as lost on the way and send the rest.
    Failed {
        /// Descriptors sent; the failed one is the next.
        sent: usize,
        /// Why.
        error: io::Error,
    },
}

impl SendOutcome {
    /// Descriptors handed to the network.
    pub fn sent(&self) -> usize {
        match *self {
            SendOutcome::All { sent }
            | SendOutcome::WouldBlock { sent }
            | SendOutcome::GsoRefused { sent }
            | SendOutcome::Failed { sent, .. } => sent,
        }
    }
}
