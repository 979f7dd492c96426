//! The requester: work requests become request packets. It decides what may start
//! (fence, credits, window, READ places), gives out PSNs, and cuts messages.
//!
//! A cursor (`cursor`, `next_psn`) walks over the send queue. Recovery moves the
//! cursor back to the oldest unacknowledged PSN, and everything is sent again from
//! there by the same code. An acknowledgement that arrives meanwhile moves it on.

use core::mem::offset_of;

use urxe_wire::{AtomicEth, Bth, Ieth, ImmDt, Opcode, PacketWriter, Psn, Reth, packet_len};

use crate::congestion::Controller;
use crate::context::{Cx, Host};
use crate::error::Fault;
use crate::mr::Access;
use crate::qp::Link;
use crate::qp::credit::CreditLimit;
use crate::qp::probe::Probe;
use crate::qp::recovery::{Retry, Selective, Trial};
use crate::qp::report::RequesterCounts;
use crate::qp::rtt::Rtt;
use crate::qp::sgl;
use crate::qp::window::{SHORT_BYTES, SendWindow};
use crate::qp::xrc::XRC_OPCODES;
use crate::transmit::TxBatch;
use crate::work::{SendFlags, SendQueue, SendWqe, WrOpcode};

/// Where the opcodes of reliable connections begin.
pub(crate) const RC_OPCODES: u8 = 0x00;

/// Why no packet can be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendBlocked {
    /// Nothing to send.
    Empty,
    /// The state starts no new requests.
    State,
    /// An earlier request failed locally; nothing after it starts.
    Fault,
    /// As many packets as the window allows are under way.
    Window,
    /// A fenced request waits for earlier READs and atomics.
    Fence,
    /// As many READs and atomics as `max_rd_atomic` are under way.
    RdAtomic,
    /// The responder has no receive for it.
    Credit,
    /// The responder asked to wait.
    Rnr,
}

/// What came of an attempt to send one packet.
pub(crate) enum SendStep {
    /// A packet is in the batch.
    Sent,
    /// A request that sends nothing was carried out.
    Local,
    /// The batch has no room for it.
    BatchFull,
    /// Nothing can be sent until something else happens.
    Blocked,
}

/// No request has this number: so many are never posted.
pub(crate) const NO_REQUEST: u64 = u64::MAX;

/// In the order in which it lies in memory: what is looked at while there are no requests comes first
/// ([`Qp`](crate::qp::Qp)), and what only losses change comes last.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Requester {
    /// The last packet that was sent asks for an answer.
    pub(crate) is_answer_due: bool,
    /// It has a controller or none, as the path wants it.
    pub(crate) chooses: bool,
    /// It wants another one than it has.
    pub(crate) reconsiders: bool,
    /// Round trips that lost without a queue, less those that lost in one.
    pub(crate) lone_losses: u8,
    /// READ requests and atomics under way.
    pub(crate) rd_inflight: u32,
    /// Once something was lost that the peer is known to help finding.
    pub(crate) selective: Option<Box<Selective>>,
    pub(crate) congestion: Option<Box<Controller>>,
    /// Number of the request that sends the next packet.
    pub(crate) cursor: u64,
    pub(crate) sq: SendQueue,
    /// Number of the first request that has no PSNs yet.
    pub(crate) started: u64,
    /// Number of a request that failed locally; the fault is in its WQE. It is
    /// reported when everything before it is done, and nothing after it starts. [`NO_REQUEST`] if none did.
    pub(crate) faulted: u64,
    /// PSN of the next packet.
    pub(crate) next_psn: Psn,
    /// PSN that the next request to start gets.
    pub(crate) assign_psn: Psn,
    /// First PSN that was never sent.
    pub(crate) sent_end: Psn,
    /// Oldest PSN that is not acknowledged.
    pub(crate) una: Psn,
    /// PSN after the last that was sent of a message that is not short; not before `una`.
    pub(crate) long_end: Psn,
    /// Packets a READ request may ask for, so that responses stay within the window.
    pub(crate) read_chunk: u32,
    pub(crate) credit: CreditLimit,
    pub(crate) retry: Retry,
    pub(crate) rtt: Rtt,
    pub(crate) probe: Probe,
    /// Packets that were acknowledged since the connection began.
    pub(crate) acked: u64,
    pub(crate) window: SendWindow,
    pub(crate) counts: RequesterCounts,
    pub(crate) trial: Trial,
}

impl Requester {
    /// Where that ends in it which is looked at while there are no requests.
    pub(crate) const IDLE_END: usize = offset_of!(Requester, sq) + SendQueue::ENDS;

    pub(crate) fn new(sq: SendQueue) -> Self {
        Requester {
            sq,
            cursor: 0,
            next_psn: Psn::ZERO,
            started: 0,
            assign_psn: Psn::ZERO,
            sent_end: Psn::ZERO,
            una: Psn::ZERO,
            long_end: Psn::ZERO,
            is_answer_due: false,
            rd_inflight: 0,
            faulted: NO_REQUEST,
            credit: CreditLimit::new(),
            window: SendWindow::new(0, 1, 256),
            retry: Retry::default(),
            rtt: Rtt::default(),
            probe: Probe::default(),
            counts: RequesterCounts::default(),
            read_chunk: 1,
            congestion: None,
            chooses: false,
            reconsiders: false,
            lone_losses: 0,
            acked: 0,
            selective: None,
            trial: Trial::default(),
        }
    }

    /// Sets the PSN of the first request (RTR to RTS).
    pub(crate) fn set_psn(&mut self, psn: Psn) {
        self.next_psn = psn;
        self.assign_psn = psn;
        self.sent_end = psn;
        self.una = psn;
        self.long_end = psn;
    }

    /// Forgets all requests and progress (to RESET).
    pub(crate) fn reset(&mut self) {
        self.sq.forget_all();
        self.cursor = self.sq.head();
        self.started = self.sq.head();
        self.rd_inflight = 0;
        self.faulted = NO_REQUEST;
        self.credit = CreditLimit::new();
        self.retry = Retry::default();
        self.rtt = Rtt::default();
        (self.probe, self.trial) = (Probe::default(), Trial::default());
        (self.lone_losses, self.acked) = (0, 0);
        self.counts = RequesterCounts::default();
        self.set_psn(Psn::ZERO);
    }

    /// Packets between the oldest that is not acknowledged and the cursor.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.next_psn.distance_from(self.una)
    }

    /// Not all packets under way are short.
    #[inline]
    pub(crate) fn has_long(&self) -> bool {
        self.una.is_before(self.long_end)
    }

    /// Packets that may be under way, if the next one is of such a message.
    #[inline]
    pub(crate) fn room(&self, wqe: &SendWqe) -> u32 {
        if wqe.length > SHORT_BYTES || self.has_long() {
            self.window.packets()
        } else {
            self.window.short_packets()
        }
    }

    /// Packets under way, as far as is known.
    #[inline]
    pub(crate) fn under_way(&self) -> u32 {
        let end = self.probe.resumes_at().unwrap_or(self.next_psn);
        let elsewhere = match &self.selective {
            Some(s) => s.elsewhere(),
            None => 0,
        };
        end.distance_from(self.una).saturating_sub(elsewhere)
    }

    /// There are no requests, and so nothing to send, or to wait for. A QP that only receives is asked after each packet, and this is
    /// all that it has to know of its requester.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.sq.is_empty() && self.selective.is_none()
    }

    /// Everything that was started is acknowledged.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.sq.head() == self.started
    }

    /// What keeps the next packet from leaving, if anything. Must agree with
    /// [`Requester::poll_packet`]: it decides whether the QP gets a turn.
    #[inline]
    pub(crate) fn blocked(&self, link: &Link, may_start: bool) -> Option<SendBlocked> {
        if self.is_idle() {
            return Some(SendBlocked::Empty);
        }
        if self.retry.waits_for_rnr() {
            return Some(SendBlocked::Rnr);
        }
        if self.selective.is_some() && self.may_send_again() {
            return None;
        }
        if self.faulted <= self.cursor {
            return Some(SendBlocked::Fault);
        }
        if self.cursor == self.started {
            if self.cursor == self.sq.tail() {
                return Some(SendBlocked::Empty);
            }
            if !may_start {
                return Some(SendBlocked::State);
            }
            return self.start_blocked(link, self.sq.wqe(self.cursor));
        }
        let wqe = self.sq.wqe(self.cursor);
        if wqe.opcode.is_read_or_atomic() && self.rd_inflight >= u32::from(link.max_rd_atomic) {
            return Some(SendBlocked::RdAtomic);
        }
        let span = self.request_span(wqe);
        (!self.window_allows(wqe, span)).then_some(SendBlocked::Window)
    }

    /// Puts the next packet into the batch, starting a request where one is due.
    #[inline]
    pub(crate) fn poll_packet<H: Host>(
        &mut self,
        link: &Link,
        may_start: bool,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> SendStep {
        if self.blocked(link, may_start).is_some() {
            return SendStep::Blocked;
        }
        if self.selective.is_some() && self.may_send_again() {
            return self.send_again(link, cx, batch);
        }
        let opcode = self.sq.wqe(self.cursor).opcode;
        if self.cursor == self.started {
            if opcode.is_local() {
                return self.run_local(link, cx);
            }
            if let Err(fault) = self.start(link, cx) {
                mark!(LocalFaultAtStart);
                return self.fault_here(fault);
            }
        }
        let sent = if !opcode.is_read_or_atomic() {
            match (link.opcodes, self.sq.wqe(self.cursor).length <= link.mtu) {
                (RC_OPCODES, true) => self.emit_data::<H, RC_OPCODES, true>(link, cx, batch),
                (RC_OPCODES, false) => self.emit_data::<H, RC_OPCODES, false>(link, cx, batch),
                _ => self.emit_data::<H, XRC_OPCODES, false>(link, cx, batch),
            }
        } else if opcode.is_placement() {
            self.emit_placement(link, cx, batch)
        } else {
            self.emit_read_or_atomic(link, batch)
        };
        match sent {
            Ok(Some(span)) => {
                self.on_sent((1, span), link, cx);
                SendStep::Sent
            }
            Ok(None) => SendStep::BatchFull,
            // The entries of a message of one packet are checked here first; else memory vanished after the start.
            Err(fault) => {
                mark!(LocalFaultAtStart if self.next_psn == self.sq.wqe(self.cursor).first_psn);
                mark!(LocalFaultMidMessage if self.next_psn != self.sq.wqe(self.cursor).first_psn);
                self.fault_here(fault)
            }
        }
    }

    pub(crate) fn fault_here(&mut self, fault: Fault) -> SendStep {
        self.sq.wqe_mut(self.cursor).fault = fault;
        self.faulted = self.cursor;
        SendStep::Blocked
    }

    fn start_blocked(&self, link: &Link, wqe: &SendWqe) -> Option<SendBlocked> {
        let reads = wqe.opcode.is_read_or_atomic();
        if wqe.flags.contains(SendFlags::FENCE) && self.has_reads() {
            mark!(FenceWaited);
            return Some(SendBlocked::Fence);
        }
        if reads && self.rd_inflight >= u32::from(link.max_rd_atomic) {
            mark!(RdAtomicWaited);
            return Some(SendBlocked::RdAtomic);
        }
        if wqe.opcode.takes_credit() && !self.credit.allows_next() {
            mark!(CreditWaited);
            return Some(SendBlocked::Credit);
        }
        if wqe.opcode.is_local() {
            // It waits for all before it, and then for nothing.
            return (!self.is_drained()).then_some(SendBlocked::Fence);
        }
        let span = match wqe.opcode {
            WrOpcode::RdmaRead => wqe.length.div_ceil(link.mtu).clamp(1, self.chunk(link)),
            _ => 1,
        };
        (!self.window_allows(wqe, span)).then_some(SendBlocked::Window)
    }

    /// A READ request brings in many packets; it may go when nothing else is under
    /// way even if the window is narrower than it. If the window became narrower than what is under way
    /// before any of that asked for an answer, a packet goes that does: else nothing would come that opens it. A window of 0 is opened by
    /// the driver.
    #[inline]
    fn window_allows(&self, wqe: &SendWqe, span: u32) -> bool {
        let room = self.room(wqe);
        let allows = self.under_way() + span <= room
            || room > 0 && (self.outstanding() == 0 || !self.is_answer_due);
        let allows = allows && (self.selective.is_none() || self.is_within_span(span));
        mark!(WindowFull if !allows);
        allows
    }

    pub(crate) fn start<H: Host>(
        &mut self,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let wqe = self.sq.wqe(self.cursor);
        let is_word = wqe.opcode.is_atomic() || wqe.opcode == WrOpcode::AtomicWrite;
        if is_word && wqe.length != 8 {
            return Err(Fault::MessageTooLong);
        }
        let need = if wqe.opcode.returns_data() {
            Access::LOCAL_WRITE
        } else {
            Access::NONE
        };
        let is_one = wqe.length <= link.mtu;
        if !is_one || wqe.opcode.is_read_or_atomic() {
            sgl::check(cx.env.mrs, link.pd, self.sq.sges(self.cursor), need)?;
        }
        let packets = match is_one || wqe.opcode.is_atomic() {
            true => 1,
            false => wqe.length.div_ceil(link.mtu),
        };
        let (first, last) = (self.assign_psn, self.assign_psn.add(packets - 1));
        mark!(PsnWrapInMessage if last.get() < first.get());
        let chunk = match wqe.opcode {
            WrOpcode::RdmaRead => Some(self.chunk(link)),
            _ => None,
        };
        let wqe = self.sq.wqe_mut(self.cursor);
        if let Some(chunk) = chunk {
            wqe.swap = chunk.into();
        }
        (wqe.first_psn, wqe.last_psn) = (first, last);
        self.assign_psn = last.next();
        self.started += 1;
        Ok(())
    }

    /// PSNs that the next packet of this request stands for.
    #[inline]
    fn request_span(&self, wqe: &SendWqe) -> u32 {
        if wqe.opcode != WrOpcode::RdmaRead {
            return 1;
        }
        let at = self.next_psn.distance_from(wqe.first_psn);
        let end = self.chunk_end(wqe, at);
        end - at
    }

    /// Puts one packet of a SEND or WRITE into the batch. `SERVICE` is where the opcodes
    /// of the QP's service begin, and `IS_ONLY` says that the message has one packet, as most have.
    #[inline]
    pub(crate) fn emit_data<H: Host, const SERVICE: u8, const IS_ONLY: bool>(
        &mut self,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<Option<u32>, Fault> {
        let wqe = self.sq.wqe(self.cursor);
        let at = match IS_ONLY {
            true => 0,
            false => self.next_psn.distance_from(wqe.first_psn),
        };
        let is_first = at == 0;
        let is_last = IS_ONLY || self.next_psn == wqe.last_psn;
        let offset = at * link.mtu;
        let len = (wqe.length - offset).min(link.mtu) as usize;
        let opcode = Opcode(SERVICE | data_opcode(wqe.opcode, is_first, is_last).0);
        let info = opcode
            .info()
            .expect("the table holds the opcodes of all services");
        let packet_len = packet_len(info, len);
        let Some(slot) = batch.reserve(&link.dest, packet_len) else {
            return Ok(None);
        };

        let mut bth = Bth::new(opcode, link.dest_qpn, self.next_psn);
        bth.solicited = is_last && wqe.flags.contains(SendFlags::SOLICITED);
        bth.ack_req = (SERVICE == RC_OPCODES || SERVICE == XRC_OPCODES)
            && self.asks_for_ack(link, wqe, (at, is_last), cx);
        let asks = bth.ack_req;
        let mut writer = PacketWriter::new(slot.bytes, &bth);
        if SERVICE == XRC_OPCODES {
            self.write_xrceth(&mut writer);
        }
        if is_first && matches!(wqe.opcode, WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm) {
            writer.reth(&Reth {
                va: wqe.remote_addr,
                rkey: wqe.rkey,
                dma_len: wqe.length,
            });
        }
        if is_last {
            match wqe.opcode {
                WrOpcode::SendWithImm | WrOpcode::RdmaWriteWithImm => writer.imm(&ImmDt(wqe.imm)),
                WrOpcode::SendWithInv => writer.ieth(&Ieth { rkey: wqe.rkey }),
                _ => {}
            }
        }
        let payload = writer.payload_mut(len);
        if wqe.flags.contains(SendFlags::INLINE) {
            let from = offset as usize;
            payload.copy_from_slice(&self.sq.inline(self.cursor)[from..from + len]);
        } else if len > 0
            && let Err(fault) = sgl::gather(
                cx.env,
                link.pd,
                self.sq.sges(self.cursor),
                u64::from(offset),
                payload,
            )
        {
            batch.retract(packet_len);
            return Err(fault);
        }
        writer.finish(&link.seed, slot.ident);
        self.is_answer_due = asks;
        if is_last {
            self.note_asking(1, asks, link, cx);
        }
        Ok(Some(1))
    }

    pub(crate) fn emit_read_or_atomic(
        &mut self,
        link: &Link,
        batch: &mut TxBatch,
    ) -> Result<Option<u32>, Fault> {
        let wqe = self.sq.wqe(self.cursor);
        let opcode = match wqe.opcode {
            WrOpcode::RdmaRead => Opcode::RC_READ_REQUEST,
            WrOpcode::AtomicCmpAndSwp => Opcode::RC_COMPARE_SWAP,
            _ => Opcode::RC_FETCH_ADD,
        };
        let opcode = Opcode(link.opcodes | opcode.0);
        let info = opcode
            .info()
            .expect("the table holds the opcodes of both services");
        let Some(slot) = batch.reserve(&link.dest, packet_len(info, 0)) else {
            return Ok(None);
        };
        let mut bth = Bth::new(opcode, link.dest_qpn, self.next_psn);
        bth.ack_req = wqe.opcode != WrOpcode::RdmaRead || !self.is_first_asking(link);
        let mut writer = PacketWriter::new(slot.bytes, &bth);
        if link.opcodes == XRC_OPCODES {
            self.write_xrceth(&mut writer);
        }
        let span = if wqe.opcode == WrOpcode::RdmaRead {
            let at = self.next_psn.distance_from(wqe.first_psn);
            let end = self.ask_end(link, wqe, at);
            mark!(ReadRestartedMidway if !at.is_multiple_of(wqe.chunk()));
            let offset = at * link.mtu;
            // 64 bits: a READ of 2^31 bytes has an end beyond 32 bits of MTU steps.
            let limit = (u64::from(end) * u64::from(link.mtu)).min(u64::from(wqe.length)) as u32;
            writer.reth(&Reth {
                va: wqe.remote_addr.wrapping_add(u64::from(offset)),
                rkey: wqe.rkey,
                dma_len: limit - offset,
            });
            end - at
        } else {
            let (swap_add, compare) = match wqe.opcode {
                WrOpcode::AtomicCmpAndSwp => (wqe.swap, wqe.compare_add),
                _ => (wqe.compare_add, 0),
            };
            writer.atomic_eth(&AtomicEth {
                va: wqe.remote_addr,
                rkey: wqe.rkey,
                swap_add,
                compare,
            });
            1
        };
        writer.finish(&link.seed, slot.ident);
        self.rd_inflight += 1;
        self.is_answer_due = true;
        Ok(Some(span))
    }
}

/// The opcode of a SEND or WRITE packet, by its place in the message.
#[inline]
fn data_opcode(opcode: WrOpcode, is_first: bool, is_last: bool) -> Opcode {
    use WrOpcode::*;
    match (is_first, is_last) {
        (true, true) => match opcode {
            RdmaWrite => Opcode::RC_WRITE_ONLY,
            RdmaWriteWithImm => Opcode::RC_WRITE_ONLY_WITH_IMM,
            SendWithImm => Opcode::RC_SEND_ONLY_WITH_IMM,
            SendWithInv => Opcode::RC_SEND_ONLY_WITH_INV,
            _ => Opcode::RC_SEND_ONLY,
        },
        (false, true) => match opcode {
            RdmaWrite => Opcode::RC_WRITE_LAST,
            RdmaWriteWithImm => Opcode::RC_WRITE_LAST_WITH_IMM,
            SendWithImm => Opcode::RC_SEND_LAST_WITH_IMM,
            SendWithInv => Opcode::RC_SEND_LAST_WITH_INV,
            _ => Opcode::RC_SEND_LAST,
        },
        (true, false) => match opcode {
            RdmaWrite | RdmaWriteWithImm => Opcode::RC_WRITE_FIRST,
            _ => Opcode::RC_SEND_FIRST,
        },
        (false, false) => match opcode {
            RdmaWrite | RdmaWriteWithImm => Opcode::RC_WRITE_MIDDLE,
            _ => Opcode::RC_SEND_MIDDLE,
        },
    }
}
