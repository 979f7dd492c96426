//! Unreliable datagrams: one packet each, from any sender that knows the Q_Key.

use core::net::IpAddr;

use urxe_wire::{
    Bth, Deth, Gid, Grh, ImmDt, Ipv4, Ipv6, Opcode, PROTOCOL_UDP, Packet, PacketWriter, Qkey,
    packet_len,
};

use crate::context::{Cx, Host};
use crate::cq::{Cqe, WcOpcode};
use crate::error::{DropReason, Fault};
use crate::qp::requester::{Requester, SendStep};
use crate::qp::unreliable::{Arrival, Loss};
use crate::qp::{Link, Qp, sgl};
use crate::qpn_table::QpnChunk;
use crate::transmit::{TxBatch, TxDest};
use crate::work::{SendFlags, WrOpcode};

/// Bytes of IPv4 header and UDP header before a packet.
const IPV4_UDP_LEN: u16 = 28;
/// Bytes of UDP header before a packet.
const UDP_LEN: u16 = 8;
/// A UDP socket does not tell how many routers a packet has passed: what hosts begin with.
const HOP_LIMIT: u8 = 64;
/// Q_Keys with this bit are given to QPs by privileged programs only.
const CONTROLLED: u32 = 1 << 31;

impl Qp {
    /// Takes one datagram.
    ///
    /// # Errors
    /// Why it was not received.
    pub(crate) fn handle_datagram<H: Host>(
        &mut self,
        arrival: Arrival<'_>,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Loss> {
        let deth = packet
            .deth()
            .expect("every UD packet has a DETH by its table entry");
        if deth.qkey != self.attr.qkey {
            return Err(Loss::Dropped(DropReason::Qkey));
        }
        let payload = packet.payload();
        if payload.len() > self.link.mtu as usize {
            return Err(Loss::Dropped(DropReason::Refused));
        }
        if !arrival.is_believed && !cx.common.believes(arrival, cx.env.now) {
            return Err(Loss::Dropped(DropReason::Icrc));
        }
        if self.resp.rq.is_empty() && !self.resp.find_receive(&self.link, cx) {
            return Err(Loss::Dropped(DropReason::NoReceive));
        }
        let total = Grh::LEN + payload.len();
        // The receive stays for a shorter datagram, as with the drivers of adapters.
        if total as u64 > self.resp.rq.front_length() {
            return Err(Loss::Dropped(DropReason::ReceiveTooShort));
        }
        let (pd, sges) = (self.resp.recvs.pd, self.resp.rq.front_sges());
        let grh = grh_of(arrival, packet.bytes().len());
        sgl::scatter(cx.env, pd, sges, 0, &grh)
            .and_then(|()| sgl::scatter(cx.env, pd, sges, Grh::LEN as u64, payload))
            .map_err(Loss::Failed)?;
        let (wr_id, opcode) = (self.resp.rq.front_wr_id(), WcOpcode::Recv);
        let cqe = Cqe {
            imm: packet.imm().map(|imm| imm.0),
            src_qp: deth.src_qp,
            grh: true,
            ipv4: arrival.path.local.is_ipv4(),
            solicited: packet.bth().solicited,
            ..self.link.cqe(wr_id, opcode, Fault::None, total as u32)
        };
        self.resp.rq.pop();
        cx.common.learn_datagram(arrival, cx.env.now);
        cx.common.stats.rcvd_messages += 1;
        cx.complete(self.resp.recvs.cq, cqe);
        Ok(())
    }
}

impl Requester {
    /// Puts the oldest datagram into the batch, and completes it. `own_qkey` is that of
    /// the QP.
    ///
    /// # Errors
    /// The fault that ends it.
    pub(crate) fn poll_datagram<H: Host>(
        &mut self,
        link: &Link,
        own_qkey: Qkey,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<SendStep, Fault> {
        let number = self.sq.head();
        let wqe = self.sq.wqe(number);
        let to = self
            .sq
            .target(number)
            .expect("a datagram without a target is refused when it is posted");
        let opcode = match wqe.opcode {
            WrOpcode::SendWithImm => Opcode::UD_SEND_ONLY_WITH_IMM,
            _ => Opcode::UD_SEND_ONLY,
        };
        let info = opcode.info().expect("the table holds every UD opcode");
        let packet_len = packet_len(info, wqe.length as usize);
        let dest = TxDest {
            chunk: QpnChunk::of(to.qpn),
            ..to.ah.dest
        };
        let Some(slot) = batch.reserve(&dest, packet_len) else {
            return Ok(SendStep::BatchFull);
        };
        let mut bth = Bth::new(opcode, to.qpn, self.next_psn);
        bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
        let mut writer = PacketWriter::new(slot.bytes, &bth);
        // IBTA 10.2.5: a program that names a controlled Q_Key sends its QP's own, which a
        // privileged one gave it; so it cannot pretend to have another.
        let qkey = match to.qkey {
            Qkey(key) if key & CONTROLLED != 0 => own_qkey,
            qkey => qkey,
        };
        writer.deth(&Deth {
            qkey,
            reserved: 0,
            src_qp: link.qpn,
        });
        if wqe.opcode == WrOpcode::SendWithImm {
            writer.imm(&ImmDt(wqe.imm));
        }
        let payload = writer.payload_mut(wqe.length as usize);
        if wqe.flags.contains(SendFlags::INLINE) {
            payload.copy_from_slice(self.sq.inline(number));
        } else if let Err(fault) = sgl::gather(cx.env, link.pd, self.sq.sges(number), 0, payload) {
            batch.retract(packet_len);
            return Err(fault);
        }
        writer.finish(&to.ah.seed, slot.ident);
        cx.common.stats.sent_pkts += 1;
        cx.common.stats.sent_messages += 1;
        self.next_psn = self.next_psn.next();
        (self.assign_psn, self.una) = (self.next_psn, self.next_psn);
        self.cursor += 1;
        self.started += 1;
        self.retire(link, cx);
        Ok(SendStep::Sent)
    }
}

/// The 40 bytes before the payload: the IP header that the packet came with, as far as a
/// UDP socket tells. Over IPv4 it stands in the last 20, with a right checksum, as
/// programs look for that to tell the forms apart.
fn grh_of(arrival: Arrival<'_>, packet_len: usize) -> [u8; Grh::LEN] {
    let path = arrival.path;
    // A received packet was no longer than a UDP datagram can be.
    let packet_len = packet_len as u16;
    let grh = match (path.source, path.local) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = Ipv4 {
                tos: path.tos,
                total_len: packet_len.saturating_add(IPV4_UDP_LEN),
                ident: arrival.ident,
                flags_and_offset: Ipv4::DF,
                ttl: HOP_LIMIT,
                protocol: PROTOCOL_UDP,
                checksum: 0,
                src,
                dst,
            };
            header.checksum = header.computed_checksum();
            Grh::V4(header)
        }
        (src, dst) => Grh::V6(Ipv6 {
            traffic_class: path.tos,
            flow_label: 0,
            payload_len: packet_len.saturating_add(UDP_LEN),
            next_header: PROTOCOL_UDP,
            hop_limit: HOP_LIMIT,
            src: Gid::from(src).0.into(),
            dst: Gid::from(dst).0.into(),
        }),
    };
    grh.emit()
}
