//! The ACK of the last message, when a connection ends here. A peer that misses it sends its message again, and nothing answers
//! any more: the message fails there, though this side has completed it. So where packets of the connection were lost, the last
//! ACK leaves some times more before its QP goes. A requester that has it already drops it.

use crate::qp::Qp;

/// How often the last ACK is said again. `ibv_rc_pingpong` over a network that loses 2.5 % of the packets fails once in
/// twenty runs without copies.
pub const LAST_ACK_COPIES: u32 = 3;

impl Qp {
    /// Owes the ACK of the last message again, if that may be needed.
    #[cold]
    pub(crate) fn owe_last_ack(&mut self) -> bool {
        let is_answered = self.resp.epsn == self.attr.rq_psn || self.resp.answered_last;
        let owes = !self.is_unreliable()
            && self.state().takes_requests()
            && self.has_lost()
            && !is_answered
            && !self.resp.owes_response();
        if owes {
            self.resp.ack.owe_now();
        }
        owes
    }

    /// Packets were sent again, in one direction or the other, or came without those before them.
    fn has_lost(&self) -> bool {
        let (req, resp) = (&self.req.counts, &self.resp.counts);
        let lost = [
            req.retransmitted_pkts,
            resp.duplicate_request,
            resp.out_of_seq_request,
        ];
        lost.iter().any(|&count| count > 0)
    }
}
