//! What both sides do to find out about a peer of which nothing is known (`trial.rs`).

use urxe_wire::{Packet, Psn, RnrTimer};

use crate::config::{Recovery, ShardConfig};
use crate::context::{Common, Cx, Host};
use crate::error::Fault;
use crate::qp::recovery::Peer;
use crate::qp::requester::Requester;
use crate::qp::{Link, Qp};
use crate::work::WrOpcode;

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
    pub(super) fn keeps_answers(&self, recovery: Recovery) -> bool {
        recovery == Recovery::Selective
            && self.retry.has_left()
            && self.next_psn == self.sent_end
            && !self.retry.waits_for_rnr()
    }

    /// While it is tried: the peer misses the request packet with this PSN, which is sent again alone, or with those that may be lost with it.
    pub(super) fn tries_again(&mut self, psn: Psn) {
        let wqe = self.sq.wqe(self.find_request(psn));
        let is_data = !wqe.opcode.is_read_or_atomic();
        let end = match wqe.opcode {
            WrOpcode::RdmaRead => {
                let at = psn.distance_from(wqe.first_psn);
                wqe.first_psn.add(self.chunk_end(wqe, at))
            }
            _ if is_data => {
                let message_end = wqe.last_psn.next().distance_from(psn);
                let sent = self.sent_end.distance_from(psn);
                psn.add(self.trial.step().min(message_end).min(sent))
            }
            _ => psn.next(),
        };
        self.trial.begin(end, is_data);
    }

    /// The peer drops what is ahead of a gap, as far as was seen.
    pub(super) fn go_back_after_trial<H: Host>(
        &mut self,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        mark!(PeerDrops);
        self.end_trial(cx.common);
        self.go_back(cx)
    }

    /// A peer of which nothing is known has no receive.
    pub(super) fn refused_while_trying<H: Host>(
        &mut self,
        timer: RnrTimer,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
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
