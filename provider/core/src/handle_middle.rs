//! Receiving packets in the middle of a message, several at once.

use crate::context::{Cx, Env};
use crate::cq::CqSink;
use crate::memory::Memory;
use crate::path::RxPath;
use crate::qp::middle::MiddlePackets;
use crate::shard::Shard;

impl Shard {
    /// Takes packets of a train from the first on that are in the middle of a message, as far as nothing is out of the ordinary about them. Returns
    /// how many were taken; the next one is for [`Shard::handle_one_of`]. This is one of the series that [`Shard::settle_rest`] ends.
    pub fn handle_middle<M: Memory, C: CqSink>(
        &mut self,
        path: &RxPath,
        packets: MiddlePackets<'_>,
        env: &mut Env<'_, M, C>,
    ) -> usize {
        let found = packets.dest_qp().and_then(|qpn| self.qps.find(qpn));
        let Some((index, qp)) = found.and_then(|index| Some((index, self.qps.at_mut(index)?)))
        else {
            return 0;
        };
        let taken = qp.take_middle(path, packets, &mut Cx::new(env, &mut self.common));
        let reconsiders = qp.req.reconsiders;
        self.common.stats.rcvd_pkts += u64::from(taken);
        if taken > 0 {
            if reconsiders {
                self.reconsider(index, env.now);
            }
            self.settle_later(index);
        }
        taken as usize
    }
}
