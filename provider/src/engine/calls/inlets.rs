//! The inlets of all queues, by place in the shard.

use std::sync::Arc;

use urxe_core::LateReceives;
use urxe_core::srq::SrqId;
use urxe_core::table::QpIndex;
use urxe_core::work::RecvQueue;

use super::post::QpShared;
use super::srq::SrqShared;
use crate::engine::carrier::sockets::ListensAt;

/// A QP as the engine keeps it.
#[derive(Debug)]
pub(crate) struct QpSlot {
    pub(crate) shared: Arc<QpShared>,
    /// The addresses with sockets that it keeps active.
    pub(crate) listens_at: ListensAt,
}

#[derive(Debug, Default)]
pub(crate) struct Inlets {
    pub(crate) qps: Vec<Option<QpSlot>>,
    pub(crate) srqs: Vec<Option<Arc<SrqShared>>>,
}

/// What was posted while this thread drives the engine. Its bell has rung, and is answered later: it may have rung
/// after this thread last looked at the bells, but before the peer sent the packet at hand.
impl LateReceives for Inlets {
    #[cold]
    fn of_qp(&self, qp: QpIndex, queue: &mut RecvQueue) {
        if let Some(Some(slot)) = self.qps.get(qp.0 as usize) {
            slot.shared.take_late(queue);
        }
    }

    #[cold]
    fn of_srq(&self, srq: SrqId, queue: &mut RecvQueue) {
        if let Some(Some(srq)) = self.srqs.get(srq.0 as usize) {
            srq.take_late(queue);
        }
    }
}
