//! Which QPs may send a lone answer and its ACK as one train ([`urxe_core::ends_pair`]): those with a neighbour on
//! this host for a peer, which the registry knows. On a network a train arrives packet by packet, and programs that urxe does not know
//! handle packets in the order in which they come: there the ACK goes before the answer.
//!
//! A pair arrives whole where the socket has the kernel join packets. It does from before the first message leaves that a
//! pair may answer. A program that only reads gets no pairs, and is better off without: joining costs a lone packet a
//! twentieth of its round trip (`urxe bench read --lat`: 1.20 of the floor, and 1.14 without).

use std::ops::Range;

use urxe_core::ends_pair;
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
#[inline]
pub(in crate::engine) fn in_order<'a>(
    datagram: &Datagram<'a>,
) -> impl Iterator<Item = (usize, &'a [u8])> {
    let datagram = *datagram;
    let count = datagram.packets();
    let packets = move |range: Range<usize>| range.map(move |place| datagram.packet(place));
    let is_pair = count > 1 && ends_pair(datagram.packet(count - 1), packets(0..count - 1));
    let first = if is_pair { count - 1 } else { 0 };
    (0..count).map(move |n| {
        let place = if n + first < count {
            n + first
        } else {
            n + first - count
        };
        (place, datagram.packet(place))
    })
}
