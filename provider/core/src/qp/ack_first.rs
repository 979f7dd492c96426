//! An ACK that goes before the QP's own next request.
//!
//! A program whose send queue and receive queue of completions share a channel is told by
//! events which of the two to look at. Adapters acknowledge a message as it arrives, so
//! the sender hears of its own send first and of the answer to it second; programs rely on
//! that (perftest's `ib_send_lat -e` takes the first event for its send). An ACK that is
//! held back for the answer to carry the news would turn the two around.

use crate::context::Cx;
use crate::cq::CqSink;
use crate::memory::Memory;
use crate::qp::Qp;
use crate::qp::respond::RespondStep;
use crate::transmit::TxBatch;

impl Qp {
    /// Puts the owed ACK into the batch, if a request of this QP would leave before it and
    /// the program (whose peer is most likely the same program) waits for events.
    #[cold]
    pub(super) fn ack_before_requests<M: Memory, C: CqSink>(
        &mut self,
        cx: &mut Cx<'_, '_, M, C>,
        batch: &mut TxBatch,
    ) -> RespondStep {
        if !self.resp.ack.is_owed() || !self.can_send() || !cx.env.cqs.is_armed(self.link.send_cq) {
            return RespondStep::Nothing;
        }
        self.resp.poll_ack(&self.link, cx, batch)
    }
}
