//! A QP among those that send to its destination ([`crate::destinations`]).

use crate::config::ShardConfig;
use crate::destinations::Destinations;
use crate::qp::Qp;

impl Qp {
    /// Has its part of what may be under way there; whether it needs one may have changed.
    #[inline]
    pub(crate) fn settle_way(&mut self, destinations: &mut Destinations, config: &ShardConfig) {
        let is_busy = !self.req.sq.is_empty();
        let packets = if is_busy { self.req.outstanding() } else { 0 };
        let bytes = packets.saturating_mul(self.link.mtu);
        if let Some(allowed) = destinations.settle(&mut self.way, is_busy, bytes, config) {
            self.req.window.set_part(allowed / self.link.mtu);
        }
    }

    /// Its attributes changed: it may have a destination now, or another one.
    pub(crate) fn find_way(&mut self, destinations: &mut Destinations, config: &ShardConfig) {
        let has_window = !self.is_unreliable() && self.state().takes_responses();
        let addr = has_window.then_some(self.link.dest.remote);
        destinations.find(self.index, &mut self.way, addr, config);
    }
}
