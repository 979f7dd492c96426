//! Selective repeat: a requester sends again what the peer lacks, and nothing else.
//!
//! The board has every packet under way. The cursor stays where new packets begin: what is lost is sent by the same code, with
//! the cursor set aside. READ responses and atomic results that arrive ahead of one that is missing are kept, as the responder
//! keeps requests, and handled in order; what was lost of them is asked for again, and nothing else is.

use urxe_wire::{NakCode, Operation, Packet, Psn, RnrTimer, SyndromeKind};

use crate::context::{Common, Cx, Host};
use crate::error::{DropReason, Fault};
use crate::qp::Link;
use crate::qp::completer::{Reach, nak_fault};
use crate::qp::recovery::ahead::{Ahead, Keep};
use crate::qp::recovery::sack::Sack;
use crate::qp::recovery::{Board, Peer, Selective};
use crate::qp::requester::Requester;
use crate::time::Time;
use crate::work::WrOpcode;

impl Selective {
    fn new(una: Psn) -> Selective {
        Selective {
            board: Board::default(),
            base: una,
            peer_end: una,
            kept: Ahead::new(una),
            freed: una,
            answered: una,
            reads_end: una,
            gone_back_to: una,
            copy: None,
            news: 0,
            probes: 0,
            probe_at: None,
        }
    }

    /// The number of a PSN that is not acknowledged.
    pub(crate) fn number(&self, psn: Psn) -> u64 {
        self.board.una() + u64::from(psn.distance_from(self.base))
    }

    /// In the order in which packets left, something was heard of those before this one.
    pub(crate) fn heard(&self) -> Psn {
        self.base.add(self.board.reached())
    }

    /// Everything before `una` is acknowledged.
    fn advance(&mut self, una: Psn, now: Time) {
        let number = self.number(una);
        self.base = una;
        self.news += self.board.advance(number, now);
        let ends = [
            &mut self.peer_end,
            &mut self.freed,
            &mut self.answered,
            &mut self.reads_end,
            &mut self.gone_back_to,
        ];
        for end in ends.into_iter().filter(|end| end.is_before(una)) {
            *end = una;
        }
    }

    /// Packets that are here, or wait to be sent again.
    pub(crate) fn elsewhere(&self) -> u32 {
        self.board.elsewhere()
    }

    /// The packet arrived, or its answer did.
    fn arrived(&mut self, number: u64, now: Time) {
        self.news += u32::from(self.board.arrived(number, now));
    }

    /// The peer has executed everything before `end`; what it answered before should be here.
    fn executed(&mut self, end: Psn, now: Time) {
        while self.peer_end.is_before(end) {
            let number = self.number(self.peer_end);
            if self.board.expects_answer(number) {
                self.board.answer_missing(number, now);
            } else {
                self.arrived(number, now);
            }
            self.peer_end = self.peer_end.next();
        }
    }

    /// Something left: if nothing is heard until then, the ends are sent again, but not for ever.
    pub(crate) fn await_news(&mut self, until: Time) {
        if self.probes < PROBES_MAX {
            self.probe_at.get_or_insert(until);
        }
    }

    fn on_sack(&mut self, sack: &Sack<'_>, sent_end: Psn, now: Time) {
        for distance in sack.here() {
            let psn = sack.expected.add(distance);
            if psn.is_before(self.peer_end) {
                continue;
            }
            // What was never sent it cannot have.
            if !psn.is_before(sent_end) {
                break;
            }
            let number = self.number(psn);
            if self.board.expects_answer(number) {
                self.board.held(number, now);
            } else {
                self.arrived(number, now);
            }
        }
    }
}

impl Requester {
    /// Takes a response while it is known, or to be found out, what is missing.
    #[cold]
    pub(crate) fn handle_selectively<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let una = self.una;
        let result = self.take_selectively(link, packet, cx);
        self.after_acknowledged(una, cx);
        result?;
        self.oldest_local_fault().map_or(Ok(()), Err)
    }

    /// From here on it is known of each packet whether it is missing.
    fn begin_selective(&mut self) {
        if self.selective.is_some() {
            return;
        }
        mark!(SelectiveBegun);
        self.end_probe();
        self.probe.stop();
        let mut new = Box::new(Selective::new(self.una));
        for number in self.sq.head()..self.started {
            let wqe = self.sq.wqe(number);
            if wqe.opcode.is_read_or_atomic() {
                let first = if wqe.first_psn.is_before(self.una) {
                    self.una
                } else {
                    wqe.first_psn
                };
                let last = if wqe.last_psn.is_before(self.sent_end) {
                    wqe.last_psn.next()
                } else {
                    self.sent_end
                };
                if first.is_before(last) {
                    let at = new.number(first);
                    new.board.expect_answers(at, last.distance_from(first));
                    new.reads_end = last;
                }
            }
        }
        // It was going back: what was not sent again yet is lost.
        while self.next_psn.is_before(self.sent_end) {
            let number = new.number(self.next_psn);
            new.board.queue(number);
            self.next_psn = self.next_psn.next();
        }
        self.cursor = self.find_request(self.sent_end);
        self.rd_inflight = self.count_reads();
        self.selective = Some(new);
    }

    /// As [`Requester::handle_selectively`], for a caller that looks itself at what was acknowledged.
    #[cold]
    pub(crate) fn take_selectively<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        self.begin_selective();
        let psn = packet.bth().psn;
        let result = match packet.info().operation {
            Operation::Acknowledge => self.on_acknowledge_selectively(link, packet, psn, cx),
            _ => self.on_answer_selectively(link, packet, psn, cx),
        };
        self.find_lost(link, cx.now());
        result
    }

    fn on_acknowledge_selectively<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let aeth = packet
            .aeth()
            .expect("ACKNOWLEDGE has an AETH by its table entry");
        let kind = aeth.syndrome.decode();
        let end = match kind {
            SyndromeKind::Ack(_) => psn.next(),
            _ => psn,
        };
        let names_packet = !matches!(kind, SyndromeKind::Ack(_));
        let is_old = end.is_before(self.una) || names_packet && !psn.is_before(self.sent_end);
        if is_old || end.is_after(self.sent_end) {
            mark!(OldResponse if end.is_before(self.una));
            cx.common.stats.drop_packet(DropReason::StaleResponse);
            return Ok(());
        }
        self.take_credits(&aeth);
        let misses = kind == SyndromeKind::Nak(NakCode::PsnSequence);
        let goes_on =
            !self.is_trying(link) || self.judge(end, misses) && !(misses && self.drops(end));
        self.settle_to(end, link, cx)?;
        if !goes_on {
            return self.go_back_after_trial(end, cx);
        }
        if misses && self.is_trying(link) {
            self.tries_again(end);
        }
        let sack = Sack::read(packet).filter(|_| self.believes(link));
        if let (Some(s), Some(sack)) = (&mut self.selective, sack) {
            s.on_sack(&sack, self.sent_end, cx.now());
            s.board.on_duplicates(sack.duplicates, self.rtt.min());
            self.trial.is_told = true;
        }
        match kind {
            SyndromeKind::Ack(_) | SyndromeKind::Reserved => Ok(()),
            SyndromeKind::RnrNak(timer) if self.is_trying(link) => {
                self.refused_while_trying(timer, link, packet, cx)
            }
            SyndromeKind::RnrNak(timer) => self.on_refused_for_now(timer, psn, cx),
            SyndromeKind::Nak(NakCode::PsnSequence) => {
                cx.common.stats.rcvd_seq_err += 1;
                self.counts.rcvd_seq_err += 1;
                match self.trial.alone.filter(|_| self.is_trying(link)) {
                    Some(end) => self.send_alone(psn, end, cx.now()),
                    None => self.miss(psn, cx.now()),
                }
                Ok(())
            }
            // What is before it must complete before it can fail.
            SyndromeKind::Nak(_) if self.una != psn => Ok(()),
            SyndromeKind::Nak(code) => Err(nak_fault(code)),
        }
    }

    /// The peer misses this one, and has something later.
    fn miss(&mut self, psn: Psn, now: Time) {
        if let Some(s) = &mut self.selective
            && !psn.is_before(s.base)
        {
            s.board.missing(s.number(psn), now);
        }
    }

    /// A peer of which nothing is known misses this one: it leaves alone, or with those behind it and before `end`. The peer says what it
    /// misses next when something comes that is ahead: where nothing new can leave, the newest packet does again.
    fn send_alone(&mut self, psn: Psn, end: Psn, now: Time) {
        let wqe = self.sq.wqe(self.find_request(psn));
        let packets = match wqe.opcode.is_read_or_atomic() {
            true => 1,
            false => end.distance_from(psn),
        };
        let Some(s) = self.selective.as_mut().filter(|s| !psn.is_before(s.base)) else {
            return;
        };
        let first = s.number(psn);
        let is_lost = s.board.missing_urgently(first);
        for number in first + 1..first + u64::from(packets) {
            s.board.missing_urgently(number);
        }
        if is_lost {
            self.on_loss(1, now);
        }
        // The loss has made the window narrower.
        let is_full = self.under_way() >= self.window.packets() || self.cursor == self.sq.tail();
        let newest = self.sent_end.prev();
        if let Some(s) = &mut self.selective
            && is_full
            && !newest.is_before(end)
        {
            let number = s.number(newest);
            s.board.urge(number);
        }
    }

    /// A READ response or the result of an atomic.
    fn on_answer_selectively<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        if psn.is_before(self.una) || !psn.is_before(self.sent_end) {
            mark!(OldResponse if psn.is_before(self.una));
            cx.common.stats.drop_packet(DropReason::StaleResponse);
            return Ok(());
        }
        if self.is_trying(link) {
            self.judge(psn.next(), false);
        }
        self.settle_to(self.heard_to(psn, link), link, cx)?;
        if link.peer == Peer::Selective {
            self.free_places(psn);
        }
        let Some(s) = &mut self.selective else {
            return Ok(());
        };
        if psn == self.una {
            self.handle_answer(link, packet, cx)?;
            return self.settle_front(link, cx);
        }
        let keep = s.kept.keep(packet, 1, &mut cx.common.room);
        if keep == Keep::New {
            mark!(AnswerKept);
            let number = s.number(psn);
            s.arrived(number, cx.now());
        }
        Ok(())
    }

    /// An answer with this PSN came: what is missing before it? Of a peer that may insist on how a READ is asked for again, nothing is said of
    /// a request's answer before all of it was due, so that what is missing of it is asked for in one go.
    fn heard_to(&self, psn: Psn, link: &Link) -> Psn {
        let wqe = self.sq.wqe(self.find_request(psn));
        let is_last = self.request_end(psn) == psn.next();
        if is_last || self.may_ask_anything(link) {
            return psn;
        }
        let at = psn.distance_from(wqe.first_psn);
        let begin = wqe.first_psn.add(at - at % wqe.chunk());
        match begin.is_before(self.una) {
            true => self.una,
            false => begin,
        }
    }

    /// The answer to the oldest packet.
    fn handle_answer<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let psn = packet.bth().psn;
        match packet.info().operation {
            Operation::AtomicAcknowledge => self.on_atomic_ack(link, packet, psn, cx),
            _ => self.on_read_response(link, packet, psn, cx),
        }
    }

    /// The peer has executed everything before `end`.
    fn settle_to<H: Host>(
        &mut self,
        end: Psn,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let reach = self.acknowledge(end, link, cx);
        if let Some(s) = &mut self.selective {
            s.advance(self.una, cx.now());
            if reach == Reach::ResponseMissing {
                s.executed(end, cx.now());
            } else if s.peer_end.is_before(end) {
                s.peer_end = end;
            }
        }
        self.settle_front(link, cx)
    }

    /// Completes what it can: what the peer has executed, and answers that were kept.
    fn settle_front<H: Host>(&mut self, link: &Link, cx: &mut Cx<'_, '_, H>) -> Result<(), Fault> {
        while let Some(s) = &mut self.selective {
            let (una, end) = (self.una, s.peer_end);
            let kept = s.kept.take(una, &mut cx.common.room);
            if let Some(bytes) = kept {
                let packet = Packet::parse(&bytes).expect("it was parsed before it was kept");
                mark!(KeptAnswerTaken);
                self.handle_answer(link, &packet, cx)?;
            } else if una.is_before(end) {
                self.acknowledge(end, link, cx);
            }
            if let Some(s) = &mut self.selective {
                s.advance(self.una, cx.now());
            }
            if self.una == una {
                break;
            }
        }
        Ok(())
    }

    /// Has sent again what was overtaken for long enough.
    pub(crate) fn find_lost(&mut self, link: &Link, now: Time) {
        let is_trying = self.is_trying(link);
        let Some(s) = &mut self.selective else {
            return;
        };
        let end = s.number(self.sent_end);
        s.board.set_rtt_min(self.rtt.min());
        let lost = match is_trying {
            true => s.board.find_unanswered(now),
            false => s.board.find_lost(end, now),
        };
        if lost > 0 {
            self.on_loss(lost, now);
        }
    }

    /// A response was handled, before which `una` was the oldest packet.
    #[cold]
    pub(crate) fn after_selective(&mut self, una: Psn, now: Time) {
        let patience = self.patience_ns();
        let Some(s) = &mut self.selective else {
            return;
        };
        let news = core::mem::take(&mut s.news);
        if news == 0 {
            return;
        }
        let reached = s.board.reached();
        let acknowledged = self.una.distance_from(una);
        self.acked += u64::from(acknowledged);
        let heard = s.heard();
        let news_of = if self.trial.is_told { heard } else { self.una };
        // While what a round trip lost is mended, nothing shows that there is room for more.
        if self.window.is_news(news_of) {
            self.window.on_ack(acknowledged, news_of);
        }
        let rtt = self.rtt.finish(heard, now);
        if self.congestion.is_some() {
            self.on_delivered(news, self.acked + u64::from(reached), rtt, now);
        }
        if rtt.is_some() && self.chooses {
            self.choose();
        }
        let Some(s) = &mut self.selective else {
            return;
        };
        let all = self.una == self.sent_end;
        s.probes = 0;
        s.probe_at = if all { None } else { Some(now + patience) };
        if all {
            s.board.rest();
        }
        self.retry.on_progress(now, all);
        self.rest_if_paced();
    }

    /// There was no receive for a packet: it is sent again later, and nothing else.
    pub(super) fn on_refused_for_now<H: Host>(
        &mut self,
        timer: RnrTimer,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        cx.common.stats.rcvd_rnr_err += 1;
        self.counts.rcvd_rnr_err += 1;
        if self.una == psn {
            self.wait_for_receive(timer, cx)?;
        } else {
            // Answers to what is before it are missing, and that must complete before this can fail.
            mark!(RefusedBehindAnswers);
            // They left before this NAK. Since it is sent again and again, no timer would miss them.
            if self.retry.wait_for_answers(cx.now(), timer, self.una) {
                mark!(AnswersMissedByRefusals);
                self.queue_oldest();
            }
        }
        if let Some(s) = &mut self.selective {
            let number = s.number(psn);
            s.board.queue(number);
        }
        Ok(())
    }

    /// No answer came in time: the oldest packet and the newest are sent again.
    pub(crate) fn resend_ends(&mut self, link: &Link, now: Time) {
        self.begin_selective();
        self.queue_ends(link);
        if let Some(s) = &mut self.selective {
            s.probe_at = None;
        }
        self.retry.await_send();
        self.on_silence(now);
    }

    /// Has the oldest packet and the newest sent again. Of a READ that a peer answers which says nothing of what it lacks, all that is missing of
    /// the oldest request: else each silence would bring one packet.
    fn queue_ends(&mut self, link: &Link) {
        let end = self.sent_end;
        if let Some(s) = &mut self.selective {
            let number = s.number(end);
            s.board.probe(number);
        }
        if self.una.is_before(end) && !link.peer.is_known() {
            self.queue_oldest();
        }
    }

    /// Has all that is missing of the oldest request sent again, or asked for: of what stands for one answer, that one.
    fn queue_oldest(&mut self) {
        let (una, end) = (self.una, self.request_end(self.una));
        if let Some(s) = &mut self.selective {
            let missing = s.number(una)..s.number(end);
            missing.for_each(|number| s.board.queue(number));
        }
    }

    /// Looks at the clock: is anything lost, or is it time to ask how things stand?
    pub(crate) fn look_at_clock(&mut self, link: &Link, now: Time) {
        let Some(s) = &self.selective else {
            return;
        };
        if s.board.doubt_until().is_some_and(|until| until <= now) {
            self.find_lost(link, now);
        }
        // What waits for the window waits for news as well.
        let (patience, sends) = (self.patience_ns(), self.may_send_again());
        let Some(s) = &mut self.selective else {
            return;
        };
        if s.probe_at.is_some_and(|at| at <= now) && !self.retry.waits_for_rnr() {
            s.probes += 1;
            s.probe_at = (s.probes < PROBES_MAX).then(|| now + (patience << s.probes));
            if !sends {
                mark!(SelectiveProbe);
                self.queue_ends(link);
                self.trial.stop();
            }
        }
    }

    /// When [`Requester::look_at_clock`] has something to do.
    #[cold]
    pub(crate) fn selective_deadline(&self) -> Option<Time> {
        let s = self.selective.as_ref()?;
        if self.retry.waits_for_rnr() {
            return None;
        }
        let probe = s.probe_at;
        match s.board.doubt_until() {
            Some(doubt) => Some(probe.map_or(doubt, |probe| probe.min(doubt))),
            None => probe,
        }
    }

    /// The oldest packet waits to be sent again: that nothing is heard of it means nothing.
    pub(crate) fn holds_oldest(&self) -> bool {
        let s = self.selective.as_ref();
        s.is_some_and(|s| s.board.is_oldest_queued())
    }

    /// Forgets what is known of packets under way, and answers that were kept.
    pub(crate) fn end_selective(&mut self, common: &mut Common) {
        if let Some(mut s) = self.selective.take() {
            s.kept.clear(&mut common.room);
        }
    }

    /// A new packet left, that stands for `span` PSNs and had `psn`.
    #[cold]
    pub(crate) fn note_new(
        &mut self,
        psn: Psn,
        span: u32,
        opcode: WrOpcode,
        link: &Link,
        now: Time,
    ) {
        let patience = self.patience_ns();
        if opcode.is_read_or_atomic() {
            self.note_read(psn, span, opcode, link);
        }
        if let Some(s) = &mut self.selective {
            s.await_news(now + patience);
        }
    }
}

impl Requester {
    /// How long nothing may be heard until something is wrong.
    pub(crate) fn patience_ns(&self) -> u64 {
        let known = self.rtt.patience();
        known.unwrap_or_else(|| self.retry.timeout_ns().map_or(100_000_000, |ns| ns / 4))
    }
}

/// Times in a row that the ends are sent again only because nothing is heard.
const PROBES_MAX: u32 = 6;
