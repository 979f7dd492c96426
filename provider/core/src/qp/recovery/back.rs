//! Go-back-N: everything from the oldest unacknowledged packet on is sent again, by the same code as
//! the first time.

use urxe_wire::{Packet, Psn, RnrTimer};

use crate::context::{Cx, Host};
use crate::error::Fault;
use crate::qp::completer::Reach;
use crate::qp::recovery::retry::Expired;
use crate::qp::requester::Requester;
use crate::qp::{Link, Qp};
use crate::time::Time;
use crate::transmit::TxDest;

impl Requester {
    /// Goes back to the oldest unacknowledged PSN.
    pub(crate) fn rewind(&mut self) {
        debug_assert!(self.selective.is_none(), "what is lost is known");
        self.cursor = self.sq.head();
        self.next_psn = self.una;
        self.rd_inflight = 0;
        self.rtt.forget();
        self.probe.stop();
        if let Some(congestion) = &mut self.congestion {
            congestion.on_rewind();
            self.retry.await_send();
        }
        mark!(MessageResumedMidway if self.resumes_message());
    }

    /// What is sent next is in the middle of a SEND or WRITE.
    #[cfg(feature = "marks")]
    fn resumes_message(&self) -> bool {
        self.cursor != self.started && {
            let wqe = self.sq.wqe(self.cursor);
            !wqe.opcode.is_read_or_atomic() && wqe.first_psn != self.next_psn
        }
    }

    /// A late acknowledgement may overtake the cursor on its way through packets that are sent again.
    #[inline]
    pub(crate) fn skip_acknowledged(&mut self) {
        if self.next_psn.is_before(self.una) {
            mark!(AckOvertookCursor);
            self.next_psn = self.una;
            self.cursor = self.sq.head();
        }
    }

    /// A response beyond one that never came: the missing one was lost (implied NAK,
    /// IBTA 9.7.5.1.4 in substance).
    pub(crate) fn on_response_missing<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        self.count_implied_nak(cx);
        if link.peer.is_known() || self.keeps_answers(cx.common.config.recovery) {
            return self.take_selectively(link, packet, cx);
        }
        self.go_back(cx)
    }

    fn count_implied_nak<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        mark!(ImpliedNak);
        cx.common.stats.implied_nak += 1;
        self.counts.implied_nak += 1;
    }

    pub(crate) fn go_back<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) -> Result<(), Fault> {
        if self.may_go_back(self.una, cx)? {
            mark!(WentBack);
            self.rewind();
        }
        Ok(())
    }

    /// The peer misses `psn`, which was lost with all behind it. False if that is known.
    pub(super) fn may_go_back<H: Host>(
        &mut self,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<bool, Fault> {
        match self.retry.on_sequence_error(cx.now(), psn, self.una) {
            Ok(true) => {
                cx.common.stats.completer_retry_err += 1;
                tell!(DEBUG, psn = psn.get(), "packets are missing: sends again");
                self.on_loss(1, cx.now());
                Ok(true)
            }
            Ok(false) => {
                mark!(RepeatedNakIgnored);
                Ok(false)
            }
            Err(_) => {
                mark!(SequenceRetriesExhausted);
                cx.common.stats.retry_exceeded_err += 1;
                Err(Fault::SequenceExhausted)
            }
        }
    }

    pub(crate) fn on_rnr_nak<H: Host>(
        &mut self,
        timer: RnrTimer,
        psn: Psn,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        if link.peer.is_known() {
            return self.take_selectively(link, packet, cx);
        }
        cx.common.stats.rcvd_rnr_err += 1;
        self.counts.rcvd_rnr_err += 1;
        tell!(
            DEBUG,
            qpn = link.qpn.get(),
            psn = psn.get(),
            "the peer has no receive: waits"
        );
        if self.acknowledge(psn, link, cx) == Reach::ResponseMissing {
            // What was refused is behind what is missing, and nothing is kept by a peer that refuses.
            self.count_implied_nak(cx);
            return self.go_back(cx);
        }
        if self.wait_for_receive(timer, cx)? {
            self.rewind();
        }
        Ok(())
    }

    /// The peer has no receive: nothing is sent for a time. False if it is waited already.
    pub(crate) fn wait_for_receive<H: Host>(
        &mut self,
        timer: RnrTimer,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<bool, Fault> {
        if self.retry.waits_for_rnr() {
            mark!(RnrNakWhileWaiting);
            return Ok(false);
        }
        if self.retry.on_rnr(cx.now(), timer, self.una).is_err() {
            mark!(RnrExhausted);
            cx.common.stats.retry_rnr_exceeded_err += 1;
            return Err(Fault::RnrExhausted);
        }
        Ok(true)
    }
}

impl Qp {
    /// Sends again if the answer is late, or gives up.
    pub(crate) fn handle_late_answer<H: Host>(
        &mut self,
        waits: &mut impl FnMut(&TxDest, Time) -> bool,
        cx: &mut Cx<'_, '_, H>,
    ) {
        self.req.look_at_clock(&self.link, cx.now());
        if let Some(since) = self.req.retry.late_since(cx.now())
            && (self.req.holds_oldest() || waits(&self.link.dest, since))
        {
            self.req.retry.wait_again(cx.now());
        }
        match self.req.retry.expire(cx.now(), self.req.una) {
            Expired::Nothing => self.req.probe(cx.now()),
            Expired::RnrOver => mark!(RnrWaitOver),
            Expired::AckTimeout => {
                mark!(AckTimeout);
                cx.common.stats.ack_timeout += 1;
                cx.common.stats.completer_retry_err += 1;
                self.req.counts.ack_timeout += 1;
                tell!(
                    DEBUG,
                    qpn = self.link.qpn.get(),
                    psn = self.req.una.get(),
                    "no answer in time: sends again"
                );
                let keeps_answers = self.req.is_trying(&self.link) && self.req.has_reads();
                if self.link.peer.is_known() || keeps_answers {
                    self.req.trial.stop();
                    return self.req.resend_ends(&self.link, cx.now());
                }
                self.req.end_trial(cx.common);
                self.req.on_silence(cx.now());
                self.req.rewind();
            }
            Expired::GiveUp => {
                mark!(TimeoutsExhausted);
                cx.common.stats.retry_exceeded_err += 1;
                self.fail_send(Fault::AckTimeout, None, cx);
            }
        }
    }
}
