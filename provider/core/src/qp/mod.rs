//! One queue pair: its attributes, and the three roles that share them
//! (requester and completer on the send queue, responder on the receive queue). The
//! services that acknowledge nothing share the queues, and have roles of their own.

pub(crate) mod ack;
mod answer;
mod asking;
pub mod attr;
mod completer;
mod controlled;
mod credit;
mod diagnose;
mod execute;
mod ident;
pub(crate) mod last_ack;
mod local;
pub(crate) mod middle;
pub(crate) mod modify;
mod news;
mod only;
pub(crate) mod pair;
mod placement;
mod probe;
pub mod ready;
pub(crate) mod recovery;
mod rendezvous;
mod replay;
pub(crate) mod report;
mod requester;
mod respond;
mod responder;
mod rtt;
mod sent;
mod sgl;
mod shared_recv;
mod silence;
mod source_ident;
pub mod state;
pub(crate) mod tagged;
mod turn;
mod uc;
mod ud;
mod unreliable;
mod way;
mod window;
pub(crate) mod xrc;

use core::mem::offset_of;
use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;

use urxe_wire::{Bth, IcrcSeed, Opcode, Packet, Psn, Qpn, ROCE_V2_PORT, Service};

use crate::congestion::NotificationPoint;
use crate::context::{Cx, Host};
use crate::cq::{CqId, Cqe, TmInfo, WcOpcode};
use crate::destinations::Way;
use crate::detail::ErrorDetail;
use crate::error::{Fault, WcStatus};
use crate::event::AsyncEvent;
use crate::mr::{Access, Accessor, PdId};
use crate::path::{RxPath, icrc_seed};
use crate::qpn_table::QpnChunk;
use crate::table::{QpIndex, SrqId};
use crate::time::Time;
use crate::transmit::TxDest;
use crate::turns::Share;
use crate::work::{PostError, RNDV_MAX, RecvQueue, RecvWr, SendQueue, SendRules, SendWr};
use crate::xrc::XrcdId;
pub(crate) use answer::Answered;
use attr::{QpAttr, QpCap};
use recovery::Peer;
use requester::{RC_OPCODES, Requester};
use responder::{Refusal, Responder};
pub(crate) use shared_recv::RecvSource;
pub(crate) use source_ident::SourceIdents;
use state::{QpState, QpType};
pub(crate) use unreliable::Arrival;

/// What a QP is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_qp_init_attr")]
pub struct QpInit {
    /// Its protection domain.
    pub pd: PdId,
    /// Its service.
    pub qp_type: QpType,
    /// Where completions of sends go.
    pub send_cq: CqId,
    /// Where completions of receives go.
    pub recv_cq: CqId,
    /// Sizes of its queues.
    pub cap: QpCap,
    /// Every send makes a completion, whatever its flags.
    pub sq_sig_all: bool,
    /// The shared queue that its receives come from; `cap.max_recv_wr` and
    /// `cap.max_recv_sge` mean nothing then.
    pub srq: Option<SrqId>,
    /// The domain that an XRC target serves; `None` for every other QP.
    pub xrcd: Option<XrcdId>,
    /// What it sends to a multicast group that it is attached to does not come back (UD).
    pub block_self_mcast_lb: bool,
}

/// Facts about the connection that all roles need and only a modify changes.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) index: QpIndex,
    pub(crate) qpn: Qpn,
    /// Where the opcodes of its service begin (of those that acknowledge).
    pub(crate) opcodes: u8,
    pub(crate) dest_qpn: Qpn,
    pub(crate) dest: TxDest,
    pub(crate) seed: IcrcSeed,
    pub(crate) mtu: u32,
    pub(crate) pd: PdId,
    pub(crate) access: Access,
    pub(crate) send_cq: CqId,
    /// Where tags complete.
    pub(crate) tags_cq: CqId,
    /// Rendezvous that may begin.
    pub(crate) rendezvous_room: u32,
    pub(crate) sq_sig_all: bool,
    /// The peer gets trains whole, and takes the ACK of a pair first.
    pub(crate) takes_pairs: bool,
    pub(crate) peer: Peer,
    pub(crate) max_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
}

impl Link {
    /// A packet on this path comes from the port that the peer, on this host, has for lone packets.
    #[inline]
    pub(crate) fn is_direct(&self, path: &RxPath) -> bool {
        let port = self.dest.near_port;
        port.is_some_and(|port| port.get() == path.source_port)
    }

    /// The header of a response: `opcode` is that of a reliable connection, after which
    /// come the same headers in each service that acknowledges.
    #[inline]
    pub(crate) fn response(&self, opcode: Opcode, psn: Psn) -> Bth {
        Bth::new(Opcode(self.opcodes | opcode.0), self.dest_qpn, psn)
    }

    /// A completion of what the QP and its peer exchange, that carried nothing beside the bytes.
    #[inline]
    pub(crate) fn cqe(&self, wr_id: u64, opcode: WcOpcode, fault: Fault, byte_len: u32) -> Cqe {
        Cqe {
            wr_id,
            status: fault.status(),
            fault,
            opcode,
            byte_len,
            imm: None,
            invalidated: None,
            qpn: self.qpn,
            src_qp: self.dest_qpn,
            grh: false,
            ipv4: false,
            solicited: fault.status() != WcStatus::Success,
            tm: TmInfo::default(),
        }
    }

    /// The identity with which the QP uses rkeys for its peer.
    #[inline]
    pub(crate) fn accessor(&self) -> Accessor {
        Accessor {
            pd: self.pd,
            qpn: self.qpn,
        }
    }
}

/// In the order in which it lies in memory: what packets of a peer's requests need, then what both need, then what own requests need
/// ([`Qp::SERVING`], [`Qp::ASKING`]), and last what is rarely looked at.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) resp: Responder,
    /// Its part of what is under way to its destination.
    pub(crate) way: Way,
    /// What the peer's IPv4 Identifications look like.
    pub(crate) ident: ident::IdentTrack,
    /// Its part of what the shard sends.
    pub(crate) share: Share,
    /// The last turn went to responses, while requests waited.
    requests_next: bool,
    established: bool,
    /// The service of the packets that it takes.
    pub(crate) service: Service,
    state: QpState,
    pub(crate) link: Link,
    pub(crate) req: Requester,
    /// What it was modified to, but for its state.
    pub(crate) attr: QpAttr,
    /// What is known about marks of congested switches.
    pub(crate) notification: NotificationPoint,
    /// Why it failed last, until it is reset.
    pub(crate) last_error: Option<Box<ErrorDetail>>,
    pub(crate) init: QpInit,
    /// A drained send queue is to be reported (SQD).
    drain_pending: bool,
}

/// Ten thousand of them cost what each does.
const _: () = assert!(size_of::<Qp>() <= 1000);

impl Qp {
    /// Where what requests of the peer need lies in it.
    pub(crate) const SERVING: Range<usize> = 0..offset_of!(Qp, req) + Requester::IDLE_END;

    /// Where what own requests and their answers need lies in it.
    pub(crate) const ASKING: Range<usize> =
        offset_of!(Qp, resp.nak_owed)..offset_of!(Qp, req.counts);
}

impl Qp {
    pub(crate) fn new(
        index: QpIndex,
        qpn: Qpn,
        init: &QpInit,
        recvs: RecvSource,
        rules: SendRules,
    ) -> Self {
        let cap = rules.widen(init.cap);
        let service = init.qp_type.service();

        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Qp {
            init: *init,
            service,
            state: QpState::Reset,
            attr: QpAttr::default(),
            link: Link {
                index,
                qpn,
                opcodes: match service {
                    Service::Xrc => xrc::XRC_OPCODES,
                    _ => RC_OPCODES,
                },
                dest_qpn: Qpn::new(0),
                dest: TxDest {
                    local: nowhere,
                    remote: nowhere,
                    tos: 0,
                    source_port: ROCE_V2_PORT,
                    chunk: QpnChunk(0),
                    in_memory: false,
                    near_port: None,
                },
                seed: icrc_seed(nowhere, ROCE_V2_PORT, nowhere),
                mtu: 256,
                pd: init.pd,
                access: Access::NONE,
                send_cq: init.send_cq,
                tags_cq: recvs.cq,
                rendezvous_room: RNDV_MAX,
                sq_sig_all: init.sq_sig_all,
                takes_pairs: false,
                peer: Peer::Standard,
                max_rd_atomic: 0,
                min_rnr_timer: 0,
            },
            req: Requester::new(SendQueue::with_rules(
                rules,
                cap.max_send_wr,
                cap.max_send_sge as usize,
                cap.max_inline_data as usize,
            )),
            resp: Responder::new(recvs.queue(init.qp_type, &cap), recvs),
            ident: ident::IdentTrack::of(service),
            share: Share::default(),
            way: Way::default(),
            requests_next: false,
            notification: NotificationPoint::default(),
            drain_pending: false,
            established: false,
            last_error: None,
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> QpState {
        self.state
    }

    pub(crate) fn post_send<H: Host>(
        &mut self,
        wr: &SendWr<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), PostError> {
        if !self.state().takes_post_send() {
            return Err(PostError::SendState(self.state()));
        }
        self.req.sq.push(wr).map_err(|e| self.post_send_error(e))?;
        self.flush_if_failed(cx);
        Ok(())
    }

    pub(crate) fn post_recv<H: Host>(
        &mut self,
        wr: &RecvWr<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), PostError> {
        if !self.state().takes_post_recv() {
            return Err(PostError::RecvState(self.state()));
        }
        self.resp.rq.push(wr).map_err(|e| self.post_recv_error(e))?;
        self.resp.on_receives_posted();
        self.flush_if_failed(cx);
        Ok(())
    }

    /// Takes posts that waited elsewhere.
    pub(crate) fn drain_send<H: Host>(&mut self, staged: &mut SendQueue, cx: &mut Cx<'_, '_, H>) {
        if self.state().takes_post_send() {
            staged.drain_into(&mut self.req.sq);
        } else {
            // The QP was reset after the post: a reset forgets work requests.
            staged.clear();
        }
        self.flush_if_failed(cx);
    }

    /// Takes posts that waited elsewhere.
    pub(crate) fn drain_recv<H: Host>(&mut self, staged: &mut RecvQueue, cx: &mut Cx<'_, '_, H>) {
        if self.state().takes_post_recv() {
            staged.drain_into(&mut self.resp.rq);
            self.resp.on_receives_posted();
        } else {
            staged.clear();
        }
        self.flush_if_failed(cx);
    }

    /// Takes one packet that passed every check of identity.
    pub(crate) fn handle_packet<H: Host>(&mut self, packet: &Packet<'_>, cx: &mut Cx<'_, '_, H>) {
        if packet.info().is_response() {
            if let Err(fault) = self.req.handle_response(&self.link, packet, cx) {
                self.fail_send(fault, Some(packet), cx);
            }
            if self.req.selective.is_some() {
                self.learn_from_response();
            }
        } else {
            self.note_established(cx);
            if let Err(refusal) = self.resp.handle_request(&self.link, packet, cx) {
                self.fail_recv(refusal, Some(packet), cx);
            }
            if self.resp.ahead.is_some() {
                self.handle_kept(cx);
            }
        }
        self.after(cx);
    }

    /// The peer of a connection sends: an event, if the program has not gone to RTS yet.
    #[inline]
    fn note_established<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        if !self.established {
            self.established = true;
            if self.state() == QpState::Rtr {
                cx.common.push_event(AsyncEvent::CommEst(self.link.index));
            } else if cx.common.has_cm {
                cx.common
                    .events
                    .push_back(AsyncEvent::Heard(self.link.index));
            }
        }
    }

    /// Looks at the clock.
    pub(crate) fn handle_timeout<H: Host>(
        &mut self,
        waits: &mut impl FnMut(&TxDest, Time) -> bool,
        cx: &mut Cx<'_, '_, H>,
    ) {
        self.way.expire(cx.now());
        self.resp.ack.expire(cx.now());
        self.handle_late_answer(waits, cx);
        self.after(cx);
    }

    /// When the QP wants [`Qp::handle_timeout`].
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        let unasked = self.resp.ack.unasked_until();
        if self.req.is_idle() {
            return Time::earliest([self.way.deadline(), unasked]);
        }
        let deadline = self.req.retry.deadline().or(self.way.deadline());
        let other = match self.req.selective {
            None => self.req.probe.deadline(),
            Some(_) => self.req.selective_deadline(),
        };
        Time::earliest([deadline, other, unasked])
    }

    /// True if a turn would send something: requests, or responses with data.
    #[inline]
    pub(crate) fn has_data(&self) -> bool {
        if self.is_unreliable() {
            return self.can_send_unreliable();
        }
        self.owes_data() || self.can_send()
    }

    /// True if a turn would send responses with data.
    #[inline]
    pub(crate) fn owes_data(&self) -> bool {
        self.resp.replay.is_due() && !self.owes_result()
    }

    /// True if requests wait that may not leave now.
    #[inline]
    pub(crate) fn is_backlogged(&self) -> bool {
        self.req.cursor != self.req.sq.tail()
    }

    #[inline]
    fn can_send(&self) -> bool {
        let may_start = self.may_start();
        may_start.is_some_and(|may_start| self.req.blocked(&self.link, may_start).is_none())
    }

    /// True if new requests may start; `None` if none may leave at all.
    #[inline]
    fn may_start(&self) -> Option<bool> {
        match self.state() {
            QpState::Rts => Some(true),
            QpState::Sqd => Some(false),
            _ => None,
        }
    }

    /// The oldest send failed: the QP fails with it.
    pub(crate) fn fail_send<H: Host>(
        &mut self,
        fault: Fault,
        packet: Option<&Packet<'_>>,
        cx: &mut Cx<'_, '_, H>,
    ) {
        self.note_send_failure(fault, packet, cx.env.mrs);
        // A lost completion is more than a failed send: the whole QP fails.
        if self.is_unreliable() && fault != Fault::CqOverrun {
            return self.stop_sending(fault, cx);
        }
        self.state = QpState::Err;
        self.resp.cancel_owed();
        self.req.flush(fault, &self.link, cx);
        self.resp.flush(Fault::Flushed, &self.link, cx);
        self.report_last_wqe(cx);
    }

    /// The peer's request was refused: the QP fails, once the NAK is out.
    pub(crate) fn fail_recv<H: Host>(
        &mut self,
        refusal: Refusal,
        packet: Option<&Packet<'_>>,
        cx: &mut Cx<'_, '_, H>,
    ) {
        self.note_recv_failure(refusal, packet, cx.env.mrs);
        self.state = QpState::Err;
        // A READ that cannot be answered any more is not the fault of a SEND behind it.
        let blames_receive = packet.is_some() && self.resp.fills_receive();
        if !blames_receive {
            // No completion will tell the application: an event does.
            cx.common.push_event(match refusal.fault() {
                Fault::ResponderAccess => AsyncEvent::QpAccessErr(self.link.index),
                _ => AsyncEvent::QpReqErr(self.link.index),
            });
        }
        let fault = if blames_receive {
            refusal.fault()
        } else {
            Fault::Flushed
        };
        self.resp.flush(fault, &self.link, cx);
        self.req.flush(Fault::Flushed, &self.link, cx);
        self.report_last_wqe(cx);
    }

    fn flush_if_failed<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        if matches!(self.state(), QpState::Err | QpState::Sqe) {
            self.req.flush(Fault::Flushed, &self.link, cx);
        }
        if self.state() == QpState::Err {
            self.resp.flush(Fault::Flushed, &self.link, cx);
        }
        self.after(cx);
    }

    /// The peer takes no packets of this side: there will be no answer, whatever is sent again.
    pub(crate) fn on_refused<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        let is_connected = matches!(self.state(), QpState::Rtr | QpState::Rts | QpState::Sqd);
        if is_connected && !self.is_unreliable() {
            // A program that only receives has no completion that tells it.
            if self.req.sq.is_empty() {
                cx.common.push_event(AsyncEvent::QpFatal(self.link.index));
            }
            self.fail_send(Fault::PeerRefuses, None, cx);
        }
        self.after(cx);
    }

    /// The process of the peer has ended. What waits for an answer waits no longer; a QP without requests has nothing to tell.
    pub(crate) fn on_peer_gone<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        let is_connected = matches!(self.state(), QpState::Rts | QpState::Sqd);
        if is_connected && !self.is_unreliable() && !self.req.sq.is_empty() {
            self.fail_send(Fault::PeerGone, None, cx);
        }
        self.after(cx);
    }

    /// What every input may have brought about: a lost completion, a drained queue.
    #[inline]
    fn after<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        if cx.overrun | cx.has_rendezvous {
            self.after_news(cx);
        }
        if self.state() == QpState::Sqd && self.drain_pending && self.req.is_drained() {
            mark!(SqDrained);
            self.drain_pending = false;
            if self.attr.en_sqd_async_notify {
                cx.common.push_event(AsyncEvent::SqDrained(self.link.index));
            }
        }
    }
}
