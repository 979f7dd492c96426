//! A lone answer and the ACK that goes before it, as one train (a pair, if the answer is one packet).
//!
//! An ACK leaves before what may answer the message. A packet of its own would make a ping-pong of short messages a third
//! slower, and the two cannot be one train in this order, as only the last packet of a train may be shorter. A neighbour
//! on the same host gets a train whole, so the order within it is the receiver's choice: the ACK ends the train, and a receiver takes
//! the ACK of a pair first ([`ends_pair`]).

use urxe_wire::Opcode;
use urxe_wire::Service;

use crate::context::{Cx, Host};
use crate::qp::Qp;
use crate::qp::respond::RespondStep;
use crate::qp::state::QpState;
use crate::transmit::TxBatch;
use crate::work::{SendWqe, WrOpcode};

/// Bytes of an ACK: BTH, AETH and ICRC.
pub const ACK_LEN: usize = 20;
/// A message of so many bytes is no longer than an ACK (BTH, payload and ICRC): the two are a train with the ACK first.
const SHORT_MAX: u32 = 4;

/// Packets of a longer answer that may be one train with its ACK.
const ANSWER_MAX: u32 = 16;

/// True of a train of which the last packet is to be handled first: an ACK behind requests.
#[inline]
pub fn ends_pair<'a>(last: &[u8], mut others: impl Iterator<Item = &'a [u8]>) -> bool {
    let opcode = |packet: &[u8]| packet.first().copied().map(Opcode);
    last.len() == ACK_LEN
        && opcode(last) == Some(Opcode::RC_ACKNOWLEDGE)
        && others.all(|packet| {
            let info = opcode(packet).and_then(Opcode::info);
            info.is_some_and(|info| info.service == Service::Rc && !info.is_response())
        })
}

impl Qp {
    /// True if what the QP sends next is one request, and an ACK before it would be all that leaves beside it: they
    /// may leave as a pair.
    #[inline]
    pub(crate) fn has_pair(&self) -> bool {
        let is_alone = self.req.selective.is_none();
        if !self.link.takes_pairs
            || !self.resp.ack.may_end_pair()
            || self.resp.owes_response()
            || !is_alone
        {
            return false;
        }
        let req = &self.req;
        let is_last = req.cursor == req.started && req.cursor + 1 == req.sq.tail();
        is_last && self.state() == QpState::Rts && req.congestion.is_none() && {
            let wqe = req.sq.wqe(req.cursor);
            !wqe.opcode.is_local() && !wqe.opcode.is_read_or_atomic() && self.fills_one_train(wqe)
        }
    }

    /// True if its packets, and an ACK behind them, are one train: of one length all but the last.
    fn fills_one_train(&self, wqe: &SendWqe) -> bool {
        let mtu = self.link.mtu;
        match wqe.length {
            0..=SHORT_MAX => false,
            length if length <= mtu => true,
            // The first packet of a WRITE, and the last one with immediate data, are longer.
            length => {
                wqe.opcode == WrOpcode::Send
                    && length.is_multiple_of(mtu)
                    && length / mtu <= ANSWER_MAX
            }
        }
    }

    /// Ends the pair, if the request is in the batch. False if it is not, or the QP failed.
    pub(crate) fn end_pair<H: Host>(
        &mut self,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> bool {
        if batch.runs().len() != 1 || !self.resp.ack.is_owed() {
            return false;
        }
        self.resp.ack.on_answer();
        let step = self.resp.poll_ack(&self.link, cx, batch);
        debug_assert!(!matches!(step, RespondStep::BatchFull));
        true
    }
}
