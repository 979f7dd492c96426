//! Which QPs may send a lone answer and its ACK as one train ([`urxe_core::ends_pair`]): those with a neighbour on
//! this host for a peer, which the registry knows. On a network a train arrives packet by packet, and programs that urxe does not know
//! handle packets in the order in which they come: there the ACK goes before the answer.
//!
//! A pair arrives whole where the socket has the kernel join packets. It does from before the first message leaves that a
//! pair may answer. A program that only reads gets no pairs, and is better off without: joining costs a lone packet a
//! twentieth of its round trip (`urxe bench read --lat`: 1.20 of the floor, and 1.14 without).

use std::ops::Range;

use urxe_core::{MiddlePackets, RxBytes, ends_pair};
use urxe_udp::{Datagram, UdpSocket};

use super::sockets::Sockets;

/// Whether the sockets have the kernel join packets, as pairs are expected.
#[derive(Debug, Default)]
pub(in crate::engine) struct Joining(bool);

impl Joining {
    /// After packets were built, and before they leave.
    #[inline]
    pub(in crate::engine) fn look(&mut self, expects_pairs: bool, sockets: &Sockets) {
        if expects_pairs && !self.0 {
            self.0 = true;
            sockets.each().for_each(UdpSocket::join_packets);
        }
    }
}

/// The packets of a datagram with their places in its train, in the order in which they are handled: the ACK of a pair is first.
#[derive(Debug)]
pub(in crate::engine) struct InOrder<'a> {
    datagram: &'a Datagram<'a>,
    /// The last packet comes before these.
    last_first: Option<usize>,
    rest: Range<usize>,
}

impl<'a> InOrder<'a> {
    #[inline]
    pub(in crate::engine) fn of(datagram: &'a Datagram<'a>) -> InOrder<'a> {
        let count = datagram.packets();
        let packets = move |range: Range<usize>| range.map(move |place| datagram.packet(place));
        let is_pair = count > 1 && ends_pair(datagram.packet(count - 1), packets(0..count - 1));
        InOrder {
            datagram,
            last_first: is_pair.then_some(count - 1),
            rest: 0..count - usize::from(is_pair),
        }
    }

    /// The packets that come next, as they lie one behind the other; none as long as the last one comes first.
    #[inline]
    pub(in crate::engine) fn rest(&self) -> MiddlePackets<'a> {
        let (size, gap) = (self.datagram.segment_size, self.datagram.gap);
        let len = self.datagram.data.len();
        let start = match self.last_first {
            Some(_) => len,
            None => len.min(self.rest.start * (size + gap)),
        };
        MiddlePackets {
            bytes: RxBytes::Own(&self.datagram.data[start..]),
            size,
            stride: size + gap,
            place: self.rest.start as u16,
        }
    }

    /// So many of the next packets were handled.
    #[inline]
    pub(in crate::engine) fn skip_handled(&mut self, packets: usize) {
        self.rest.start += packets;
    }
}

impl<'a> Iterator for InOrder<'a> {
    type Item = (usize, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        let place = match self.last_first.take() {
            Some(last) => last,
            None => self.rest.next()?,
        };
        Some((place, self.datagram.packet(place)))
    }
}
