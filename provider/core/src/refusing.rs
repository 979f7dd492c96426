//! Peers that take no packets of this side.

use core::net::IpAddr;

use crate::context::{Cx, Env};
use crate::cq::CqSink;
use crate::memory::Memory;
use crate::qp::Qp;
use crate::shard::Shard;
use crate::table::QpIndex;

impl Shard {
    /// Fails the connections to a peer that takes no packets of this side, as what carries them has found out. Looks at all QPs.
    pub fn fail_peer<M: Memory, C: CqSink>(
        &mut self,
        (local, remote): (IpAddr, IpAddr),
        env: &mut Env<'_, M, C>,
    ) {
        let is_to = |qp: &Qp| qp.link.dest.remote == remote && qp.link.local == local;
        let those = self.qps.iter().filter(|(_, qp)| is_to(qp));
        let those: Vec<QpIndex> = those.map(|(index, _)| index).collect();
        for index in those {
            if let Some(qp) = self.qps.at_mut(index) {
                qp.on_refused(&mut Cx::new(env, &mut self.common));
            }
            self.settle(index);
        }
        self.cm(|agent| agent.give_up_peer(remote));
    }
}
