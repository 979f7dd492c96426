//! ATOMIC WRITE and FLUSH (IBTA annex A19). To the transport both are like a READ of no
//! bytes: executed in order, one place of `max_rd_atomic` each, answered by an empty READ
//! response, and when that was lost the answer is repeated without doing them again.

use urxe_wire::{
    Aeth, Bth, Opcode, Packet, PacketWriter, Position, Psn, Reth, SyndromeKind, packet_len,
};

use crate::context::{Cx, Host};
use crate::error::Fault;
use crate::flush::{Flush, Placement, Selectivity};
use crate::memory::Memory;
use crate::mr::Access;
use crate::qp::Link;
use crate::qp::execute::check_key;
use crate::qp::replay::ResourceKind;
use crate::qp::requester::Requester;
use crate::qp::responder::{Outcome, Refusal, Responder};
use crate::qp::sgl;
use crate::transmit::TxBatch;
use crate::work::{SendFlags, SendWqe, WrOpcode};

/// Bytes that an ATOMIC WRITE writes.
const WORD: u32 = 8;

impl Requester {
    /// Puts the request at the cursor into the batch.
    pub(crate) fn emit_placement<H: Host>(
        &mut self,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<Option<u32>, Fault> {
        let wqe = self.sq.wqe(self.cursor);
        let flush = Flush::of_fields(wqe.compare_add, wqe.swap);
        let flush = flush.filter(|_| wqe.opcode == WrOpcode::Flush);
        let (opcode, payload_len, dma_len) = match &flush {
            Some(flush) => (Opcode::RC_FLUSH, 0, flush.length),
            None => (Opcode::RC_ATOMIC_WRITE, WORD, WORD),
        };
        let info = opcode.info().expect("the table holds every RC opcode");
        let packet_len = packet_len(info, payload_len as usize);
        let Some(slot) = batch.reserve(&link.dest, packet_len) else {
            return Ok(None);
        };
        let mut bth = Bth::new(opcode, link.dest_qpn, self.next_psn);
        bth.ack_req = true;
        let mut writer = PacketWriter::new(slot.bytes, &bth);
        if let Some(flush) = &flush {
            writer.feth(&flush.feth());
        }
        writer.reth(&Reth {
            va: wqe.remote_addr,
            rkey: wqe.rkey,
            dma_len,
        });
        let payload = writer.payload_mut(payload_len as usize);
        if let Err(fault) = self.gather_word(link, wqe, payload, cx) {
            batch.retract(packet_len);
            return Err(fault);
        }
        writer.finish(&link.seed, slot.ident);
        self.rd_inflight += 1;
        self.is_answer_due = true;
        Ok(Some(1))
    }

    fn gather_word<H: Host>(
        &self,
        link: &Link,
        wqe: &SendWqe,
        payload: &mut [u8],
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        if wqe.flags.contains(SendFlags::INLINE) {
            payload.copy_from_slice(self.sq.inline(self.cursor));
            Ok(())
        } else {
            sgl::gather(cx.env, link.pd, self.sq.sges(self.cursor), 0, payload)
        }
    }

    /// The empty READ response to the oldest request, which is one of ours.
    pub(crate) fn on_placed<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let is_ack = |aeth: &Aeth| matches!(aeth.syndrome.decode(), SyndromeKind::Ack(_));
        let is_empty = packet.info().position == Position::Only && packet.payload().is_empty();
        let aeth = packet.aeth().filter(|aeth| is_empty && is_ack(aeth));
        self.take_credits(&aeth.ok_or(Fault::UnexpectedResponse)?);
        self.una = psn.next();
        self.free_place(psn);
        self.retire(link, cx);
        Ok(())
    }
}

impl Responder {
    /// Stores 8 bytes at once.
    pub(crate) fn on_atomic_write<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        const NEED: Access = Access::REMOTE_WRITE;
        self.check_acceptable(link, NEED)?;
        let reth = packet
            .reth()
            .expect("ATOMIC WRITE has a RETH by its table entry");
        let is_word = reth.dma_len == WORD && packet.payload().len() == WORD as usize;
        if !reth.va.is_multiple_of(WORD.into()) {
            return Err(Refusal::Misaligned);
        }
        if !is_word {
            return Err(Refusal::Length);
        }
        let span = check_key(link, (reth.rkey, reth.va, WORD), NEED, cx)?;
        // A region may lie askew to its addresses; then it is not one store.
        if !span.host_addr().is_multiple_of(WORD.into()) {
            return Err(Refusal::Memory(NEED));
        }
        cx.env
            .memory
            .place_write(link.qpn, span, packet.payload())
            .map_err(|_| Refusal::Memory(NEED))?;
        self.accept(1, ResourceKind::Placed)
    }

    /// Makes sure of what earlier requests wrote.
    pub(crate) fn on_flush<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        let (Some(feth), Some(reth)) = (packet.feth(), packet.reth()) else {
            return Err(Refusal::Length);
        };
        let flush = Flush::parse(&feth, reth.dma_len).ok_or(Refusal::Length)?;
        let rights = flush.placement.rights().ok_or(Refusal::Length)?;
        self.check_acceptable(link, rights)?;
        if !packet.payload().is_empty() {
            return Err(Refusal::Length);
        }
        let mrs = &cx.env.mrs;
        let span = match flush.selectivity {
            Selectivity::Range => {
                let len = flush.length as usize;
                mrs.check_remote(reth.rkey, link.accessor(), reth.va, len, rights)
            }
            Selectivity::Region => mrs.check_remote_whole(reth.rkey, link.accessor(), rights),
        };
        let span = span.map_err(|_| Refusal::Memory(rights))?;
        // Global visibility needs only that earlier requests were executed: a processor with
        // coherent caches stored them.
        if flush.placement.contains(Placement::PERSISTENT) {
            let persisted = cx.env.memory.persist(span);
            persisted.map_err(|_| Refusal::Memory(rights))?;
        }
        self.accept(1, ResourceKind::Placed)
    }
}
