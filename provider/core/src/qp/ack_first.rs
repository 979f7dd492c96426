//! An ACK that goes before the QP's own next request.
//!
//! Adapters acknowledge a message as it arrives, so the sender sees the completion of its own
//! send first and that of the answer second. Programs that work by events rely on that:
//! their state machines take completions in the order in which they come, and
//! perftest's `ib_send_lat -e` takes the first event for its send. An ACK that is
//! held back for the answer to carry the news would turn the two around.
//!
//! A program that only polls gets its ACKs held back all the same: an ACK before each
//! answer costs a third of the latency of a ping-pong (docs/PERFORMANCE.md).

use crate::context::Cx;
use crate::cq::CqSink;
use crate::memory::Memory;
use crate::qp::Qp;
use crate::qp::respond::RespondStep;
use crate::transmit::TxBatch;

impl Qp {
    /// Puts the owed ACK into the batch, if a request of this QP would leave before it and
    /// the program (whose peer is most likely the same program) works by events.
    #[cold]
    pub(super) fn ack_before_requests<M: Memory, C: CqSink>(
        &mut self,
        cx: &mut Cx<'_, '_, M, C>,
        batch: &mut TxBatch,
    ) -> RespondStep {
        if !self.resp.ack.is_owed() || !self.can_send() || !cx.env.cqs.was_armed(self.link.send_cq)
        {
            return RespondStep::Nothing;
        }
        self.resp.poll_ack(&self.link, cx, batch)
    }
}
