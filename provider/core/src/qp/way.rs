//! A QP among those that send to its destination ([`crate::destinations`]).

use crate::config::ShardConfig;
use crate::destinations::Destinations;
use crate::qp::Qp;
use crate::qp::window::SHORT_COST;

impl Qp {
    /// Has its part of what may be under way there; whether it needs one may have changed.
    #[inline]
    pub(crate) fn settle_way(&mut self, destinations: &mut Destinations, config: &ShardConfig) {
        let is_busy = !self.req.sq.is_empty();
        if !is_busy && self.way.is_idle() {
            return;
        }
        let packets = if is_busy { self.req.under_way() } else { 0 };
        let each = match self.req.has_long() {
            true => self.link.mtu,
            false => self.link.mtu.min(SHORT_COST),
        };
        let bytes = packets.saturating_mul(each);
        let rtt = self.req.rtt.min();
        if let Some(allowed) = destinations.settle(&mut self.way, is_busy, bytes, rtt, config) {
            self.req.window.set_part(allowed / self.link.mtu);
        }
    }

    /// Its attributes changed: it may have a destination now, or another one.
    pub(crate) fn find_way(&mut self, destinations: &mut Destinations, config: &ShardConfig) {
        let has_window = !self.is_unreliable() && self.state().takes_responses();
        // A long road holds more than a receiver's buffer, and less of it comes at once.
        let has_window = has_window && !self.req.follows_path();
        let addr = has_window.then_some(self.link.dest.remote);
        destinations.find(self.link.index, &mut self.way, addr, config);
    }
}
