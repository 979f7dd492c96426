//! The completer: matches responses with their requests. It retires work
//! requests in order, places READ and atomic results, and notices what is missing.

use urxe_wire::{Aeth, NakCode, Operation, Packet, Position, Psn, RnrTimer, SyndromeKind};

use crate::context::{Cx, Host};
use crate::cq::{Cqe, WcOpcode};
use crate::error::{DropReason, Fault};
use crate::qp::Link;
use crate::qp::requester::Requester;
use crate::qp::sgl;
use crate::work::{SendFlags, SendWqe, WrOpcode};

/// How far an acknowledgement got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// Everything before the PSN is done.
    All,
    /// A READ or atomic before it still lacks its response.
    ResponseMissing,
}

impl Requester {
    /// Takes one response packet.
    ///
    /// # Errors
    /// The fault that ends the oldest request, and with it the QP.
    pub(crate) fn handle_response<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let psn = packet.bth().psn;
        if psn.is_before(self.una) || !psn.is_before(self.sent_end) {
            self.on_stale(packet, psn, cx);
            return Ok(());
        }
        let una = self.una;
        let result = match packet.info().operation {
            Operation::Acknowledge => self.on_acknowledge(link, packet, psn, cx),
            Operation::AtomicAcknowledge => self.on_atomic_ack(link, packet, psn, cx),
            _ => self.on_read_response(link, packet, psn, cx),
        };
        if self.una != una {
            self.on_acknowledged(self.una.distance_from(una), cx.now());
            let all = self.una == self.sent_end;
            self.retry.on_progress(cx.now(), all);
            // A late acknowledgement may overtake the cursor on its way through
            // packets that are sent again.
            if self.next_psn.is_before(self.una) {
                mark!(AckOvertookCursor);
                self.next_psn = self.una;
                self.cursor = self.sq.head();
            }
            self.rest_if_paced();
        }
        result?;
        self.oldest_local_fault().map_or(Ok(()), Err)
    }

    /// The fault of a request that failed locally, once all before it are done.
    #[inline]
    pub(crate) fn oldest_local_fault(&self) -> Option<Fault> {
        (self.faulted == Some(self.sq.head())).then(|| self.sq.wqe(self.sq.head()).fault)
    }

    /// An old acknowledgement may still bring news about credits; everything else
    /// about it is long known.
    fn on_stale<H: Host>(&mut self, packet: &Packet<'_>, psn: Psn, cx: &mut Cx<'_, '_, H>) {
        if psn.next() == self.una
            && packet.info().operation == Operation::Acknowledge
            && let Some(aeth) = packet.aeth()
            && let SyndromeKind::Ack(_) = aeth.syndrome.decode()
        {
            mark!(OldAckRenewedCredits);
            self.take_credits(&aeth);
        } else {
            mark!(OldResponse if psn.is_before(self.una));
            mark!(ResponseToNothing if !psn.is_before(self.una));
            cx.common.stats.drop_packet(DropReason::StaleResponse);
        }
    }

    fn on_acknowledge<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let aeth = packet
            .aeth()
            .expect("ACKNOWLEDGE has an AETH by its table entry");
        match aeth.syndrome.decode() {
            SyndromeKind::Ack(_) => {
                self.take_credits(&aeth);
                match self.acknowledge(psn.next(), link, cx) {
                    Reach::All => Ok(()),
                    Reach::ResponseMissing => self.on_response_missing(cx),
                }
            }
            SyndromeKind::RnrNak(timer) => self.on_rnr_nak(timer, psn, link, cx),
            SyndromeKind::Nak(code) => self.on_nak(code, psn, link, cx),
            SyndromeKind::Reserved => Ok(()),
        }
    }

    fn on_rnr_nak<H: Host>(
        &mut self,
        timer: RnrTimer,
        psn: Psn,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        cx.common.stats.rcvd_rnr_err += 1;
        self.counts.rcvd_rnr_err += 1;
        tell!(
            DEBUG,
            qpn = link.qpn.get(),
            psn = psn.get(),
            "the peer has no receive: waits"
        );
        if self.acknowledge(psn, link, cx) == Reach::ResponseMissing {
            return self.on_response_missing(cx);
        }
        if self.retry.waits_for_rnr() {
            mark!(RnrNakWhileWaiting);
            return Ok(());
        }
        if self.retry.on_rnr(cx.now(), timer).is_err() {
            mark!(RnrExhausted);
            cx.common.stats.retry_rnr_exceeded_err += 1;
            return Err(Fault::RnrExhausted);
        }
        self.rewind();
        Ok(())
    }

    fn on_nak<H: Host>(
        &mut self,
        code: NakCode,
        psn: Psn,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        // A NAK acknowledges everything before its PSN.
        if self.acknowledge(psn, link, cx) == Reach::ResponseMissing {
            return self.on_response_missing(cx);
        }
        match code {
            NakCode::PsnSequence => {
                cx.common.stats.rcvd_seq_err += 1;
                self.counts.rcvd_seq_err += 1;
                self.go_back(cx)
            }
            NakCode::InvalidRequest => {
                mark!(NakInvalidRequest);
                Err(Fault::NakInvalidRequest)
            }
            NakCode::RemoteAccess => {
                mark!(NakRemoteAccess);
                Err(Fault::NakRemoteAccess)
            }
            NakCode::RemoteOperational => {
                mark!(NakRemoteOperational);
                Err(Fault::NakRemoteOperational)
            }
            _ => Err(Fault::NakUnknown),
        }
    }

    /// A response beyond one that never came: the missing one was lost (implied NAK,
    /// IBTA 9.7.5.1.4 in substance).
    fn on_response_missing<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) -> Result<(), Fault> {
        mark!(ImpliedNak);
        cx.common.stats.implied_nak += 1;
        self.counts.implied_nak += 1;
        self.go_back(cx)
    }

    fn go_back<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) -> Result<(), Fault> {
        match self.retry.on_sequence_error(cx.now(), self.una) {
            Ok(true) => {
                cx.common.stats.completer_retry_err += 1;
                tell!(
                    DEBUG,
                    psn = self.una.get(),
                    "packets are missing: sends again"
                );
                mark!(WentBack);
                self.on_loss(cx.now());
                self.rewind();
                Ok(())
            }
            Ok(false) => {
                mark!(RepeatedNakIgnored);
                Ok(())
            }
            Err(_) => {
                mark!(SequenceRetriesExhausted);
                cx.common.stats.retry_exceeded_err += 1;
                Err(Fault::SequenceExhausted)
            }
        }
    }

    fn on_read_response<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        // A response also acknowledges every SEND and WRITE before it.
        if self.acknowledge(psn, link, cx) == Reach::ResponseMissing {
            return self.on_response_missing(cx);
        }
        let number = self.sq.head();
        let wqe = *self.sq.wqe(number);
        if wqe.opcode.is_placement() {
            return self.on_placed(link, packet, psn, cx);
        }
        if wqe.opcode != WrOpcode::RdmaRead {
            return Err(Fault::UnexpectedResponse);
        }
        if let Some(aeth) = packet.aeth() {
            let SyndromeKind::Ack(_) = aeth.syndrome.decode() else {
                return Err(Fault::UnexpectedResponse);
            };
            self.take_credits(&aeth);
        }
        let at = psn.distance_from(wqe.first_psn);
        let chunk_ends = at + 1 == self.chunk_end(&wqe, at);
        let offset = u64::from(at) * u64::from(link.mtu);
        let expected = (u64::from(wqe.length) - offset).min(u64::from(link.mtu));
        let ends = matches!(packet.info().position, Position::Last | Position::Only);
        if packet.payload().len() as u64 != expected || ends != chunk_ends {
            return Err(Fault::ReadResponseLength);
        }
        sgl::scatter(
            cx.env,
            link.pd,
            self.sq.sges(number),
            offset,
            packet.payload(),
        )?;
        self.una = psn.next();
        if chunk_ends {
            self.rd_inflight = self.rd_inflight.saturating_sub(1);
        }
        if psn == wqe.last_psn {
            self.retire(link, cx);
        }
        Ok(())
    }

    fn on_atomic_ack<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        if self.acknowledge(psn, link, cx) == Reach::ResponseMissing {
            return self.on_response_missing(cx);
        }
        let number = self.sq.head();
        let wqe = *self.sq.wqe(number);
        let aeth = packet
            .aeth()
            .expect("ATOMIC ACKNOWLEDGE has an AETH by its table entry");
        let SyndromeKind::Ack(_) = aeth.syndrome.decode() else {
            return Err(Fault::UnexpectedResponse);
        };
        if !wqe.opcode.is_atomic() {
            return Err(Fault::UnexpectedResponse);
        }
        self.take_credits(&aeth);
        let original = packet
            .atomic_ack_eth()
            .expect("and an AtomicAckETH")
            .original;
        // The result is a number in the host's byte order, as in memory.
        let bytes = original.to_ne_bytes();
        sgl::scatter(cx.env, link.pd, self.sq.sges(number), 0, &bytes)?;
        self.una = psn.next();
        self.rd_inflight = self.rd_inflight.saturating_sub(1);
        self.retire(link, cx);
        Ok(())
    }

    #[inline]
    pub(crate) fn take_credits(&mut self, aeth: &Aeth) {
        if let SyndromeKind::Ack(code) = aeth.syndrome.decode() {
            self.credit.on_credits(aeth.msn, code);
        }
    }

    /// Completes every SEND and WRITE before `end`, in order.
    #[inline]
    fn acknowledge<H: Host>(&mut self, end: Psn, link: &Link, cx: &mut Cx<'_, '_, H>) -> Reach {
        while self.una.is_before(end) {
            debug_assert!(
                self.sq.head() < self.started,
                "unacknowledged PSNs have a request"
            );
            let wqe = self.sq.wqe(self.sq.head());
            if wqe.opcode.is_read_or_atomic() {
                return Reach::ResponseMissing;
            }
            if !wqe.last_psn.is_before(end) {
                mark!(AckWithinMessage);
                self.una = end;
                break;
            }
            self.una = wqe.last_psn.next();
            self.retire(link, cx);
        }
        Reach::All
    }

    /// The oldest request succeeded.
    #[inline]
    pub(crate) fn retire<H: Host>(&mut self, link: &Link, cx: &mut Cx<'_, '_, H>) {
        let wqe = self.sq.wqe(self.sq.head());
        if link.sq_sig_all || wqe.flags.contains(SendFlags::SIGNALED) {
            let cqe = send_cqe(wqe, Fault::None, link);
            cx.complete(link.send_cq, cqe);
        }
        if self.faulted == Some(self.sq.head()) {
            // It was sent whole before its memory vanished, and arrived after all.
            mark!(FaultedRequestArrived);
            self.faulted = None;
        }
        cx.common.stats.rdma_sends += u64::from(is_send(wqe.opcode));
        self.sq.pop();
        if self.cursor < self.sq.head() {
            self.cursor = self.sq.head();
            self.next_psn = self.una;
        }
    }

    /// Completes all requests: the oldest with `fault`, the rest as flushed.
    pub(crate) fn flush<H: Host>(&mut self, mut fault: Fault, link: &Link, cx: &mut Cx<'_, '_, H>) {
        while !self.sq.is_empty() {
            let cqe = send_cqe(self.sq.wqe(self.sq.head()), fault, link);
            cx.complete(link.send_cq, cqe);
            self.sq.pop();
            fault = Fault::Flushed;
        }
        self.cursor = self.sq.head();
        self.started = self.sq.head();
        self.faulted = None;
        self.rd_inflight = 0;
        self.retry.stop();
    }
}

#[inline]
fn is_send(opcode: WrOpcode) -> bool {
    matches!(
        opcode,
        WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv
    )
}

fn send_cqe(wqe: &SendWqe, fault: Fault, link: &Link) -> Cqe {
    let opcode = match wqe.opcode {
        WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm => WcOpcode::RdmaWrite,
        WrOpcode::RdmaRead => WcOpcode::RdmaRead,
        WrOpcode::AtomicCmpAndSwp => WcOpcode::CompSwap,
        WrOpcode::AtomicFetchAndAdd => WcOpcode::FetchAdd,
        WrOpcode::Flush => WcOpcode::Flush,
        WrOpcode::AtomicWrite => WcOpcode::AtomicWrite,
        WrOpcode::BindMw => WcOpcode::BindMw,
        WrOpcode::LocalInv => WcOpcode::LocalInv,
        WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv => WcOpcode::Send,
    };
    link.cqe(wqe.wr_id, opcode, fault, wqe.length)
}
