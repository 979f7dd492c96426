//! Peers that take no packets of this side, or are gone.

use core::net::IpAddr;

use crate::context::{Cx, Env};
use crate::cq::CqSink;
use crate::memory::Memory;
use crate::qp::Qp;
use crate::qpn_table::QpnChunk;
use crate::shard::Shard;
use crate::table::QpIndex;

impl Shard {
    /// Fails the connections to a peer that takes no packets of this side, as what carries them has found out. Looks at all QPs.
    pub fn fail_peer<M: Memory, C: CqSink>(
        &mut self,
        (local, remote): (IpAddr, IpAddr),
        env: &mut Env<'_, M, C>,
    ) {
        let is_to = |qp: &Qp| qp.link.dest.remote == remote && qp.link.dest.local == local;
        for index in self.those(is_to) {
            if let Some(qp) = self.qps.at_mut(index) {
                qp.on_refused(&mut Cx::new(env, &mut self.common));
            }
            self.settle(index);
        }
        self.cm(|agent| agent.give_up_peer(remote));
    }

    /// Fails the requests that wait for an owner of QPNs that has ended. Looks at all QPs.
    pub fn fail_gone<M: Memory, C: CqSink>(
        &mut self,
        (remote, chunk): (IpAddr, QpnChunk),
        env: &mut Env<'_, M, C>,
    ) {
        let is_to =
            |qp: &Qp| qp.link.dest.remote == remote && QpnChunk::of(qp.link.dest_qpn) == chunk;
        for index in self.those(is_to) {
            if let Some(qp) = self.qps.at_mut(index) {
                qp.on_peer_gone(&mut Cx::new(env, &mut self.common));
            }
            self.settle(index);
        }
    }

    fn those(&self, wanted: impl Fn(&Qp) -> bool) -> Vec<QpIndex> {
        let those = self.qps.iter().filter(|(_, qp)| wanted(qp));
        those.map(|(index, _)| index).collect()
    }
}
