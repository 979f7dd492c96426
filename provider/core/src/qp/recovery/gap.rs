//! The responder at a gap: packets ahead of the expected one.

use urxe_wire::{Aeth, NakCode, Opcode, Packet, PacketWriter, Psn, Syndrome, packet_len};

use crate::config::Recovery;
use crate::context::{Common, Cx, Host};
use crate::error::DropReason;
use crate::qp::recovery::ahead::{Ahead, Keep, span};
use crate::qp::recovery::{Waiting, sack};
use crate::qp::respond::RespondStep;
use crate::qp::responder::{Refusal, Responder};
use crate::qp::{Link, Qp};
use crate::transmit::TxBatch;

impl Responder {
    /// Packets were lost or overtaken: one NAK, then silence until the expected one. What is ahead is kept, if there is
    /// room.
    pub(crate) fn on_ahead<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) {
        cx.common.stats.out_of_seq_request += 1;
        self.counts.out_of_seq_request += 1;
        let span = span(packet, link.mtu);
        let keep = self.keep(link, packet, span, cx.common);
        let is_dropped = keep == Keep::No;
        if keep == Keep::Again {
            self.seen.note_again(packet.bth().psn, span, 0);
        }
        if link.peer.is_known() {
            // Of a READ request that leaves twice one is kept, and the other says nothing.
            if keep != Keep::Again || !Responder::is_copy(link, packet) {
                self.owe_news(keep, packet.bth().ack_req);
            }
        }
        if self.waiting == Waiting::No {
            mark!(SequenceNakSent);
            tell!(DEBUG, psn = self.epsn.get(), "NAK: packets are missing");
            self.waiting = Waiting::SequenceNakSent;
            self.nak_owed = Some((Syndrome::nak(NakCode::PsnSequence), self.epsn));
        } else if is_dropped {
            mark!(AheadDropped);
            cx.common.stats.drop_packet(DropReason::AheadOfSequence);
        }
    }

    fn keep(&mut self, link: &Link, packet: &Packet<'_>, span: u32, common: &mut Common) -> Keep {
        // A longer one is refused when its turn comes, and need not be kept for that.
        if common.config.recovery == Recovery::GoBackN || packet.payload().len() > link.mtu as usize
        {
            return Keep::No;
        }
        let ahead = self
            .ahead
            .get_or_insert_with(|| Box::new(Ahead::new(self.epsn)));
        let keep = ahead.keep(packet, span, &mut common.room);
        mark!(AheadKept if keep == Keep::New);
        mark!(AheadKeptBefore if keep == Keep::Again);
        keep
    }

    /// The peer is to hear which packets are here: now and then, and when it asks or sends what is here.
    fn owe_news(&mut self, keep: Keep, is_asked: bool) {
        self.duplicates = self.duplicates.wrapping_add(u16::from(keep == Keep::Again));
        let is_news = self.ahead.as_ref().is_some_and(|ahead| ahead.is_news());
        if keep == Keep::Again || is_asked || is_news {
            self.ack.owe_now();
        }
    }

    /// Puts an ACK or NAK into the batch that also says which packets are here.
    #[cold]
    pub(crate) fn emit_sack<H: Host>(
        &mut self,
        link: &Link,
        syndrome: Syndrome,
        psn: Psn,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> RespondStep {
        let opcode = Opcode::RC_ACKNOWLEDGE;
        let Some(ahead) = &mut self.ahead else {
            return RespondStep::Nothing;
        };
        let payload = sack::len(ahead.len(), link.mtu);
        let len = packet_len(opcode.info().expect("in the table"), payload);
        let Some(slot) = batch.reserve(&link.dest, len) else {
            return RespondStep::BatchFull;
        };
        let mut writer = PacketWriter::new(slot.bytes, &link.response(opcode, psn));
        writer.aeth(&Aeth {
            syndrome,
            msn: self.msn,
        });
        sack::write(writer.payload_mut(payload), self.duplicates, ahead.tell());
        writer.finish(&link.seed, slot.ident);
        mark!(SackSent);
        cx.common.stats.sent_pkts += 1;
        RespondStep::Sent
    }

    /// The packet that is expected now, if it was kept. Once nothing is left nothing is held.
    fn take_kept(&mut self, common: &mut Common) -> Option<Box<[u8]>> {
        let ahead = self.ahead.as_mut()?;
        let packet = match self.waiting {
            Waiting::RnrNakSent => None,
            _ => ahead.take(self.epsn, &mut common.room),
        };
        if ahead.is_empty() {
            self.forget_kept(common);
        }
        packet
    }

    /// Forgets what was kept.
    pub(crate) fn forget_kept(&mut self, common: &mut Common) {
        if let Some(mut ahead) = self.ahead.take() {
            ahead.clear(&mut common.room);
        }
    }
}

impl Qp {
    /// Handles what was kept and is expected now, packet by packet as if it had just arrived.
    #[cold]
    pub(crate) fn handle_kept<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        self.learn_from_requests(&cx.common.config);
        while let Some(bytes) = self.resp.take_kept(cx.common) {
            let packet = Packet::parse(&bytes).expect("it was parsed before it was kept");
            mark!(KeptExecuted);
            if let Err(refusal) = self.handle_kept_request(&packet, cx) {
                self.fail_recv(refusal, Some(&packet), cx);
            }
        }
    }

    fn handle_kept_request<H: Host>(
        &mut self,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Refusal> {
        if !self.may_enter(packet, cx.common) {
            return Err(self.resp.refuse(Refusal::Queue, cx));
        }
        self.resp.handle_request(&self.link, packet, cx)
    }
}
