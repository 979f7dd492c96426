//! Which packets leave by which ring.

use core::net::IpAddr;
use std::collections::HashMap;

use urxe_core::Time;
use urxe_core::loan::LentMemory;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::transmit::{Transmit as Run, TxDest};

use super::outgoing::Outgoing;
use crate::share::{Membership, Neighbour};

/// The rings to write, and which packets go where.
#[derive(Debug, Default)]
pub(super) struct Outgoings {
    pub(super) rings: Vec<Option<Outgoing>>,
    /// Addresses that participants of this host were found at: packets to others need no look.
    pub(super) here: Vec<IpAddr>,
    pub(super) routes: HashMap<(IpAddr, QpnChunk), Route>,
    /// Neighbours that could not open a ring: they are offered none as long as they live.
    pub(super) refusers: Vec<Neighbour>,
    /// Owners of QPNs that have ended.
    pub(super) gone: Vec<(IpAddr, QpnChunk)>,
    /// The route that was used last, and where to.
    pub(super) last: Option<(IpAddr, QpnChunk, Route)>,
    /// The ring that has lent the batch its memory.
    pub(super) lent: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    /// The place of the ring; without one, through sockets.
    pub(super) ring: Option<usize>,
    /// Not looked up again before this.
    pub(super) until: Time,
}

impl Outgoings {
    /// The ring of a destination that was looked up.
    #[inline]
    pub(super) fn place(&self, dest: &TxDest) -> Option<usize> {
        match self.last {
            Some((remote, chunk, route)) if remote == dest.remote && chunk == dest.chunk => {
                route.ring
            }
            _ => self.routes.get(&(dest.remote, dest.chunk))?.ring,
        }
    }

    /// A ring can be told of all these runs, in the place of its next records.
    #[inline]
    pub(super) fn takes_all(&self, place: usize, runs: &[Run]) -> bool {
        let Some(Some(ring)) = self.rings.get(place) else {
            return false;
        };
        let mut runs = runs.iter();
        runs.all(|run| self.place(&run.dest) == Some(place) && ring.knows(&run.dest))
    }

    /// What a ring has lent is its own again. If that is gone, so is the memory.
    #[inline]
    pub(super) fn end_loan(&mut self, memory: Option<Box<dyn LentMemory>>) {
        let Some((place, memory)) = self.lent.take().zip(memory) else {
            return;
        };
        if let Some(Some(ring)) = self.rings.get_mut(place) {
            ring.end_loan(memory);
        }
    }

    /// A participant of this host is at that address.
    #[cold]
    pub(super) fn note_here(&mut self, remote: IpAddr) {
        if !self.here.contains(&remote) {
            self.here.push(remote);
        }
    }

    /// Nothing to look after.
    pub(super) fn is_empty(&self) -> bool {
        self.refusers.is_empty() && self.rings.iter().all(Option::is_none)
    }

    /// Has its neighbour reached through sockets from now on. False if the neighbour has opened the ring meanwhile.
    #[cold]
    pub(super) fn give_up(&mut self, place: usize) -> bool {
        let ring = self.rings[place].as_mut();
        let Some(to) = ring.and_then(Outgoing::take_back) else {
            return false;
        };
        self.refusers.push(to);
        self.forget(place);
        true
    }

    /// The reader of a ring has closed it, or has ended. One that lives closes a ring that is damaged.
    #[cold]
    pub(super) fn drop_ring(&mut self, place: usize, membership: &Membership) {
        let reader = self.rings[place].as_ref().map(|ring| ring.to);
        if reader.is_some_and(|reader| !membership.is_alive(reader)) {
            let through = self.routes.iter();
            let through = through.filter(|(_, route)| route.ring == Some(place));
            self.gone.extend(through.map(|(&to, _)| to));
        }
        self.forget(place);
    }

    /// A ring is no use any more: what goes there goes through sockets, until the next look.
    #[cold]
    pub(super) fn forget(&mut self, place: usize) {
        self.rings[place] = None;
        self.last = None;
        self.lent.take_if(|lent| *lent == place);
        self.routes.retain(|_, route| route.ring != Some(place));
    }
}
