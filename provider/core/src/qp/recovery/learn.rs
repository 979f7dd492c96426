//! What both sides do to find out about a peer of which nothing is known (`trial.rs`).

use urxe_wire::{Packet, Psn, RnrTimer};

use crate::config::{Recovery, ShardConfig};
use crate::context::{Common, Cx, Host};
use crate::error::Fault;
use crate::qp::recovery::Peer;
use crate::qp::requester::Requester;
use crate::qp::{Link, Qp};

impl Requester {
    /// True if a NAK for `psn` is answered with that packet alone, to see what a peer does of which nothing is known.
    pub(crate) fn tries(&mut self, psn: Psn, recovery: Recovery) -> bool {
        let tries = !self.trial.is_over() && self.keeps_answers(recovery);
        if tries {
            mark!(Tried);
            mark!(TriedWithReads if self.rd_inflight > 0);
            self.tries_again(psn);
        }
        tries
    }

    /// True if answers ahead of one that is missing are kept, whatever the peer does about requests: it has executed all that it
    /// answered, and repeats what is asked for again.
    pub(crate) fn keeps_answers(&self, recovery: Recovery) -> bool {
        recovery == Recovery::Selective
            && self.retry.has_left()
            && self.next_psn == self.sent_end
            && !self.retry.waits_for_rnr()
    }

    /// While it is tried: the peer misses the request packet with this PSN, which is sent again alone, or with those that may be lost with it.
    pub(super) fn tries_again(&mut self, psn: Psn) {
        let wqe = self.sq.wqe(self.find_request(psn));
        let is_data = !wqe.opcode.is_read_or_atomic();
        let end = match is_data {
            true => {
                let message_end = wqe.last_psn.next().distance_from(psn);
                let sent = self.sent_end.distance_from(psn);
                psn.add(self.trial.step().min(message_end).min(sent))
            }
            false => self.request_end(psn),
        };
        self.trial.begin(end, is_data);
        self.trial.behind = Some((end, self.sent_end));
        self.trial.run = 0;
    }

    /// What the peer says of itself with having everything before `end`, and missing what is there or not saying so. False if it drops what is
    /// ahead, as far as this tells.
    pub(super) fn judge(&mut self, end: Psn, misses: bool) -> bool {
        let s = self.selective.as_ref();
        let alone = self
            .trial
            .alone
            .filter(|alone| alone.is_before(self.sent_end));
        let is_once = alone.zip(s).is_some_and(|(alone, s)| {
            !alone.is_before(s.base) && s.board.was_sent_once(s.number(alone))
        });
        self.look_behind(end, misses);
        self.trial.take(end, misses, is_once)
    }

    /// The peer has everything before `end`: how many of those behind what was tried are that, which it had before?
    fn look_behind(&mut self, end: Psn, misses: bool) {
        while let Some((next, limit)) = self.trial.behind.filter(|(next, _)| end.is_after(*next)) {
            let s = self.selective.as_ref();
            let is_here = !next.is_before(self.una) && next.is_before(limit);
            let was_once = s.is_some_and(|s| is_here && s.board.was_sent_once(s.number(next)));
            if !was_once {
                self.trial.behind = None;
                return;
            }
            let next = self.request_end(next);
            self.trial.had(next);
        }
        if misses {
            self.trial.behind = None;
        }
    }

    /// Of a peer that misses `psn` it need not be seen whether it keeps what is behind: that was seen, or all of it was sent again already.
    pub(super) fn drops(&self, psn: Psn) -> bool {
        let s = self.selective.as_ref();
        self.trial.is_over() || s.is_some_and(|s| psn.is_before(s.gone_back_to))
    }

    /// The peer drops what is ahead of a gap, as far as was seen: it has nothing from `psn` on. While READs are under way, what is here of
    /// answers stays: adapters need not repeat what is before a part that they repeated.
    pub(super) fn go_back_after_trial<H: Host>(
        &mut self,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        mark!(PeerDrops);
        if !self.has_reads() {
            self.end_trial(cx.common);
            return self.go_back(cx);
        }
        self.trial.stop();
        if self.may_go_back(psn, cx)? {
            mark!(WentBackWithAnswers);
            self.send_again_from(psn);
        }
        Ok(())
    }

    /// The peer has nothing from `psn` on.
    fn send_again_from(&mut self, psn: Psn) {
        let end = self.sent_end;
        if let Some(s) = self.selective.as_mut().filter(|s| !psn.is_before(s.base)) {
            let first = s.number(psn);
            let end = first + u64::from(end.distance_from(psn));
            (first..end).for_each(|number| s.board.queue(number));
            s.gone_back_to = self.sent_end;
        }
    }

    /// A peer of which nothing is known has no receive.
    pub(super) fn refused_while_trying<H: Host>(
        &mut self,
        timer: RnrTimer,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        if self.has_reads() {
            let psn = packet.bth().psn;
            self.trial.stop();
            self.on_refused_for_now(timer, psn, cx)?;
            self.send_again_from(psn);
            return Ok(());
        }
        self.end_trial(cx.common);
        self.on_rnr_nak(timer, packet.bth().psn, link, packet, cx)?;
        // Also while it waits already: what was to be sent again is forgotten.
        self.rewind();
        Ok(())
    }

    /// It is not known any more what of all that is under way is missing.
    pub(crate) fn end_trial(&mut self, common: &mut Common) {
        self.trial.stop();
        self.end_selective(common);
    }

    /// Of this peer, an ACK may say which packets are here.
    #[inline]
    pub(crate) fn believes(&self, link: &Link) -> bool {
        link.peer.is_known() || self.trial.keeps
    }

    /// This peer repeats parts of answers in any order, and of any length.
    #[inline]
    pub(crate) fn may_ask_anything(&self, link: &Link) -> bool {
        link.peer.is_known() || self.trial.is_sure()
    }

    /// What is lost is known of the packets under way, by a peer of which nothing is known.
    #[inline]
    pub(crate) fn is_trying(&self, link: &Link) -> bool {
        self.selective.is_some() && link.peer == Peer::Standard
    }
}

impl Qp {
    /// The requester was told which packets are here: both sides know all there is to know.
    #[cold]
    pub(crate) fn learn_from_response(&mut self) {
        if self.req.trial.is_told && self.link.peer != Peer::Selective {
            mark!(PeerLearnt);
            self.link.peer = Peer::Selective;
        }
    }

    /// A request came while packets are kept.
    pub(super) fn learn_from_requests(&mut self, config: &ShardConfig) {
        let may_learn = self.link.peer == Peer::Standard && config.recovery == Recovery::Selective;
        if may_learn && self.resp.seen.is_sure() {
            mark!(TrialSeen);
            self.link.peer = Peer::Tries;
        }
    }
}
