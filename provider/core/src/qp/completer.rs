//! The completer: matches responses with their requests. It retires work
//! requests in order, places READ and atomic results, and notices what is missing.

use urxe_wire::{Aeth, NakCode, Operation, Packet, Position, Psn, SyndromeKind};

use crate::context::{Cx, Host};
use crate::cq::{Cqe, WcOpcode};
use crate::error::{DropReason, Fault};
use crate::qp::Link;
use crate::qp::requester::{NO_REQUEST, Requester};
use crate::qp::sgl;
use crate::work::{SendFlags, SendWqe, WrOpcode};

/// How far an acknowledgement got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
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
        if self.selective.is_some() {
            return self.handle_selectively(link, packet, cx);
        }
        if psn.is_before(self.una) || !psn.is_before(self.sent_end) {
            if self.says_which(link, packet) {
                return self.handle_selectively(link, packet, cx);
            }
            self.on_stale(packet, psn, cx);
            return Ok(());
        }
        let una = self.una;
        let result = match packet.info().operation {
            Operation::Acknowledge => self.on_acknowledge(link, packet, psn, cx),
            Operation::AtomicAcknowledge => self.on_atomic_ack(link, packet, psn, cx),
            _ => self.on_read_response(link, packet, psn, cx),
        };
        self.after_acknowledged(una, cx);
        result?;
        self.oldest_local_fault().map_or(Ok(()), Err)
    }

    /// A response was handled before which `una` was the oldest packet.
    #[inline]
    pub(crate) fn after_acknowledged<H: Host>(&mut self, una: Psn, cx: &mut Cx<'_, '_, H>) {
        if self.selective.is_some() {
            return self.after_selective(una, cx.now());
        }
        if self.una != una {
            self.on_acknowledged(self.una.distance_from(una), cx.now());
            let all = self.una == self.sent_end;
            self.retry.on_progress(cx.now(), all);
            self.skip_acknowledged();
            self.rest_if_paced();
        }
    }

    /// The fault of a request that failed locally, once all before it are done.
    #[inline]
    pub(crate) fn oldest_local_fault(&self) -> Option<Fault> {
        (self.faulted == self.sq.head()).then(|| self.sq.wqe(self.sq.head()).fault)
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
            _ if self.says_which(link, packet) => self.take_selectively(link, packet, cx),
            SyndromeKind::Ack(_) => {
                self.take_credits(&aeth);
                match self.acknowledge(psn.next(), link, cx) {
                    Reach::All => Ok(()),
                    Reach::ResponseMissing => self.on_response_missing(link, packet, cx),
                }
            }
            SyndromeKind::RnrNak(timer) => self.on_rnr_nak(timer, psn, link, packet, cx),
            SyndromeKind::Nak(code) => self.on_nak(code, psn, link, packet, cx),
            SyndromeKind::Reserved => Ok(()),
        }
    }

    fn on_nak<H: Host>(
        &mut self,
        code: NakCode,
        psn: Psn,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        // A NAK acknowledges everything before its PSN.
        if self.acknowledge(psn, link, cx) == Reach::ResponseMissing {
            return self.on_response_missing(link, packet, cx);
        }
        match code {
            NakCode::PsnSequence
                if link.peer.is_known()
                    || self.tries(psn, cx.common.config.recovery)
                    || self.has_reads() && self.keeps_answers(cx.common.config.recovery) =>
            {
                self.take_selectively(link, packet, cx)
            }
            NakCode::PsnSequence => {
                cx.common.stats.rcvd_seq_err += 1;
                self.counts.rcvd_seq_err += 1;
                self.go_back(cx)
            }
            code => Err(nak_fault(code)),
        }
    }

    pub(crate) fn on_read_response<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        // A response also acknowledges every SEND and WRITE before it.
        if self.acknowledge(psn, link, cx) == Reach::ResponseMissing {
            return self.on_response_missing(link, packet, cx);
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
        // Of what is, or was, asked for in parts, each ends in its own place.
        let ends_rightly = ends == chunk_ends || self.selective.is_some() || self.believes(link);
        if packet.payload().len() as u64 != expected || !ends_rightly {
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
            self.free_place(psn);
        }
        if psn == wqe.last_psn {
            self.retire(link, cx);
        }
        Ok(())
    }

    pub(crate) fn on_atomic_ack<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        if self.acknowledge(psn, link, cx) == Reach::ResponseMissing {
            return self.on_response_missing(link, packet, cx);
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
        self.free_place(psn);
        self.retire(link, cx);
        Ok(())
    }

    /// An ACKNOWLEDGE that says which packets are there.
    #[inline]
    fn says_which(&self, link: &Link, packet: &Packet<'_>) -> bool {
        packet.info().operation == Operation::Acknowledge
            && !packet.payload().is_empty()
            && self.believes(link)
    }

    #[inline]
    pub(crate) fn take_credits(&mut self, aeth: &Aeth) {
        if let SyndromeKind::Ack(code) = aeth.syndrome.decode() {
            self.credit.on_credits(aeth.msn, code);
        }
    }

    /// Completes every SEND and WRITE before `end`, in order.
    #[inline]
    pub(crate) fn acknowledge<H: Host>(
        &mut self,
        end: Psn,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) -> Reach {
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
        let opcode = wqe.opcode;
        if link.sq_sig_all || wqe.flags.contains(SendFlags::SIGNALED) {
            if wqe.flags.contains(SendFlags::OWN) {
                self.retire_own(link, cx);
            } else {
                let cqe = send_cqe(wqe, Fault::None, link);
                cx.complete(link.send_cq, cqe);
            }
        }
        if self.faulted == self.sq.head() {
            // It was sent whole before its memory vanished, and arrived after all.
            mark!(FaultedRequestArrived);
            self.faulted = NO_REQUEST;
        }
        cx.common.stats.rdma_sends += u64::from(is_send(opcode));
        self.sq.pop();
        if self.cursor < self.sq.head() {
            self.cursor = self.sq.head();
            self.next_psn = self.una;
        }
    }

    /// Completes all requests: the oldest with `fault`, the rest as flushed.
    pub(crate) fn flush<H: Host>(&mut self, mut fault: Fault, link: &Link, cx: &mut Cx<'_, '_, H>) {
        while !self.sq.is_empty() {
            let wqe = self.sq.wqe(self.sq.head());
            if wqe.flags.contains(SendFlags::OWN) {
                self.flush_own(fault, link, cx);
            } else {
                let cqe = send_cqe(wqe, fault, link);
                cx.complete(link.send_cq, cqe);
            }
            self.sq.pop();
            fault = Fault::Flushed;
        }
        self.cursor = self.sq.head();
        self.started = self.sq.head();
        self.faulted = NO_REQUEST;
        self.rd_inflight = 0;
        self.probe.stop();
        self.end_selective(cx.common);
        self.retry.stop();
    }
}

/// The fault that a NAK for good reports.
#[cold]
pub(crate) fn nak_fault(code: NakCode) -> Fault {
    match code {
        NakCode::InvalidRequest => {
            mark!(NakInvalidRequest);
            Fault::NakInvalidRequest
        }
        NakCode::RemoteAccess => {
            mark!(NakRemoteAccess);
            Fault::NakRemoteAccess
        }
        NakCode::RemoteOperational => {
            mark!(NakRemoteOperational);
            Fault::NakRemoteOperational
        }
        _ => Fault::NakUnknown,
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
