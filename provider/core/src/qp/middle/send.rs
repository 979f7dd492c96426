//! Sends rows of MIDDLE packets.

use urxe_wire::{BTH_LEN, Bth, ICRC_LEN, Opcode, PacketWriter};

use crate::context::{Cx, Host};
use crate::memory::Memory;
use crate::mr::{Access, Accessor, MrSpan};
use crate::qp::Link;
use crate::qp::asking::ACK_EVERY;
use crate::qp::replay::ResourceKind;
use crate::qp::requester::Requester;
use crate::qp::responder::Responder;
use crate::qp::sgl;
use crate::transmit::TxBatch;
use crate::turns::Budget;
use crate::work::{SendFlags, WrOpcode};

/// Bytes of a MIDDLE packet.
fn packet_len(link: &Link) -> usize {
    BTH_LEN + link.mtu as usize + ICRC_LEN
}

/// Puts up to `count` packets into the batch, of which the first has this BTH, with the bytes of the span. The last one asks for an ACK if all
/// are there and `asks`. Returns how many there are: fewer if the batch has no room, or memory is gone.
fn emit<M: Memory>(
    link: &Link,
    first: Bth,
    (count, asks): (u32, bool),
    span: MrSpan,
    memory: &M,
    batch: &mut TxBatch,
) -> u32 {
    let (mtu, len) = (link.mtu as usize, packet_len(link));
    let Some(mut row) = batch.reserve_more(&link.dest, len, count as usize) else {
        return 0;
    };
    let packets = row.packets() as u32;
    let mut built = 0;
    while built < packets {
        let slot = row.slot(built as usize);
        let bth = Bth {
            psn: first.psn.add(built),
            ack_req: asks && built + 1 == count,
            ..first
        };
        let mut writer = PacketWriter::new(slot.bytes, &bth);
        let payload = writer.payload_mut(mtu);
        let part = span.part(built as usize * mtu, mtu);
        if memory.copy_out(part, payload).is_err() {
            break;
        }
        writer.finish(&link.seed, slot.ident);
        built += 1;
    }
    for _ in built..packets {
        batch.retract(len);
    }
    built
}

impl Requester {
    /// Puts packets of a SEND or WRITE into the batch, behind one of them that has just been put there. Returns how many. Apart, so that what short
    /// messages need stays small.
    #[inline(never)]
    pub(crate) fn send_middle<H: Host>(
        &mut self,
        link: &Link,
        budget: &Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> u32 {
        let mut sent = 0;
        while !budget.is_used_up(batch) {
            match self.send_row(link, budget, cx, batch) {
                0 => break,
                row => sent += row,
            }
        }
        sent
    }

    /// A row ends with the packet that asks for an ACK.
    fn send_row<H: Host>(
        &mut self,
        link: &Link,
        budget: &Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> u32 {
        let wqe = self.sq.wqe(self.cursor);
        let is_plain = self.selective.is_none()
            && !self.probe.is_due()
            && !wqe.opcode.is_read_or_atomic()
            && !wqe.flags.contains(SendFlags::INLINE)
            // What is sent again goes the usual way.
            && self.next_psn == self.sent_end
            && self.next_psn.is_after(wqe.first_psn)
            && self.blocked(link, false).is_none();
        if !is_plain {
            return 0;
        }
        let at = self.next_psn.distance_from(wqe.first_psn);
        // One that fills the window asks for an ACK.
        let window = self.room(wqe).saturating_sub(self.under_way() + 1);
        let until_asks = ACK_EVERY - at % ACK_EVERY;
        let count = wqe.last_psn.distance_from(self.next_psn);
        let count = count.min(window).min(until_asks);
        let count = count.min(budget.packets_left(packet_len(link), batch));
        if count == 0 {
            return 0;
        }
        let opcode = match wqe.opcode {
            WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm => Opcode::RC_WRITE_MIDDLE,
            _ => Opcode::RC_SEND_MIDDLE,
        };
        let offset = u64::from(at) * u64::from(link.mtu);
        let len = (count * link.mtu) as usize;
        let sges = self.sq.sges(self.cursor);
        let Some(span) = sgl::span(cx.env.mrs, link.pd, sges, (offset, len), Access::NONE) else {
            return 0;
        };
        let first = Bth::new(opcode, link.dest_qpn, self.next_psn);
        let counted = (count, count == until_asks);
        let sent = emit(link, first, counted, span, cx.env.memory, batch);
        mark!(MiddleSent if sent > 1);
        if sent > 0 {
            self.is_answer_due = sent == until_asks;
            self.on_sent((sent, sent), link, cx);
        }
        sent
    }
}

impl Responder {
    /// Puts packets of the answer to a READ into the batch, behind one of them that has just been put there.
    #[inline(never)]
    pub(crate) fn send_middle<H: Host>(
        &mut self,
        link: &Link,
        budget: &Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) {
        let Some(next) = self.replay.peek().filter(|_| !self.replay.has_parts()) else {
            return;
        };
        let ResourceKind::Read { va, rkey, pd, .. } = next.resource.kind else {
            return;
        };
        let at = next.psn.distance_from(next.resource.first_psn);
        if next.psn == next.begin || at == 0 {
            return;
        }
        let count = next.resource.packets - 1 - at;
        let count = count.min(budget.packets_left(packet_len(link), batch));
        if count == 0 {
            return;
        }
        let first = link.response(Opcode::RC_READ_RESPONSE_MIDDLE, next.psn);
        let by = Accessor { pd, qpn: link.qpn };
        let from = va + u64::from(at) * u64::from(link.mtu);
        let len = count as usize * link.mtu as usize;
        let span = cx
            .env
            .mrs
            .check_remote(rkey, by, from, len, Access::REMOTE_READ);
        let Ok(span) = span else {
            return;
        };
        let sent = emit(link, first, (count, false), span, cx.env.memory, batch);
        mark!(MiddleRead if sent > 1);
        self.replay.advance_by(sent);
        cx.common.stats.sent_pkts += u64::from(sent);
    }
}
