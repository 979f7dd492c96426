//! Receives rows of MIDDLE packets.

use urxe_wire::{
    BTH_LEN, Bth, ICRC_LEN, IcrcPolicy, IcrcSeed, IcrcVerdict, Opcode, Pkey, Psn, Service,
};

use super::packets::{MiddlePackets, RxBytes};
use crate::congestion::CONGESTION_EXPERIENCED;
use crate::context::{Common, Cx, Host};
use crate::memory::MemoryFault;
use crate::mr::Access;
use crate::path::RxPath;
use crate::qp::recovery::Waiting;
use crate::qp::responder::{Incoming, Responder};
use crate::qp::{Qp, sgl};
use crate::work::{MESSAGE_MAX, WrOpcode};

/// A row that is being taken.
struct Row<'a> {
    packets: MiddlePackets<'a>,
    check: Check,
    mtu: usize,
    /// The first bytes of each, up to the PSN and what is asked for.
    head: [u8; 8],
    mig_req: bool,
    /// PSN of the next one.
    psn: Psn,
    taken: u32,
}

impl<'a> Row<'a> {
    /// The row that begins with the first packet, if that is an ordinary MIDDLE packet to the QP.
    #[inline]
    fn of(packets: MiddlePackets<'a>, check: Check, qp: &Qp) -> Option<(Row<'a>, Opcode)> {
        let mtu = qp.link.mtu as usize;
        let first = packets.bytes.bth()?;
        let bth = Bth::parse(&first);
        let is_ordinary = packets.size == BTH_LEN + mtu + ICRC_LEN
            && bth.dest_qp == qp.link.qpn
            && (bth.tver, bth.pad_count) == (0, 0)
            && bth.pkey.matches(Pkey::DEFAULT);
        let row = Row {
            packets,
            check,
            mtu,
            head: *first.first_chunk()?,
            mig_req: bth.mig_req,
            psn: bth.psn,
            taken: 0,
        };
        is_ordinary.then_some((row, bth.opcode))
    }

    /// Packets that there can be, if the message has room for `room` more.
    fn most(&self, room: u32) -> u32 {
        self.packets.full().min(room)
    }

    /// Takes packets, up to `max`, and hands their payload over, each with its offset in that of the row, and whether it asks for an ACK. A packet
    /// that is not the next one of the row, or that does not find its memory, ends it.
    #[inline]
    fn take(
        &mut self,
        max: u32,
        mut place: impl FnMut(usize, RxBytes<'a>, bool) -> Result<(), MemoryFault>,
    ) {
        while self.taken < max {
            let bytes = self.packets.packet(self.taken);
            let Some([head @ .., asks, high, middle, low]) = bytes.bth() else {
                return;
            };
            let psn = Psn::new(u32::from_be_bytes([0, high, middle, low]));
            let number = self.packets.place.wrapping_add(self.taken as u16);
            if head != self.head || psn != self.psn || !self.check.passes(number, bytes) {
                mark!(MiddleEnded);
                return;
            }
            let payload = bytes.part(BTH_LEN, self.mtu);
            let offset = self.taken as usize * self.mtu;
            if place(offset, payload, asks & 0x80 != 0).is_err() {
                return;
            }
            self.taken += 1;
            self.psn = psn.next();
        }
    }
}

impl Qp {
    /// Takes a row of packets that begins with the first one, if there is one; says how many.
    pub(crate) fn take_middle<H: Host>(
        &mut self,
        path: &RxPath,
        packets: MiddlePackets<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> u32 {
        let comes_rightly = self.service == Service::Rc
            && path.source == self.link.dest.remote
            && path.local == self.link.dest.local
            && path.ecn() != CONGESTION_EXPERIENCED;
        if !comes_rightly {
            return 0;
        }
        let check = cx.common.plain_check(path, self);
        let Some((mut row, opcode)) = Row::of(packets, check, self) else {
            return 0;
        };
        match opcode {
            Opcode::RC_READ_RESPONSE_MIDDLE => self.take_read_row(&mut row, cx),
            Opcode::RC_WRITE_MIDDLE => self.take_write_row(&mut row, cx),
            Opcode::RC_SEND_MIDDLE => self.take_send_row(&mut row, cx),
            _ => {}
        }
        row.taken
    }

    fn take_write_row<H: Host>(&mut self, row: &mut Row<'_>, cx: &mut Cx<'_, '_, H>) {
        let (link, resp) = (&self.link, &mut self.resp);
        let Incoming::Write {
            va,
            rkey,
            total,
            received,
        } = resp.incoming
        else {
            return;
        };
        if !self.state.takes_requests() || !resp.expects_plainly(row.psn) {
            return;
        }
        // The last packet has something.
        let max = row.most((total - received).saturating_sub(1) / link.mtu);
        let (at, len) = (va + u64::from(received), max as usize * row.mtu);
        let (by, need) = (link.accessor(), Access::REMOTE_WRITE);
        let span = cx.env.mrs.check_remote(rkey, by, at, len, need);
        let Ok(span) = span else {
            return;
        };
        let (memory, now) = (cx.env.memory, cx.now());
        row.take(max, |offset, payload, asks| {
            payload.place_write(memory, link.qpn, span.part(offset, payload.len()))?;
            resp.ack.on_executed(now, asks);
            Ok(())
        });
        resp.on_row(row);
        mark!(MiddleWritten if row.taken > 1);
        resp.incoming = Incoming::Write {
            va,
            rkey,
            total,
            received: received + row.taken * link.mtu,
        };
    }

    fn take_send_row<H: Host>(&mut self, row: &mut Row<'_>, cx: &mut Cx<'_, '_, H>) {
        let (link, resp) = (&self.link, &mut self.resp);
        let Incoming::Send { received } = resp.incoming else {
            return;
        };
        let is_ready = self.state.takes_requests() && resp.tagged.is_none();
        if !is_ready || !resp.expects_plainly(row.psn) || resp.rq.is_empty() {
            return;
        }
        let room = resp.rq.front_length().min(MESSAGE_MAX);
        let max = row.most((room.saturating_sub(received) / u64::from(link.mtu)) as u32);
        let (place, need) = ((received, max as usize * row.mtu), Access::LOCAL_WRITE);
        let sges = resp.rq.front_sges();
        let Some(span) = sgl::span(cx.env.mrs, resp.recvs.pd, sges, place, need) else {
            return;
        };
        let (memory, now) = (cx.env.memory, cx.now());
        row.take(max, |offset, payload, asks| {
            payload.copy_in(memory, span.part(offset, payload.len()))?;
            resp.ack.on_executed(now, asks);
            Ok(())
        });
        resp.on_row(row);
        mark!(MiddleReceived if row.taken > 1);
        resp.incoming = Incoming::Send {
            received: received + u64::from(row.taken) * u64::from(link.mtu),
        };
    }

    fn take_read_row<H: Host>(&mut self, row: &mut Row<'_>, cx: &mut Cx<'_, '_, H>) {
        let (link, req) = (&self.link, &mut self.req);
        let una = req.una;
        let under_way = req.sent_end.distance_from(una);
        let is_ready = self.state.takes_responses()
            && req.selective.is_none()
            // It measures by each answer.
            && req.congestion.is_none()
            && row.psn == una
            && under_way > 0
            && req.sq.head() < req.started;
        if !is_ready {
            return;
        }
        let number = req.sq.head();
        let wqe = req.sq.wqe(number);
        let at = una.distance_from(wqe.first_psn);
        if wqe.opcode != WrOpcode::RdmaRead || una.is_before(wqe.first_psn) {
            return;
        }
        // The last packet of what was asked for is none of the middle.
        let max = row.most((req.chunk_end(wqe, at) - at - 1).min(under_way));
        let offset = u64::from(at) * u64::from(link.mtu);
        let (place, need) = ((offset, max as usize * row.mtu), Access::LOCAL_WRITE);
        let Some(span) = sgl::span(cx.env.mrs, link.pd, req.sq.sges(number), place, need) else {
            return;
        };
        let memory = cx.env.memory;
        row.take(max, |offset, payload, _| {
            payload.copy_in(memory, span.part(offset, payload.len()))
        });
        mark!(MiddleAnswered if row.taken > 1);
        req.una = row.psn;
        req.after_acknowledged(una, cx);
    }
}

impl Responder {
    /// This PSN is the next one, and nothing was said about it.
    fn expects_plainly(&self, psn: Psn) -> bool {
        psn == self.epsn
            && self.waiting == Waiting::No
            && self.nak_owed.is_none()
            && self.ahead.is_none()
    }

    /// Packets of the message that comes in were executed.
    fn on_row(&mut self, row: &Row<'_>) {
        if row.taken > 0 {
            mark!(ExpectedPsnWrapped if row.psn.get() < self.epsn.get());
            self.epsn = row.psn;
            self.answered_last = false;
            self.peer_sets_mig_req = row.mig_req;
        }
    }
}

/// Whether the ICRC of a packet fits with its place in the train, and there is nothing else to be said about it.
struct Check {
    seed: IcrcSeed,
    policy: IcrcPolicy,
    /// Of the peer's Identifications nothing is to be learnt.
    has_no_doubt: bool,
    has_idents: bool,
}

impl Check {
    #[inline]
    fn passes(&self, place: u16, packet: RxBytes<'_>) -> bool {
        if self.seed.is_in_memory() {
            return true;
        }
        // What is shared has not come over a network.
        let RxBytes::Own(packet) = packet else {
            return false;
        };
        let expected = if self.has_idents { place } else { 0 };
        let verdict = self.seed.verify_with(self.policy, place, packet);
        self.has_no_doubt && verdict == IcrcVerdict::Ok { ident: expected }
    }
}

impl Common {
    #[inline]
    fn plain_check(&self, path: &RxPath, qp: &Qp) -> Check {
        Check {
            seed: path.seed,
            policy: self.config.icrc,
            has_no_doubt: qp.link.dest.in_memory || !qp.ident.can_learn() || !self.solves(path),
            has_idents: path.source.is_ipv4(),
        }
    }
}
