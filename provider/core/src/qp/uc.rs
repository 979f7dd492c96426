//! Unreliable connections: messages of any length that arrive whole or not at all.
//! After a gap the responder waits for the next packet that begins a message.

use urxe_wire::{Packet, Position, Service};

use crate::context::{Cx, Host};
use crate::error::{DropReason, Fault};
use crate::qp::Link;
use crate::qp::requester::{Requester, SendStep};
use crate::qp::responder::{Incoming, Outcome, Refusal, Responder};
use crate::qp::unreliable::Loss;
use crate::transmit::TxBatch;

/// Where the opcodes of the service begin.
const UC_OPCODES: u8 = 0x20;

impl Requester {
    /// Puts the next packet into the batch. The request is complete with its last one.
    ///
    /// # Errors
    /// The fault that ends the oldest request.
    pub(crate) fn poll_uc<H: Host>(
        &mut self,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<SendStep, Fault> {
        if self.cursor == self.started {
            if self.sq.wqe(self.cursor).opcode.is_local() {
                self.carry_out(link, cx)?;
                return Ok(SendStep::Local);
            }
            self.start(link, cx)?;
        }
        let Some(psns) = self.emit_data::<H, UC_OPCODES, false>(link, cx, batch)? else {
            return Ok(SendStep::BatchFull);
        };
        cx.common.stats.sent_pkts += 1;
        self.next_psn = self.next_psn.add(psns);
        self.una = self.next_psn;
        if self.next_psn.is_after(self.sq.wqe(self.cursor).last_psn) {
            cx.common.stats.sent_messages += 1;
            self.cursor += 1;
            self.retire(link, cx);
        }
        Ok(SendStep::Sent)
    }
}

impl Responder {
    /// Takes one request packet of an unreliable connection.
    ///
    /// # Errors
    /// Why the packet, and with it its message, was not taken.
    pub(crate) fn handle_uc_request<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Loss> {
        debug_assert_eq!(packet.info().service, Service::Uc, "checked at admission");
        let bth = packet.bth();
        self.peer_sets_mig_req = bth.mig_req;
        let starts = matches!(packet.info().position, Position::First | Position::Only);
        if bth.psn != self.epsn || starts {
            // Something is missing, or was never ended. The receive that was being filled
            // stays the next one, and is filled from its beginning (IBTA 9.8.2.2).
            if self.incoming != Incoming::Idle || !starts {
                cx.common.stats.out_of_seq_request += 1;
            }
            mark!(UcMessageCutOff if self.incoming != Incoming::Idle);
            self.incoming = Incoming::Idle;
        }
        // Whatever its PSN, a packet that begins a message is where the peer is now.
        self.epsn = bth.psn.next();
        if !starts && self.incoming == Incoming::Idle {
            mark!(UcRestDropped);
            return Err(Loss::Dropped(DropReason::Incomplete));
        }
        match self.execute(link, packet, cx) {
            Ok(Outcome::Executed { ends_message, .. }) => {
                cx.common.stats.rcvd_messages += u64::from(ends_message);
                Ok(())
            }
            Ok(Outcome::NotReady) => {
                mark!(UcNoReceive);
                self.abandon(DropReason::NoReceive)
            }
            Err(refusal) => self.abandon_refused(refusal),
        }
    }

    /// The rest of the message is dropped too.
    fn abandon(&mut self, reason: DropReason) -> Result<(), Loss> {
        self.incoming = Incoming::Idle;
        Err(Loss::Dropped(reason))
    }

    fn abandon_refused(&mut self, refusal: Refusal) -> Result<(), Loss> {
        match refusal {
            Refusal::Local(fault) => Err(Loss::Failed(fault)),
            Refusal::TooLong => {
                mark!(UcReceiveTooShort);
                self.abandon(DropReason::ReceiveTooShort)
            }
            _ => {
                mark!(UcRefused);
                self.abandon(DropReason::Refused)
            }
        }
    }
}
