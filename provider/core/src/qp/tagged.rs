//! SENDs to a QP with a shared receive queue that has tags ([`crate::tm`]).

use urxe_wire::{Packet, Position, Rvh, Tmh};

use crate::context::{Common, Cx, Host};
use crate::cq::{Cqe, TmFlags, TmInfo, WcOpcode};
use crate::error::Fault;
use crate::qp::Link;
use crate::qp::execute::check_length;
use crate::qp::responder::{Incoming, Outcome, Refusal, Responder};
use crate::qp::sgl;
use crate::table::SrqId;
use crate::tm::{Header, Tagged};
use crate::work::Rendezvous;

impl Responder {
    /// A packet of a SEND to a QP with tag matching.
    pub(crate) fn on_tagged_send<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        received: u64,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        check_length(packet, link.mtu)?;
        let position = packet.info().position;
        let ends = matches!(position, Position::Last | Position::Only);
        let mut payload = packet.payload();
        let mut tm = TmInfo::default();
        if matches!(position, Position::First | Position::Only) {
            let header = Header::parse(payload, ends);
            let Some(tagged) = self.find_tagged(&header, cx) else {
                self.needs_receives = true;
                return Ok(Outcome::NotReady);
            };
            self.set_message(tagged);
            match header {
                Header::Eager(tmh) if tagged == Tagged::Expected => {
                    tm = matched(&tmh);
                    payload = &payload[Tmh::LEN..];
                }
                Header::Rendezvous(tmh, rvh) if tagged == Tagged::Expected => {
                    return self.on_rendezvous(link, packet, (tmh, rvh), cx);
                }
                _ => {}
            }
        }
        let total = self.place_send(payload, received, cx)?;
        if ends {
            self.end_send(link, packet, cx)?;
            self.complete_tagged(link, packet, (total, tm), cx);
        } else {
            self.incoming = Incoming::Send { received: total };
            if tm.flags.contains(TmFlags::MATCH) {
                self.tell_match(link, tm, cx);
            }
        }
        Ok(Outcome::Executed {
            psns: 1,
            ends_message: ends,
        })
    }

    /// The memory for a message that begins: that of a tag, or else an ordinary receive; `None` if there is none.
    fn find_tagged<H: Host>(&mut self, header: &Header, cx: &mut Cx<'_, '_, H>) -> Option<Tagged> {
        let srq = self.recvs.srq?;
        let tag = match header {
            Header::NoTag => None,
            Header::Eager(tmh) | Header::Rendezvous(tmh, _) => Some(tmh.tag),
        };
        if tag.is_some_and(|tag| cx.common.take_tag(srq, tag, &mut self.rq)) {
            return Some(Tagged::Expected);
        }
        if !cx.common.take_shared(srq, cx.env.late, &mut self.rq) {
            return None;
        }
        if tag.is_none() {
            return Some(Tagged::NoTag);
        }
        if let Some(list) = cx.common.tag_list(srq) {
            list.count_unexpected();
        }
        Some(Tagged::Unexpected)
    }

    /// The first of two completions: the message goes on after this packet.
    fn tell_match<H: Host>(&mut self, link: &Link, tm: TmInfo, cx: &mut Cx<'_, '_, H>) {
        let wr_id = self.rq.front_wr_id();
        let cqe = link.cqe(wr_id, WcOpcode::TmRecv, Fault::None, 0);
        cx.complete(self.recvs.cq, Cqe { tm, ..cqe });
    }

    /// The message is whole. `tm` is that of this packet.
    fn complete_tagged<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        (total, mut tm): (u64, TmInfo),
        cx: &mut Cx<'_, '_, H>,
    ) {
        let opcode = match self.message() {
            Some(Tagged::Expected) => {
                tm.flags = tm.flags | TmFlags::DATA_VALID;
                WcOpcode::TmRecv
            }
            Some(Tagged::Unexpected) => {
                if self.recvs.srq.is_some_and(|srq| holds_back(srq, cx.common)) {
                    tm.flags = TmFlags::SYNC_REQ;
                }
                WcOpcode::TmRecv
            }
            _ => WcOpcode::TmNoTag,
        };
        let done = link.cqe(self.rq.front_wr_id(), opcode, Fault::None, total as u32);
        self.set_message(Tagged::NoTag);
        self.complete_receive(packet, Cqe { tm, ..done }, cx);
    }

    fn message(&self) -> Option<Tagged> {
        self.tagged.as_ref().map(|role| role.message)
    }

    fn set_message(&mut self, message: Tagged) {
        if let Some(role) = &mut self.tagged {
            role.message = message;
        }
    }

    /// A tag matched the request for a rendezvous: its message is READ, if it fits.
    fn on_rendezvous<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        headers: (Tmh, Rvh),
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        let tm = matched(&headers.0);
        let fits = u64::from(headers.1.len) <= self.rq.front_length() && link.max_rd_atomic > 0;
        let asked = self.tagged.as_ref().map_or(0, |role| role.asked.len());
        if !fits || asked >= link.rendezvous_room as usize {
            return self.leave_rendezvous(link, packet, tm, cx);
        }
        self.incoming = Incoming::Send { received: 0 };
        self.end_send(link, packet, cx)?;
        let wr_id = self.rq.front_wr_id();
        let of = Rendezvous::new(headers, wr_id, self.rq.front_sges());
        if let Some(role) = &mut self.tagged {
            role.asked.push(of);
        }
        cx.has_rendezvous = true;
        let done = link.cqe(wr_id, WcOpcode::TmRecv, Fault::None, 0);
        self.set_message(Tagged::NoTag);
        self.complete_receive(packet, Cqe { tm, ..done }, cx);
        Ok(Outcome::Executed {
            psns: 1,
            ends_message: true,
        })
    }

    /// The QP failed before what was asked for was queued.
    pub(crate) fn flush_asked<H: Host>(&mut self, link: &Link, cx: &mut Cx<'_, '_, H>) {
        let Some(role) = &mut self.tagged else { return };
        for of in role.asked.drain(..) {
            let cqe = link.cqe(of.recv_wr_id, WcOpcode::TmRecv, Fault::Flushed, 0);
            let tm = TmInfo {
                flags: TmFlags::DATA_VALID,
                ..TmInfo::default()
            };
            cx.complete(self.recvs.cq, Cqe { tm, ..cqe });
        }
    }

    /// The program has to READ the message: the tag's memory gets the request for it.
    fn leave_rendezvous<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        mut tm: TmInfo,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        self.incoming = Incoming::Send { received: 0 };
        let room = self.rq.front_length().min(packet.payload().len() as u64) as usize;
        let request = &packet.payload()[..room];
        let sges = self.rq.front_sges();
        sgl::scatter(cx.env, self.recvs.pd, sges, 0, request).map_err(Refusal::Local)?;
        self.end_send(link, packet, cx)?;
        tm.flags = tm.flags | TmFlags::DATA_VALID;
        let (wr_id, fault) = (self.rq.front_wr_id(), Fault::RendezvousTooLong);
        let done = link.cqe(wr_id, WcOpcode::TmRecv, fault, room as u32);
        self.set_message(Tagged::NoTag);
        self.complete_receive(packet, Cqe { tm, ..done }, cx);
        Ok(Outcome::Executed {
            psns: 1,
            ends_message: true,
        })
    }

    /// The completion of the oldest receive, which failed.
    pub(crate) fn flushed(&self, link: &Link, fault: Fault) -> Cqe {
        let (opcode, flags) = match self.message() {
            None => (WcOpcode::Recv, TmFlags::NONE),
            Some(Tagged::Expected) => (WcOpcode::TmRecv, TmFlags::MATCH),
            Some(_) => (WcOpcode::TmRecv, TmFlags::NONE),
        };
        let tm = TmInfo {
            flags,
            ..TmInfo::default()
        };
        let cqe = link.cqe(self.rq.front_wr_id(), opcode, fault, 0);
        Cqe { tm, ..cqe }
    }

    /// The message that comes in will not be complete. An unexpected one is not counted: the program never sees it.
    pub(crate) fn forget_tagged(&mut self, common: &mut Common) {
        if self.message() == Some(Tagged::Unexpected)
            && self.fills_receive()
            && let Some(list) = self.recvs.srq.and_then(|srq| common.tag_list(srq))
        {
            list.forget_unexpected();
            self.set_message(Tagged::NoTag);
        }
    }
}

fn matched(tmh: &Tmh) -> TmInfo {
    TmInfo {
        tag: tmh.tag,
        app_ctx: tmh.app_ctx,
        flags: TmFlags::MATCH,
    }
}

fn holds_back(srq: SrqId, common: &mut Common) -> bool {
    common.tag_list(srq).is_some_and(|list| list.holds_back())
}
