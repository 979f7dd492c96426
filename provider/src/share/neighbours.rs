//! Which participants are on this host, and take packets through memory.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use urxe_core::Time;
use urxe_core::qpn_table::QpnChunk;

use super::entries::Row;
use super::hand_over::{Delivery, Neighbour};
use super::membership::Membership;

impl Membership {
    /// The participant that has the chunk and a socket on this address, if it takes packets through memory. It may be this one.
    pub(crate) fn neighbour(&self, chunk: QpnChunk, addr: IpAddr, now: Time) -> Option<Neighbour> {
        let socket = self.socket_of(chunk, addr, now)?;
        let row = socket.row;
        let nonce = self.registry.nonce_of(row)?;
        socket.takes_rings.then_some(Neighbour { row, nonce })
    }

    /// True if that is this participant.
    pub(crate) fn is_me(&self, neighbour: Neighbour) -> bool {
        neighbour == self.me
    }

    /// Offers memory to a neighbour. False if it cannot take the offer now.
    pub(crate) fn offer_ring(&self, to: Neighbour, memory: BorrowedFd<'_>) -> bool {
        let path = self.registry.hand_over_path(to.row);
        self.inbox.send_ring(&path, self.me, memory) == Delivery::Taken
    }

    /// Tells a neighbour that the memory that it offered is not read. If its inbox is full it finds that out later.
    pub(crate) fn refuse_ring(&self, to: Neighbour) {
        let path = self.registry.hand_over_path(to.row);
        self.inbox.refuse_ring(&path, self.me);
    }

    /// True if a neighbour is still there: a killed one is not, though the registry has its row until the next change.
    pub(crate) fn is_alive(&self, neighbour: Neighbour) -> bool {
        let Neighbour {
            row: Row(row),
            nonce,
        } = neighbour;
        if self.is_me(neighbour) {
            return true;
        }
        let rows = usize::from(row)..usize::from(row) + 1;
        // Where locks cannot be asked for, the registry's word is taken.
        self.registry.has_row(neighbour.row, nonce)
            && self.registry.is_any_alive(rows).unwrap_or(true)
    }
}
