//! Lone packets to a neighbour on this host leave by a connected socket, for which the kernel looks up no route: half a
//! round trip over sockets takes 1.11 of what bare UDP takes so, and 1.23 without (`urxe bench send --lat --wire sockets`).
//!
//! They come from a port that their participant's row in the registry says, under IPv4 Identifications that count up, so that their ICRC is another
//! ([`Shard::set_near`](urxe_core::Shard::set_near) says why a neighbour believes them). Trains leave by the usual socket, where
//! Identifications are places in trains; so does all that is captured or meets faults, and all that is not for a connection
//! to a peer that the registry knows.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;

use urxe_core::Time;
use urxe_core::transmit::{TxBatch, TxDest};
use urxe_udp::ConnectedSocket;
use urxe_wire::PathChange;

use super::sockets::Sockets;

/// Lone packets in a row to one address, after which it gets the socket. To make one takes as long as some ten packets.
const IN_A_ROW: u32 = 64;
/// The next one is made after so long at least: twice that, if there could be none, and so on.
const AGAIN_NS: u64 = 1_000_000_000;
const AGAIN_MAX_NS: u64 = 256 * AGAIN_NS;

/// From where, to where.
type Way = (IpAddr, IpAddr);

/// The connected socket, if there is one.
#[derive(Debug)]
pub(super) struct Direct {
    /// The port of its sockets.
    port: u16,
    open: Option<Open>,
    /// Where lone packets went last by the usual socket, and how many of them in a row.
    last: Option<Way>,
    in_a_row: u32,
    not_before: Time,
    again_ns: u64,
}

#[derive(Debug)]
struct Open {
    way: Way,
    change: PathChange,
    socket: ConnectedSocket,
}

impl Direct {
    pub(super) fn new(port: NonZeroU16) -> Direct {
        Direct {
            port: port.get(),
            open: None,
            last: None,
            in_a_row: 0,
            not_before: Time::ZERO,
            again_ns: AGAIN_NS,
        }
    }

    /// Sends the batch, if that is one packet for the socket. False if it is as it was, to be sent otherwise.
    #[inline]
    pub(super) fn send(&mut self, batch: &mut TxBatch, sockets: &Sockets, now: Time) -> bool {
        let [run] = batch.runs() else {
            return false;
        };
        let dest = run.dest;
        let is_for = dest.near_port.is_some() && !dest.in_memory && dest.tos == sockets.config.tos;
        if !is_for || batch.packets() > 1 {
            return false;
        }
        let way = (dest.local, dest.remote);
        let Some(open) = self.open.as_mut().filter(|open| open.way == way) else {
            self.count(&dest, sockets, now);
            return false;
        };
        let is_sent = open.send(batch.bytes_mut());
        if !is_sent {
            self.open = None;
            self.not_before = now + AGAIN_NS;
        }
        is_sent
    }

    /// A lone packet leaves by the usual socket.
    fn count(&mut self, dest: &TxDest, sockets: &Sockets, now: Time) {
        let way = (dest.local, dest.remote);
        if self.last.replace(way) != Some(way) {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        if self.in_a_row < IN_A_ROW || now < self.not_before {
            return;
        }
        self.in_a_row = 0;
        self.not_before = now + self.again_ns;
        // Two sockets cannot have one port.
        self.open = None;
        self.open = Open::new(self.port, dest, sockets);
        self.again_ns = match self.open {
            Some(_) => AGAIN_NS,
            None => AGAIN_MAX_NS.min(2 * self.again_ns),
        };
    }
}

impl Open {
    #[cold]
    fn new(port: u16, dest: &TxDest, sockets: &Sockets) -> Option<Open> {
        let beside = sockets.of(dest.local)?;
        let to = SocketAddr::new(dest.remote, sockets.port);
        let socket = ConnectedSocket::open(beside, port, to).ok()?;
        let from_there = TxDest {
            source_port: socket.port(),
            ..*dest
        };
        Some(Open {
            way: (dest.local, dest.remote),
            change: dest.icrc_seed().change_to(&from_there.icrc_seed()),
            socket,
        })
    }

    /// False if the packet did not leave: then it is as it was.
    #[inline]
    fn send(&mut self, packet: &mut [u8]) -> bool {
        let ident = self.socket.ident();
        self.change.apply(ident, packet);
        let is_sent = self.socket.send(packet).is_ok();
        if !is_sent {
            // The same change undoes it.
            self.change.apply(ident, packet);
        }
        is_sent
    }
}
