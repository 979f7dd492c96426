//! Tables made smaller when very many connections are gone.

use super::agent::Agent;
use crate::table::Occupancy;

/// Places that an agent's tables have: a caller's table by place needs no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmPlaces {
    /// Places of connections, and so of ids.
    pub conns: usize,
    /// Places of listeners.
    pub listeners: usize,
}

impl Agent {
    /// How many places for connections there are, and how many are in use.
    pub fn occupancy(&self) -> Occupancy {
        self.conns.occupancy()
    }

    /// Gives up what tables hold for connections and listeners that are gone, where hardly any of very many are left
    /// ([`Occupancy::is_sparse`]). Looks at all places.
    pub(crate) fn shrink(&mut self) -> CmPlaces {
        self.conns.shrink();
        let places = CmPlaces {
            conns: self.conns.occupancy().places,
            listeners: self.listeners.shrink(),
        };
        self.timers.shrink(places.conns);
        self.out.shrink_to(Occupancy::KEPT);
        self.events.shrink_to(Occupancy::KEPT);
        self.handshakes.shrink_to(Occupancy::KEPT);
        self.released.shrink_to(Occupancy::KEPT);
        self.changes.places.shrink_to(Occupancy::KEPT);
        places
    }
}
