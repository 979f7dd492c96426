//! Rows of ONLY packets: short messages of one kind and one length, posted one behind the other.
//!
//! Programs that post many requests post them alike. What is decided for one of such messages is decided for all: that the QP may send, how many
//! the window and the batch take, where they go. So behind a message that went the usual way (`requester.rs`) those like the next one leave as
//! a row. Whatever is out of the ordinary about a request ends the row before it, and the usual way takes it from there: a row does what that
//! would do, or nothing.

use urxe_wire::{Bth, Opcode, PacketWriter, Reth, packet_len};

use crate::context::{Cx, Host};
use crate::qp::Link;
use crate::qp::requester::Requester;
use crate::qp::sgl;
use crate::transmit::TxBatch;
use crate::turns::Budget;
use crate::work::{SendFlags, SendWqe, WrOpcode};

/// The opcode of such a message, if there are rows of its kind.
fn only_opcode(opcode: WrOpcode) -> Option<Opcode> {
    match opcode {
        WrOpcode::Send => Some(Opcode::RC_SEND_ONLY),
        WrOpcode::RdmaWrite => Some(Opcode::RC_WRITE_ONLY),
        _ => None,
    }
}

/// It may be in a row with another one of this kind and length.
#[inline]
fn is_like(wqe: &SendWqe, (opcode, length): (WrOpcode, u32)) -> bool {
    wqe.opcode == opcode && wqe.length == length && !wqe.flags.contains(SendFlags::FENCE)
}

impl Requester {
    /// Puts the next messages into the batch, as far as they are alike. Returns how many.
    #[inline(never)]
    pub(super) fn send_only<H: Host>(
        &mut self,
        link: &Link,
        budget: &Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> u32 {
        // Nothing is sent again, which goes the usual way: all that was started has left.
        debug_assert!(self.cursor == self.started && !self.probe.is_due());
        debug_assert_eq!([self.next_psn; 2], [self.sent_end, self.assign_psn]);
        let first = self.sq.wqe(self.cursor);
        let length = first.length;
        let kind = (first.opcode, length);
        let is_plain = is_like(first, kind)
            && length <= link.mtu
            && self.selective.is_none()
            && self.congestion.is_none()
            && self.blocked(link, true).is_none();
        let Some(opcode) = only_opcode(first.opcode).filter(|_| is_plain) else {
            return 0;
        };
        let info = opcode.info().expect("in the table");
        let len = packet_len(info, length as usize);
        let window = self.room(first).saturating_sub(self.under_way());
        let credits = match first.opcode.takes_credit() {
            true => self.credit.allowed(),
            false => u32::MAX,
        };
        let most = budget.packets_left(len, batch).min(window).min(credits);
        let next = (self.cursor..self.sq.tail()).take(most as usize);
        let alike = next.take_while(|&number| is_like(self.sq.wqe(number), kind));
        let count = alike.count();
        if count == 0 {
            return 0;
        }
        let sent = self.emit_only(link, (opcode, len, count), cx, batch);
        mark!(OnlySent if sent > 1);
        if sent > 0 {
            self.note_asking(sent, true, link, cx);
            self.on_sent_only(sent, length, link, cx);
        }
        sent
    }

    /// Puts up to `count` messages into the batch, each a packet of `len` bytes. Returns how many there are: fewer if the batch has no room, or a
    /// message cannot be built.
    fn emit_only<H: Host>(
        &mut self,
        link: &Link,
        (opcode, len, count): (Opcode, usize, usize),
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> u32 {
        let Some(mut row) = batch.reserve_more(&link.dest, len, count) else {
            return 0;
        };
        let is_write = opcode == Opcode::RC_WRITE_ONLY;
        let packets = row.packets();
        let mut built = 0;
        while built < packets {
            let number = self.cursor + built as u64;
            let wqe = self.sq.wqe(number);
            let psn = self.next_psn.add(built as u32);
            let slot = row.slot(built);
            let mut bth = Bth::new(opcode, link.dest_qpn, psn);
            bth.ack_req = true;
            bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
            let mut writer = PacketWriter::new(slot.bytes, &bth);
            if is_write {
                writer.reth(&Reth {
                    va: wqe.remote_addr,
                    rkey: wqe.rkey,
                    dma_len: wqe.length,
                });
            }
            let payload = writer.payload_mut(wqe.length as usize);
            if wqe.flags.contains(SendFlags::INLINE) {
                payload.copy_from_slice(self.sq.inline(number));
            } else if !payload.is_empty()
                && sgl::gather(cx.env, link.pd, self.sq.sges(number), 0, payload).is_err()
            {
                break;
            }
            writer.finish(&link.seed, slot.ident);
            let wqe = self.sq.wqe_mut(number);
            (wqe.first_psn, wqe.last_psn) = (psn, psn);
            self.credit.on_start(!is_write);
            built += 1;
        }
        for _ in built..packets {
            batch.retract(len);
        }
        built as u32
    }
}
