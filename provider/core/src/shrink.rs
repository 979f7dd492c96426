//! Tables made smaller when very many QPs or connections are gone. The shard's driver decides when: it looks at
//! all places, and so is nothing for each QP that goes.

use crate::cm::CmPlaces;
use crate::shard::Shard;
use crate::table::Occupancy;

/// Places that a shard's tables have: a caller's table by place needs no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// Places of QPs.
    pub qps: usize,
    /// Places of shared receive queues.
    pub srqs: usize,
    /// Places of the connection manager; `None` without one.
    pub cm: Option<CmPlaces>,
}

impl Shard {
    /// How many places for QPs there are, and how many are in use.
    #[inline]
    pub fn occupancy(&self) -> Occupancy {
        self.qps.occupancy()
    }

    /// How many places for connections (and what is left of them) there are, and how many are in use.
    #[inline]
    pub fn cm_occupancy(&self) -> Occupancy {
        let agent = self.management.agent();
        agent.map_or_else(Occupancy::default, |agent| agent.occupancy())
    }

    /// Gives up what tables hold for QPs and connections that are gone, where hardly any of very many are left
    /// ([`Occupancy::is_sparse`]); QPNs and connections' ids come back as late as before. Looks at all places.
    pub fn shrink(&mut self) -> Places {
        self.qps.shrink();
        let qps = self.qps.occupancy();
        self.timers.shrink(qps.places);
        // Places for every QP, as creating one promises.
        let kept = qps.used.max(Occupancy::KEPT);
        self.turns.shrink(kept);
        self.paced.shrink_to(kept);
        self.notifies.shrink_to(Occupancy::KEPT);
        self.common.events.shrink_to(Occupancy::KEPT);
        Places {
            qps: qps.places,
            srqs: self.common.srqs.shrink(),
            cm: self.management.shrink(),
        }
    }
}
