//! What changes when packets of requests have left.

use crate::context::{Cx, Host};
use crate::qp::Link;
use crate::qp::requester::Requester;
use crate::qp::window::SHORT_BYTES;
use crate::work::WrOpcode;

impl Requester {
    /// Moves the cursor over packets that stand for `span` PSNs. If they are several, the last one may ask for an answer, and none begins or
    /// ends a message.
    #[inline(always)]
    pub(crate) fn on_sent<H: Host>(
        &mut self,
        (packets, span): (u32, u32),
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) {
        cx.common.stats.sent_pkts += u64::from(packets);
        let wqe = self.sq.wqe(self.cursor);
        let (opcode, first_psn, last_psn) = (wqe.opcode, wqe.first_psn, wqe.last_psn);
        let is_long = wqe.length > SHORT_BYTES;
        let is_new = !self.next_psn.is_before(self.sent_end);
        if is_new && (self.next_psn == first_psn || opcode == WrOpcode::RdmaRead) {
            // Every READ request is a message of its own to the responder's MSN.
            self.credit.on_start(opcode.takes_credit());
            cx.common.stats.sent_messages += 1;
        }
        if self.is_answer_due {
            let asking = self.next_psn.add(packets - 1);
            self.on_asked(asking, is_new, span, cx.now());
        }
        let psn = self.next_psn;
        self.next_psn = psn.add(span);
        if is_new {
            self.sent_end = self.next_psn;
            if self.selective.is_some() {
                self.note_new(psn, span, opcode, link, cx.now());
            }
            self.note_length(is_long);
        } else {
            cx.common.stats.retransmitted_pkts += 1;
            self.counts.retransmitted_pkts += 1;
        }
        if self.next_psn.is_after(last_psn) {
            self.cursor += 1;
        }
        self.await_answer(link, cx);
        if self.probe.is_due() {
            self.probe.note(self.una);
            self.end_probe();
        }
    }

    /// Moves the cursor over messages of this length, of one packet each, which all are new and ask for an answer, and of which the credits know.
    #[inline]
    pub(super) fn on_sent_only<H: Host>(
        &mut self,
        count: u32,
        length: u32,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) {
        cx.common.stats.sent_pkts += u64::from(count);
        cx.common.stats.sent_messages += u64::from(count);
        self.is_answer_due = true;
        self.on_asked(self.next_psn, true, 1, cx.now());
        self.next_psn = self.next_psn.add(count);
        (self.sent_end, self.assign_psn) = (self.next_psn, self.next_psn);
        self.note_length(length > SHORT_BYTES);
        self.cursor += u64::from(count);
        self.started = self.cursor;
        self.await_answer(link, cx);
    }

    /// New packets left, of a long message or a short one. (Those that are sent again were long or short before.)
    #[inline]
    fn note_length(&mut self, is_long: bool) {
        if is_long {
            self.long_end = self.next_psn;
        } else if !self.has_long() {
            self.long_end = self.una;
        }
    }

    /// Something left that the peer is to answer.
    #[inline]
    fn await_answer<H: Host>(&mut self, link: &Link, cx: &mut Cx<'_, '_, H>) {
        self.retry.on_sent(cx.env.now);
        // Memory loses nothing by itself.
        if !link.dest.in_memory || cx.common.config.memory_loses {
            self.probe.on_sent(self.patience(), cx.env.now);
        }
    }
}
