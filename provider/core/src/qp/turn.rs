//! The turn of a QP: what it sends when the shard lets it.

use crate::ack_policy::AckMode;
use crate::context::{Cx, Host};
use crate::qp::Qp;
use crate::qp::requester::{RC_OPCODES, SendStep};
use crate::qp::respond::RespondStep;
use crate::transmit::TxBatch;
use crate::turns::{Budget, Turn};

impl Qp {
    /// Sends what is due: responses first, then requests.
    pub(crate) fn take_turn<H: Host>(
        &mut self,
        acks: AckMode,
        budget: &mut Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Turn {
        if self.is_unreliable() {
            return self.take_unreliable_turn(budget, cx, batch);
        }
        if self.req.congestion.is_some() {
            return self.take_controlled_turn(budget, cx, batch);
        }
        // Neither direction waits until the other has nothing left.
        let both = self.resp.owes_response() && self.can_send();
        let skips_responses = both && self.requests_next;
        self.requests_next = both && !skips_responses;
        while self.resp.owes_response() && !skips_responses && !budget.is_used_up(batch) {
            match self.respond(cx, batch) {
                RespondStep::Sent => self.resp.send_middle(&self.link, budget, cx, batch),
                RespondStep::BatchFull => return Turn::BatchFull,
                RespondStep::Nothing => break,
            }
        }
        // Owed since the last READ response before it has left.
        if let RespondStep::BatchFull = self.send_ack(acks, cx, batch) {
            return Turn::BatchFull;
        }
        let (sends, more) = match self.send_requests(budget, cx, batch) {
            Ok(counts) => counts,
            Err(turn) => return turn,
        };
        if sends > 0 {
            self.resp.ack.on_requests(cx.now());
        }
        if more || self.resp.owes_response() {
            Turn::Again
        } else {
            Turn::Idle
        }
    }

    /// Returns the number of packets sent, and whether more could be.
    #[inline]
    fn send_requests<H: Host>(
        &mut self,
        budget: &mut Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<(u32, bool), Turn> {
        let Some(may_start) = self.may_start() else {
            return Ok((0, false));
        };
        let mut sends = 0;
        while !budget.is_used_up(batch) {
            match self.req.poll_packet(&self.link, may_start, cx, batch) {
                SendStep::Sent => {
                    sends += 1 + self.send_more(may_start, budget, cx, batch);
                    // As [`Requester::blocked`] would say; most turns end here.
                    if !self.is_backlogged() && self.req.selective.is_none() {
                        return Ok((sends, false));
                    }
                }
                SendStep::Local => budget.local += 1,
                SendStep::BatchFull => {
                    mark!(BatchFull);
                    return Err(Turn::BatchFull);
                }
                SendStep::Blocked => {
                    self.on_blocked(cx);
                    return Ok((sends, false));
                }
            }
        }
        Ok((sends, true))
    }

    /// Sends what can leave as a row behind a packet that has just been put into the batch. Returns the number of packets.
    #[inline]
    fn send_more<H: Host>(
        &mut self,
        may_start: bool,
        budget: &Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> u32 {
        if self.link.opcodes != RC_OPCODES {
            return 0;
        }
        if self.req.cursor != self.req.started {
            self.req.send_middle(&self.link, budget, cx, batch)
        } else if may_start && self.is_backlogged() {
            self.req.send_only(&self.link, budget, cx, batch)
        } else {
            0
        }
    }

    /// No request can leave now: perhaps because the oldest one failed locally.
    #[inline(always)]
    pub(super) fn on_blocked<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        if let Some(fault) = self.req.oldest_local_fault() {
            self.fail_send(fault, None, cx);
            self.after(cx);
        }
    }
}
