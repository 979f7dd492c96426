//! The responder's packets: READ responses, atomic results, NAKs and ACKs, in PSN
//! order, so that no acknowledgement overtakes a response to an earlier request.

use urxe_wire::{Aeth, AtomicAckEth, Opcode, PacketWriter, Psn, Rkey, Syndrome, packet_len};

use crate::context::{Cx, Host};
use crate::memory::Memory;
use crate::mr::{Access, Accessor};
use crate::qp::Link;
use crate::qp::replay::{NextResponse, ResourceKind};
use crate::qp::responder::{Refusal, Responder};
use crate::transmit::TxBatch;

/// What came of an attempt to send one response packet.
pub(crate) enum RespondStep {
    /// A packet is in the batch.
    Sent,
    /// The batch has no room for it.
    BatchFull,
    /// Nothing is due (of the kind that was asked for).
    Nothing,
}

/// What one packet of the answer to a READ has.
struct Part {
    opcode: Opcode,
    psn: Psn,
    accessor: Accessor,
    rkey: Rkey,
    addr: u64,
    len: usize,
}

impl Responder {
    /// Puts the next READ response, atomic result or NAK into the batch.
    ///
    /// # Errors
    /// [`Refusal`] if memory that an accepted READ names cannot be read any more.
    pub(crate) fn poll_response<H: Host>(
        &mut self,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<RespondStep, Refusal> {
        if let Some(next) = self.replay.peek() {
            let psn = next.psn;
            let step = match next.resource.kind {
                ResourceKind::Atomic { original } => {
                    let opcode = Opcode::RC_ATOMIC_ACKNOWLEDGE;
                    self.emit_bare(link, opcode, psn, cx, batch, |this, writer| {
                        writer.aeth(&this.aeth());
                        writer.atomic_ack_eth(&AtomicAckEth { original });
                    })
                }
                ResourceKind::Read { va, rkey, len, pd } => {
                    let at = psn.distance_from(next.resource.first_psn);
                    let offset = at * link.mtu;
                    let part = Part {
                        opcode: self.read_opcode(&next, at),
                        psn,
                        accessor: Accessor { pd, qpn: link.qpn },
                        rkey,
                        addr: va + u64::from(offset),
                        len: (len - offset).min(link.mtu) as usize,
                    };
                    self.emit_read(link, &part, cx, batch)?
                }
                ResourceKind::Placed => {
                    let opcode = Opcode::RC_READ_RESPONSE_ONLY;
                    self.emit_bare(link, opcode, psn, cx, batch, |this, writer| {
                        writer.aeth(&this.aeth());
                    })
                }
            };
            if matches!(step, RespondStep::Sent) {
                self.replay.advance();
            }
            return Ok(step);
        }
        let Some((syndrome, psn)) = self.nak_owed else {
            return Ok(RespondStep::Nothing);
        };
        let step = self.emit_ack(link, syndrome, psn, cx, batch);
        if matches!(step, RespondStep::Sent) {
            self.nak_owed = None;
            // A NAK acknowledges everything before it.
            self.ack.cancel();
        }
        Ok(step)
    }

    /// Puts the owed ACK into the batch, once every earlier response is in.
    pub(crate) fn poll_ack<H: Host>(
        &mut self,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> RespondStep {
        if !self.ack.is_owed() || self.owes_response() {
            return RespondStep::Nothing;
        }
        let syndrome = Syndrome::ack(self.credits());
        let psn = if self.peer_sets_mig_req || link.peer.is_known() {
            self.epsn.prev()
        } else {
            self.last_unanswered()
        };
        let step = self.emit_ack(link, syndrome, psn, cx, batch);
        if matches!(step, RespondStep::Sent) {
            self.ack.on_sent(cx.now());
        }
        step
    }

    /// The last request that has no answer but an ACK, for a peer that never sets MigReq.
    /// Linux's rdma_rxe takes an ACK with the PSN of a READ or atomic for the answer, and
    /// completes the request without its data if the answer was lost.
    #[cold]
    fn last_unanswered(&self) -> Psn {
        let psn = self.epsn.prev();
        if !self.answered_last {
            return psn;
        }
        self.replay.before_run_to(psn)
    }

    fn emit_ack<H: Host>(
        &mut self,
        link: &Link,
        syndrome: Syndrome,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> RespondStep {
        let opcode = Opcode::RC_ACKNOWLEDGE;
        let step = if self.ahead.is_some() && link.peer.is_known() {
            self.emit_sack(link, syndrome, psn, cx, batch)
        } else {
            self.emit_bare(link, opcode, psn, cx, batch, |this, writer| {
                let msn = this.msn;
                writer.aeth(&Aeth { syndrome, msn });
            })
        };
        cx.common.stats.ack_sent += u64::from(matches!(step, RespondStep::Sent));
        step
    }

    /// Puts a response without data into the batch: what `write` adds to its BTH. (Inlined the length is a constant.)
    #[inline(always)]
    fn emit_bare<H: Host>(
        &mut self,
        link: &Link,
        opcode: Opcode,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
        write: impl FnOnce(&mut Responder, &mut PacketWriter<'_>),
    ) -> RespondStep {
        let len = packet_len(opcode.info().expect("in the table"), 0);
        let Some(slot) = batch.reserve(&link.dest, len) else {
            return RespondStep::BatchFull;
        };
        let mut writer = PacketWriter::new(slot.bytes, &link.response(opcode, psn));
        write(self, &mut writer);
        writer.finish(&link.seed, slot.ident);
        cx.common.stats.sent_pkts += 1;
        RespondStep::Sent
    }

    /// The AETH of a response that is no NAK.
    #[inline]
    fn aeth(&mut self) -> Aeth {
        let syndrome = Syndrome::ack(self.credits());
        let msn = self.msn;
        Aeth { syndrome, msn }
    }

    fn emit_read<H: Host>(
        &mut self,
        link: &Link,
        part: &Part,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<RespondStep, Refusal> {
        let (opcode, psn, len) = (part.opcode, part.psn, part.len);
        let info = opcode.info().expect("in the table");
        let packet_len = packet_len(info, len);
        let Some(slot) = batch.reserve(&link.dest, packet_len) else {
            return Ok(RespondStep::BatchFull);
        };
        let mut writer = PacketWriter::new(slot.bytes, &link.response(opcode, psn));
        if opcode != Opcode::RC_READ_RESPONSE_MIDDLE {
            writer.aeth(&self.aeth());
        }
        let payload = writer.payload_mut(len);
        if len > 0 {
            // Again for every packet: the region may be gone by now.
            let need = Access::REMOTE_READ;
            let env = &cx.env;
            let span = env
                .mrs
                .check_remote(part.rkey, part.accessor, part.addr, len, need);
            let read = span
                .ok()
                .and_then(|span| env.memory.copy_out(span, payload).ok());
            if read.is_none() {
                mark!(ReadSourceGone);
                batch.retract(packet_len);
                if self.replay.is_repeat() {
                    return Ok(self.refuse_repeat(psn));
                }
                self.replay.cancel();
                self.nak_owed = Some((Syndrome::nak(Refusal::ReadSourceGone.code()), psn));
                return Err(Refusal::ReadSourceGone);
            }
        }
        writer.finish(&link.seed, slot.ident);
        cx.common.stats.sent_pkts += 1;
        Ok(RespondStep::Sent)
    }

    /// A READ was answered before, and now its memory is gone. Most likely the answer
    /// arrived, the memory was taken back for that reason, and this is an old copy of the
    /// request: then the peer ignores the NAK, and nothing may fail here. If the answer
    /// was lost, the NAK tells the peer why there is no other.
    #[cold]
    fn refuse_repeat(&mut self, psn: Psn) -> RespondStep {
        mark!(RepeatUnreadable);
        self.replay.skip_repeats();
        if self.nak_owed.is_none() {
            self.nak_owed = Some((Syndrome::nak(Refusal::ReadSourceGone.code()), psn));
        }
        RespondStep::Nothing
    }

    /// A repeated request is a new request, so its answer begins with FIRST or ONLY.
    /// Linux's rdma_rxe asks for the rest of a READ but takes only MIDDLE and LAST
    /// then; it is known by the MigReq bit that it never sets.
    fn read_opcode(&self, next: &NextResponse<'_>, at: u32) -> Opcode {
        let begins = if self.peer_sets_mig_req {
            next.psn == next.begin
        } else {
            at == 0
        };
        match (begins, at + 1 == next.resource.packets) {
            (true, true) => Opcode::RC_READ_RESPONSE_ONLY,
            (true, false) => Opcode::RC_READ_RESPONSE_FIRST,
            (false, true) => Opcode::RC_READ_RESPONSE_LAST,
            (false, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
        }
    }
}
