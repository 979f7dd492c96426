//! What both sides do to find out about a peer of which nothing is known (`trial.rs`).

use urxe_wire::{NakCode, Packet, Psn, RnrTimer, SyndromeKind};

use crate::config::{Recovery, ShardConfig};
use crate::context::{Common, Cx, Host};
use crate::error::Fault;
use crate::qp::recovery::Peer;
use crate::qp::recovery::trial::FAILURES_MAX;
use crate::qp::requester::{Requester, SendStep};
use crate::qp::{Link, Qp};
use crate::time::Time;

impl Requester {
    /// True if a NAK for `psn` is answered with that packet alone, to see what a peer does of which nothing is known.
    pub(crate) fn tries(&mut self, psn: Psn, recovery: Recovery) -> bool {
        let tries = recovery == Recovery::Selective
            && self.trial.failures < FAILURES_MAX
            && self.retry.has_left()
            && self.next_psn == self.sent_end
            && !self.retry.waits_for_rnr()
            && !(self.sq.head()..self.started)
                .any(|number| self.sq.wqe(number).opcode.is_read_or_atomic());
        if tries {
            mark!(Tried);
            self.trial.alone = Some(psn);
        }
        tries
    }

    /// While it is tried: an ACK or NAK of everything before `end` came. False if the requester went back.
    pub(super) fn goes_on_trying<H: Host>(
        &mut self,
        kind: SyndromeKind,
        end: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<bool, Fault> {
        if self.trial.take(kind, end) {
            if kind == SyndromeKind::Nak(NakCode::PsnSequence) {
                self.trial.alone = Some(end);
            }
            return Ok(true);
        }
        mark!(PeerDrops);
        self.end_trial(cx.common);
        self.go_back(cx)?;
        Ok(false)
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
        self.on_rnr_nak(timer, packet.bth().psn, link, packet, cx)
    }

    /// It is not known any more what of all that is under way is missing.
    pub(crate) fn end_trial(&mut self, common: &mut Common) {
        self.trial.stop();
        self.end_selective(common);
    }

    /// READs and atomics are nothing to try with: all under way leaves again before the first.
    #[cold]
    pub(crate) fn go_back_for_read<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) -> SendStep {
        mark!(TrialEndedByRead);
        self.end_trial(cx.common);
        self.rewind();
        SendStep::Local
    }

    /// Of this peer, an ACK may say which packets are here.
    #[inline]
    pub(crate) fn believes(&self, link: &Link) -> bool {
        link.peer == Peer::Selective || self.trial.keeps
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
        if self.req.trial.is_told && self.link.peer == Peer::Standard {
            mark!(PeerLearnt);
            self.link.peer = Peer::Selective;
        }
    }

    /// The responder has executed so many packets that it kept.
    pub(super) fn learn_from_requests(&mut self, packets: u32, config: &ShardConfig, now: Time) {
        let may_learn = self.link.peer == Peer::Standard && config.recovery == Recovery::Selective;
        if may_learn && self.resp.seen.note_filled(packets, config.look_ns, now) {
            mark!(TrialSeen);
            self.link.peer = Peer::Selective;
        }
    }
}
