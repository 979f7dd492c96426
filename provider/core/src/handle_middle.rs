//! Receiving packets in the middle of a message, several at once.

use crate::context::{Cx, Env};
use crate::cq::CqSink;
use crate::memory::Memory;
use crate::path::RxPath;
use crate::qp::middle::MiddlePackets;
use crate::shard::Shard;

impl Shard {
    /// Takes packets that follow, in a train, one that [`Shard::handle_one_of`] was given just before: those in the middle of the same message,
    /// as far as nothing is out of the ordinary about them. Returns how many were taken; the next one is for [`Shard::handle_one_of`].
    pub fn handle_middle<M: Memory, C: CqSink>(
        &mut self,
        path: &RxPath,
        packets: MiddlePackets<'_>,
        env: &mut Env<'_, M, C>,
    ) -> usize {
        let Some(index) = self.unsettled else {
            return 0;
        };
        let Some(qp) = self.qps.at_mut(index) else {
            return 0;
        };
        let taken = qp.take_middle(path, packets, &mut Cx::new(env, &mut self.common));
        let reconsiders = qp.req.reconsiders;
        self.common.stats.rcvd_pkts += u64::from(taken);
        if reconsiders {
            self.reconsider(index, env.now);
        }
        taken as usize
    }
}
