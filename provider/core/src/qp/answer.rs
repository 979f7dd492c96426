//! What a QP owes its peer in small packets: ACKs, NAKs and results of atomics. The shard sends them
//! before all data, its own and that of others.

use crate::ack_policy::AckMode;
use crate::context::{Cx, Host};
use crate::qp::Qp;
use crate::qp::respond::RespondStep;
use crate::time::Time;
use crate::transmit::TxBatch;

/// What came of an attempt to send everything that is owed.
pub(crate) enum Answered {
    /// It is in the batch, or must wait for READ responses before it.
    All,
    /// Only an ACK is left, which is held back until this time.
    Held(Time),
    /// The batch is full.
    BatchFull,
}

impl Qp {
    /// True if an answer is due that waits for nothing.
    #[inline]
    pub(crate) fn owes_answer(&self) -> bool {
        self.resp.owes_anything() && (!self.resp.replay.is_due() || self.owes_result())
    }

    /// True if it owes more than an ACK that can be held back. Under congestion control ACKs are not: the peer measures by them.
    #[inline]
    pub(crate) fn owes_more(&self) -> bool {
        self.resp.owes_response() || self.req.congestion.is_some()
    }

    /// True if the response that is due has no data. Under congestion control responses leave when it lets them, with
    /// the data.
    #[inline]
    pub(super) fn owes_result(&self) -> bool {
        self.req.congestion.is_none() && self.resp.replay.owes_result()
    }

    /// Sends what is owed.
    pub(crate) fn answer<H: Host>(
        &mut self,
        acks: AckMode,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Answered {
        while self.resp.nak_owed.is_some() || self.resp.replay.is_due() {
            if self.resp.replay.is_due() && !self.owes_result() {
                return Answered::All;
            }
            if let RespondStep::BatchFull = self.respond(cx, batch) {
                return Answered::BatchFull;
            }
        }
        if self.resp.ack.is_owed() && self.can_send() {
            self.resp.ack.on_answer();
        }
        let acks = match self.req.congestion {
            // The peer measures by them.
            Some(_) => acks.before_data(),
            None => acks,
        };
        match self.send_ack(acks, cx, batch) {
            RespondStep::BatchFull => Answered::BatchFull,
            RespondStep::Nothing if self.resp.ack.is_owed() => {
                Answered::Held(self.resp.ack.due_at())
            }
            _ => Answered::All,
        }
    }

    /// Sends the next response, result or NAK.
    pub(super) fn respond<H: Host>(
        &mut self,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> RespondStep {
        loop {
            match self.resp.poll_response(&self.link, cx, batch) {
                Ok(step) => return step,
                Err(refusal) => {
                    cx.common.stats.responder_err += 1;
                    self.fail_recv(refusal, None, cx);
                    self.after(cx);
                }
            }
        }
    }

    /// Sends the ACK that is owed, unless it is held back; not before a response that is due.
    pub(super) fn send_ack<H: Host>(
        &mut self,
        acks: AckMode,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> RespondStep {
        if !self.resp.ack.is_owed() {
            return RespondStep::Nothing;
        }
        let leaves = match acks {
            AckMode::Now => true,
            AckMode::Patient => self.resp.ack.is_due(cx.now()),
            AckMode::Defer | AckMode::Withhold => false,
            AckMode::Answered => self.resp.ack.is_unanswered(cx.now()),
        };
        if !leaves {
            mark!(AckHeldBack);
            return RespondStep::Nothing;
        }
        self.resp.poll_ack(&self.link, cx, batch)
    }
}
