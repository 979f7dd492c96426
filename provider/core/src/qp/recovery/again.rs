//! Sending again what the board has for lost.

use urxe_wire::Psn;

use crate::context::{Cx, Host};
use crate::qp::Link;
use crate::qp::recovery::ahead::SPAN_MAX;
use crate::qp::requester::{RC_OPCODES, Requester, SendStep};
use crate::qp::xrc::XRC_OPCODES;
use crate::transmit::TxBatch;
use crate::work::{SendWqe, WrOpcode};

impl Requester {
    /// The next packet is one that is sent again.
    #[cold]
    pub(crate) fn may_send_again(&self) -> bool {
        let Some(s) = &self.selective else {
            return false;
        };
        // The oldest one waits for nothing: all others wait for it.
        s.copy.is_some()
            || s.board.has_urgent()
            || s.board.has_lost()
                && (s.board.is_oldest_queued() || self.under_way() < self.window.packets())
    }

    /// So many packets more are no more than a peer keeps ahead of a gap.
    #[cold]
    pub(crate) fn is_within_span(&self, span: u32) -> bool {
        self.outstanding() + span < SPAN_MAX || self.outstanding() == 0
    }

    /// The request that a PSN under way belongs to.
    pub(crate) fn find_request(&self, psn: Psn) -> u64 {
        let (mut low, mut high) = (self.sq.head(), self.started);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.sq.wqe(middle).last_psn.is_before(psn) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Where what the request packet with this PSN stands for ends: of a READ, the answers that it asks for.
    pub(super) fn request_end(&self, psn: Psn) -> Psn {
        let wqe = self.sq.wqe(self.find_request(psn));
        match wqe.opcode {
            WrOpcode::RdmaRead => {
                let at = psn.distance_from(wqe.first_psn);
                wqe.first_psn.add(self.chunk_end(wqe, at))
            }
            _ => psn.next(),
        }
    }

    /// Sends the next lost packet again.
    #[cold]
    pub(crate) fn send_again<H: Host>(
        &mut self,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> SendStep {
        if let Some(psn) = self.selective.as_ref().and_then(|s| s.copy) {
            return self.send_copy(psn, link, cx, batch);
        }
        let Some((number, psn)) = self.next_again() else {
            return SendStep::Blocked;
        };
        let request = self.find_request(psn);
        if self.faulted <= request {
            // It will fail when everything before it is done.
            self.drop_again(number);
            return SendStep::Local;
        }
        let (number, psn) = self.begin_of_read(request, number, psn, link);
        let aside = (
            self.cursor,
            self.next_psn,
            self.rd_inflight,
            self.is_answer_due,
        );
        (self.cursor, self.next_psn) = (request, psn);
        let opcode = self.sq.wqe(request).opcode;
        let sent = if !opcode.is_read_or_atomic() {
            match link.opcodes {
                RC_OPCODES => self.emit_data::<H, { RC_OPCODES }, false>(link, cx, batch),
                _ => self.emit_data::<H, { XRC_OPCODES }, false>(link, cx, batch),
            }
        } else if opcode.is_placement() {
            self.emit_placement(link, cx, batch)
        } else {
            self.emit_read_or_atomic(link, batch)
        };
        (
            self.cursor,
            self.next_psn,
            self.rd_inflight,
            self.is_answer_due,
        ) = aside;
        match sent {
            Ok(Some(span)) => {
                self.on_sent_again(number, span, cx);
                if opcode == WrOpcode::RdmaRead {
                    self.cover_answers(request, psn, span);
                }
                SendStep::Sent
            }
            Ok(None) => SendStep::BatchFull,
            Err(fault) => {
                // It fails when everything before it is done, which may have to be sent again as well.
                mark!(LocalFaultSentAgain);
                self.sq.wqe_mut(request).fault = fault;
                self.faulted = request;
                self.drop_again(number);
                SendStep::Local
            }
        }
    }

    /// Where to ask for a READ again. If the peer has it, at what is lost; else at the beginning of the request that was lost: more
    /// requests than there were would be more than the peer has places for. Linux's rxe repeats nothing that is before what it was
    /// asked to repeat last: toward a peer that may do so, at the first that is missing.
    fn begin_of_read(&self, request: u64, number: u64, psn: Psn, link: &Link) -> (u64, Psn) {
        let wqe = self.sq.wqe(request);
        if wqe.opcode != WrOpcode::RdmaRead {
            return (number, psn);
        }
        let at = psn.distance_from(wqe.first_psn);
        let is_asked = self.is_asked(wqe, at);
        if is_asked && self.may_ask_anything(link) {
            return (number, psn);
        }
        let into = at % wqe.chunk();
        let back = match &self.selective {
            Some(s) if is_asked => s.board.missing_before(number, into),
            _ => into,
        };
        (number - u64::from(back), wqe.first_psn.add(at - back))
    }

    /// The peer has the request that asks for packet `at` of a READ.
    fn is_asked(&self, wqe: &SendWqe, at: u32) -> bool {
        let begin = wqe.first_psn.add(at - at % wqe.chunk());
        let s = self.selective.as_ref();
        begin.is_before(self.una) || s.is_some_and(|s| begin.is_before(s.peer_end))
    }

    /// READ requests and atomics under way, of those that were sent.
    pub(crate) fn count_reads(&self) -> u32 {
        let requests = self.sq.head()..self.started;
        let reads = requests.map(|number| self.sq.wqe(number));
        let sent = reads
            .filter(|wqe| wqe.opcode.is_read_or_atomic() && wqe.first_psn.is_before(self.sent_end));
        sent.map(|wqe| {
            let begin = match wqe.first_psn.is_before(self.una) {
                true => self.una.distance_from(wqe.first_psn),
                false => 0,
            };
            let end = match wqe.last_psn.is_before(self.sent_end) {
                true => wqe.last_psn.distance_from(wqe.first_psn),
                false => self.sent_end.distance_from(wqe.first_psn) - 1,
            };
            let chunk = match wqe.opcode {
                WrOpcode::RdmaRead => wqe.chunk(),
                _ => 1,
            };
            end / chunk - begin / chunk + 1
        })
        .sum()
    }

    fn next_again(&mut self) -> Option<(u64, Psn)> {
        let s = self.selective.as_mut()?;
        let number = s.board.next_lost()?;
        Some((number, s.base.add((number - s.board.una()) as u32)))
    }

    /// What is asked for again reaches to the end of its request, toward a peer that may insist on it: gaps that are found further on in the
    /// first answers need not be asked for once more.
    fn cover_answers(&mut self, request: u64, psn: Psn, span: u32) {
        let wqe = self.sq.wqe(request);
        let is_asked = self.is_asked(wqe, psn.distance_from(wqe.first_psn));
        if let Some(s) = self.selective.as_mut().filter(|_| is_asked) {
            let end = psn.add(span);
            if s.peer_end.is_after(psn) && s.peer_end.is_before(end) {
                let (from, end) = (s.number(s.peer_end), s.number(end));
                s.board.cover(from, end);
            }
        }
    }

    fn drop_again(&mut self, number: u64) {
        if let Some(s) = &mut self.selective {
            s.board.give_up(number);
        }
    }

    fn on_sent_again<H: Host>(&mut self, number: u64, span: u32, cx: &mut Cx<'_, '_, H>) {
        mark!(SentAgain);
        let patience = self.patience_ns();
        if let Some(s) = &mut self.selective {
            let psn = s.base.add((number - s.board.una()) as u32);
            // A peer that does not tell what it has behind a gap answers that, too, only when the gap is filled. (READs are answered
            // for themselves, and their marks end no round trip.)
            let late = match self.trial.is_told {
                true => span,
                false => self.sent_end.distance_from(psn),
            };
            self.rtt.forget_some(psn, span);
            if let Some(congestion) = &mut self.congestion {
                let first = self.acked + u64::from(psn.distance_from(self.una));
                congestion.on_sent_again(first..first + u64::from(late));
            }
            let next_new = s.number(self.sent_end);
            s.board.on_sent_again(number, span, next_new, cx.now());
            s.await_news(cx.now() + patience);
            if self.trial.repeats(psn.add(span)) {
                s.board.urge(number);
            }
        }
        cx.common.stats.sent_pkts += 1;
        cx.common.stats.retransmitted_pkts += 1;
        self.counts.retransmitted_pkts += 1;
        self.retry.on_sent(cx.now());
    }

    /// End of the part of a READ that is asked for at its packet `at`: of what is new, the chunk; of what is asked for
    /// again, what is lost. A peer that may not repeat things in any order is asked for all that is lost at once, and for all to the end of the
    /// chunk if it is lost once more: the peer may insist on that end.
    #[inline]
    pub(crate) fn ask_end(&self, link: &Link, wqe: &SendWqe, at: u32) -> u32 {
        let end = self.chunk_end(wqe, at);
        let Some(s) = &self.selective else {
            return end;
        };
        let number = s.number(self.next_psn);
        if self.is_first_asking(link) || !self.is_asked(wqe, at) {
            end
        } else if self.may_ask_anything(link) {
            at + s.board.run_of_lost(number, end - at)
        } else if s.board.was_asked_from(number) {
            mark!(AskedToTheEnd);
            end
        } else {
            at + s.board.span_of_lost(number, end - at)
        }
    }
}
