//! The responder: request packets of the peer are checked in the specification's
//! order, executed, and answered. The order of [`Responder::handle_request`] is the
//! order of IBTA 9.7.4: PSN, opcode sequence, operation, resources, length, R_Key,
//! execution, completion, acknowledgement.

use urxe_wire::{
    CreditCode, Msn, NakCode, Operation, Packet, Position, Psn, Rkey, RnrTimer, Syndrome,
};

use crate::context::Cx;
use crate::cq::{CqSink, Cqe, WcOpcode};
use crate::error::{DropReason, Fault, WcStatus};
use crate::memory::Memory;
use crate::mr::Access;
use crate::qp::Link;
use crate::qp::ack::OwedAck;
use crate::qp::replay::{Replay, Resource, ResourceKind};
use crate::qp::sgl;
use crate::work::{MESSAGE_MAX, RecvQueue};

/// The message that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incoming {
    Idle,
    /// A SEND into the oldest receive.
    Send {
        received: u64,
    },
    /// An RDMA WRITE.
    Write {
        va: u64,
        rkey: Rkey,
        total: u32,
        received: u32,
    },
}

/// What packets ahead of the expected one were answered with. They are answered
/// once; the rest is dropped until the expected packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    No,
    SequenceNakSent,
    RnrNakSent,
}

/// A request that is refused for good: the peer gets a NAK, the QP fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What the NAK says.
    pub(crate) code: NakCode,
    /// What the receive that was being filled is completed with, if there is one.
    pub(crate) fault: Fault,
}

impl Refusal {
    const INVALID: Refusal = Refusal {
        code: NakCode::InvalidRequest,
        fault: Fault::ResponderInvalidRequest,
    };
    pub(crate) const ACCESS: Refusal = Refusal {
        code: NakCode::RemoteAccess,
        fault: Fault::ResponderAccess,
    };

    fn local(fault: Fault) -> Refusal {
        Refusal {
            code: NakCode::RemoteOperational,
            fault,
        }
    }
}

/// How a packet fared.
enum Outcome {
    /// Executed; PSNs that it stands for, and whether it ends a message.
    Executed { psns: u32, ends_message: bool },
    /// No receive for it.
    NotReady,
}

#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
    pub(crate) epsn: Psn,
    pub(crate) msn: Msn,
    incoming: Incoming,
    waiting: Waiting,
    pub(crate) replay: Replay,
    pub(crate) nak_owed: Option<(Syndrome, Psn)>,
    pub(crate) ack: OwedAck,
    /// The last credit code said "none".
    told_none: bool,
    /// The peer sends messages that need receives.
    needs_receives: bool,
    /// The peer sets MigReq, as adapters do and Linux's rdma_rxe does not.
    pub(crate) peer_sets_mig_req: bool,
}

impl Responder {
    pub(crate) fn new(rq: RecvQueue) -> Self {
        Responder {
            rq,
            epsn: Psn::ZERO,
            msn: Msn::ZERO,
            incoming: Incoming::Idle,
            waiting: Waiting::No,
            replay: Replay::default(),
            nak_owed: None,
            ack: OwedAck::new(),
            told_none: false,
            needs_receives: false,
            peer_sets_mig_req: true,
        }
    }

    /// Sets what INIT to RTR sets.
    pub(crate) fn start(&mut self, psn: Psn, max_dest_rd_atomic: u8) {
        self.epsn = psn;
        self.replay = Replay::new(max_dest_rd_atomic);
    }

    /// Forgets all receives and progress (to RESET).
    pub(crate) fn reset(&mut self) {
        self.rq.clear();
        let rq = core::mem::replace(&mut self.rq, RecvQueue::new(0, 0));
        *self = Responder::new(rq);
    }

    /// True if a response packet, a NAK or an ACK is due.
    #[inline]
    pub(crate) fn owes_anything(&self) -> bool {
        self.replay.is_due() || self.nak_owed.is_some() || self.ack.is_owed()
    }

    /// True if more than a plain ACK is due.
    #[inline]
    pub(crate) fn owes_response(&self) -> bool {
        self.replay.is_due() || self.nak_owed.is_some()
    }

    /// Nothing more is answered.
    pub(crate) fn cancel_owed(&mut self) {
        self.replay.cancel();
        self.nak_owed = None;
        self.ack.cancel();
    }

    /// Receives were posted: tell a peer that was told "no credits".
    #[inline]
    pub(crate) fn on_receives_posted(&mut self) {
        if self.told_none && self.needs_receives && !self.rq.is_empty() {
            self.told_none = false;
            self.ack.owe_now();
        }
    }

    /// Credits for the AETH: receives that the peer may count on.
    #[inline]
    pub(crate) fn credits(&mut self) -> CreditCode {
        let in_use = u32::from(matches!(self.incoming, Incoming::Send { .. }));
        let free = self.rq.len() - in_use;
        self.told_none = free == 0;
        let code = CreditCode::encode(free);
        self.ack.on_credits_told(code.credits());
        code
    }

    /// Takes one request packet.
    ///
    /// # Errors
    /// [`Refusal`]: the QP must fail, the NAK is owed already.
    pub(crate) fn handle_request<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, M, C>,
    ) -> Result<(), Refusal> {
        let bth = packet.bth();
        self.peer_sets_mig_req = bth.mig_req;
        if bth.psn != self.epsn {
            if bth.psn.is_before(self.epsn) {
                self.on_duplicate(link, packet, cx);
            } else {
                self.on_ahead(cx);
            }
            return Ok(());
        }
        // The expected packet: whatever was said about it is settled.
        self.waiting = Waiting::No;
        self.nak_owed = None;
        match self.execute(link, packet, cx) {
            Ok(Outcome::Executed { psns, ends_message }) => {
                self.epsn = self.epsn.add(psns);
                if ends_message {
                    self.msn = self.msn.next();
                    cx.common.stats.rcvd_messages += 1;
                }
                // The response to a READ or atomic acknowledges it and all before it.
                match packet.info().operation {
                    Operation::Send | Operation::Write => {
                        self.ack.on_executed(cx.now(), bth.ack_req);
                    }
                    _ => self.ack.cancel(),
                }
                Ok(())
            }
            Ok(Outcome::NotReady) => {
                let timer = RnrTimer::new(link.min_rnr_timer);
                self.nak_owed = Some((Syndrome::rnr(timer), self.epsn));
                self.waiting = Waiting::RnrNakSent;
                cx.common.stats.send_rnr_err += 1;
                Ok(())
            }
            Err(refusal) => {
                self.nak_owed = Some((Syndrome::nak(refusal.code), self.epsn));
                cx.common.stats.responder_err += 1;
                Err(refusal)
            }
        }
    }

    /// True while a SEND is being placed into the oldest receive.
    pub(crate) fn fills_receive(&self) -> bool {
        matches!(self.incoming, Incoming::Send { .. })
    }

    /// Completes all receives: the one being filled with `fault`, the rest flushed.
    pub(crate) fn flush<M: Memory, C: CqSink>(
        &mut self,
        fault: Fault,
        link: &Link,
        cx: &mut Cx<'_, '_, M, C>,
    ) {
        let mut first = match self.incoming {
            Incoming::Send { .. } => fault,
            _ => Fault::Flushed,
        };
        self.incoming = Incoming::Idle;
        while !self.rq.is_empty() {
            let cqe = Cqe {
                wr_id: self.rq.front_wr_id(),
                status: first.status(),
                fault: first,
                opcode: WcOpcode::Recv,
                byte_len: 0,
                imm: None,
                invalidated: None,
                qpn: link.qpn,
                src_qp: link.dest_qpn,
                solicited: true,
            };
            self.rq.pop();
            cx.complete(link.recv_cq, cqe);
            first = Fault::Flushed;
        }
    }

    /// Packets were lost or overtaken: one NAK, then silence until the expected one.
    fn on_ahead<M: Memory, C: CqSink>(&mut self, cx: &mut Cx<'_, '_, M, C>) {
        cx.common.stats.out_of_seq_request += 1;
        if self.waiting == Waiting::No {
            self.waiting = Waiting::SequenceNakSent;
            self.nak_owed = Some((Syndrome::nak(NakCode::PsnSequence), self.epsn));
        } else {
            cx.common.stats.drop_packet(DropReason::AheadOfSequence);
        }
    }

    /// A packet that was executed before: never again, but its answer may have been
    /// lost. A READ is read again, an atomic's result is repeated.
    fn on_duplicate<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, M, C>,
    ) {
        cx.common.stats.duplicate_request += 1;
        let psn = packet.bth().psn;
        let kept = match packet.info().operation {
            Operation::Send | Operation::Write => {
                self.ack.owe_now();
                return;
            }
            Operation::ReadRequest => self.find_same_read(link, packet, psn),
            Operation::CompareSwap | Operation::FetchAdd => self
                .replay
                .find(psn)
                .filter(|(_, r)| matches!(r.kind, ResourceKind::Atomic { .. }))
                .map(|(number, _)| number),
            _ => None,
        };
        match kept {
            Some(number) => self.replay.rewind(number, psn),
            None => cx.common.stats.drop_packet(DropReason::StaleDuplicate),
        }
    }

    /// A repeated READ must ask for the end of what was asked for before, under the
    /// same key; anything else is not a repetition.
    fn find_same_read(&self, link: &Link, packet: &Packet<'_>, psn: Psn) -> Option<u64> {
        let reth = packet.reth()?;
        let (number, resource) = self.replay.find(psn)?;
        let ResourceKind::Read { va, rkey, len } = resource.kind else {
            return None;
        };
        let offset = psn.distance_from(resource.first_psn) * link.mtu;
        (reth.rkey == rkey
            && reth.va == va.wrapping_add(u64::from(offset))
            && reth.dma_len == len - offset)
            .then_some(number)
    }

    fn execute<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, M, C>,
    ) -> Result<Outcome, Refusal> {
        let info = packet.info();
        let starts = matches!(info.position, Position::First | Position::Only);
        match (self.incoming, info.operation) {
            (Incoming::Idle, Operation::Send) if starts => self.on_send(link, packet, 0, cx),
            (Incoming::Send { received }, Operation::Send) if !starts => {
                self.on_send(link, packet, received, cx)
            }
            (Incoming::Idle, Operation::Write) if starts => self.on_write_start(link, packet, cx),
            (
                Incoming::Write {
                    va,
                    rkey,
                    total,
                    received,
                },
                Operation::Write,
            ) if !starts => self.on_write_packet(link, packet, (va, rkey, total, received), cx),
            (Incoming::Idle, Operation::ReadRequest) => self.on_read(link, packet, cx),
            (Incoming::Idle, Operation::CompareSwap | Operation::FetchAdd) => {
                self.on_atomic(link, packet, cx)
            }
            // An opcode out of sequence, or one that this service does not have.
            _ => Err(Refusal::INVALID),
        }
    }

    #[inline]
    fn on_send<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        received: u64,
        cx: &mut Cx<'_, '_, M, C>,
    ) -> Result<Outcome, Refusal> {
        if self.rq.is_empty() {
            self.needs_receives = true;
            return Ok(Outcome::NotReady);
        }
        check_length(packet, link.mtu)?;
        let payload = packet.payload();
        let total = received + payload.len() as u64;
        // From here on the oldest receive is taken, and a fault is its fault.
        self.incoming = Incoming::Send { received };
        if total > self.rq.front_length() || total > MESSAGE_MAX {
            return Err(Refusal {
                code: NakCode::InvalidRequest,
                fault: Fault::RecvTooShort,
            });
        }
        if !payload.is_empty() {
            sgl::scatter(cx.env, link.pd, self.rq.front_sges(), received, payload)
                .map_err(Refusal::local)?;
        }
        let ends = ends_message(packet);
        if ends {
            let invalidated = packet.ieth().map(|ieth| ieth.rkey);
            if let Some(rkey) = invalidated {
                cx.env
                    .mrs
                    .check_invalidate(rkey, link.pd)
                    .map_err(|_| Refusal::ACCESS)?;
                cx.env.mrs.invalidate(rkey);
            }
            self.incoming = Incoming::Idle;
            self.complete_receive(link, packet, WcOpcode::Recv, total as u32, cx);
        } else {
            self.incoming = Incoming::Send { received: total };
        }
        Ok(Outcome::Executed {
            psns: 1,
            ends_message: ends,
        })
    }

    #[inline]
    fn on_write_start<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, M, C>,
    ) -> Result<Outcome, Refusal> {
        if !link.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::INVALID);
        }
        let reth = packet
            .reth()
            .expect("WRITE FIRST and ONLY have a RETH by their table entries");
        let spans_packets = packet.info().position == Position::First;
        if u64::from(reth.dma_len) > MESSAGE_MAX || spans_packets != (reth.dma_len > link.mtu) {
            return Err(Refusal::INVALID);
        }
        // The whole range at once, so that nothing of a bad WRITE lands. A WRITE of
        // no bytes checks neither key nor address (IBTA C9-88).
        if reth.dma_len > 0 {
            cx.env
                .mrs
                .check_remote(
                    reth.rkey,
                    link.pd,
                    reth.va,
                    reth.dma_len as usize,
                    Access::REMOTE_WRITE,
                )
                .map_err(|_| Refusal::ACCESS)?;
        }
        self.on_write_packet(link, packet, (reth.va, reth.rkey, reth.dma_len, 0), cx)
    }

    #[inline]
    fn on_write_packet<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        (va, rkey, total, received): (u64, Rkey, u32, u32),
        cx: &mut Cx<'_, '_, M, C>,
    ) -> Result<Outcome, Refusal> {
        let ends = ends_message(packet);
        if packet.info().has_imm() && self.rq.is_empty() {
            self.needs_receives = true;
            return Ok(Outcome::NotReady);
        }
        check_length(packet, link.mtu)?;
        let payload = packet.payload();
        let left = total - received;
        if payload.len() as u64 > u64::from(left) || ends != (payload.len() as u32 == left) {
            return Err(Refusal::INVALID);
        }
        if !payload.is_empty() {
            let at = va + u64::from(received);
            let span = cx
                .env
                .mrs
                .check_remote(rkey, link.pd, at, payload.len(), Access::REMOTE_WRITE)
                .map_err(|_| Refusal::ACCESS)?;
            cx.env
                .memory
                .copy_in(span, payload)
                .map_err(|_| Refusal::ACCESS)?;
        }
        if ends {
            self.incoming = Incoming::Idle;
            if packet.info().has_imm() {
                self.complete_receive(link, packet, WcOpcode::RecvRdmaWithImm, total, cx);
            }
        } else {
            let received = received + payload.len() as u32;
            self.incoming = Incoming::Write {
                va,
                rkey,
                total,
                received,
            };
        }
        Ok(Outcome::Executed {
            psns: 1,
            ends_message: ends,
        })
    }

    fn on_read<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, M, C>,
    ) -> Result<Outcome, Refusal> {
        if !link.access.contains(Access::REMOTE_READ) || !self.replay.has_room() {
            return Err(Refusal::INVALID);
        }
        let reth = packet
            .reth()
            .expect("READ REQUEST has a RETH by its table entry");
        if !packet.payload().is_empty() || u64::from(reth.dma_len) > MESSAGE_MAX {
            return Err(Refusal::INVALID);
        }
        if reth.dma_len > 0 {
            cx.env
                .mrs
                .check_remote(
                    reth.rkey,
                    link.pd,
                    reth.va,
                    reth.dma_len as usize,
                    Access::REMOTE_READ,
                )
                .map_err(|_| Refusal::ACCESS)?;
        }
        let packets = reth.dma_len.div_ceil(link.mtu).max(1);
        let kind = ResourceKind::Read {
            va: reth.va,
            rkey: reth.rkey,
            len: reth.dma_len,
        };
        self.accept(Resource {
            first_psn: self.epsn,
            packets,
            kind,
        })?;
        Ok(Outcome::Executed {
            psns: packets,
            ends_message: true,
        })
    }

    fn on_atomic<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, M, C>,
    ) -> Result<Outcome, Refusal> {
        if !link.access.contains(Access::REMOTE_ATOMIC) || !self.replay.has_room() {
            return Err(Refusal::INVALID);
        }
        let eth = packet
            .atomic_eth()
            .expect("atomics have an AtomicETH by their table entries");
        if !packet.payload().is_empty() || !eth.va.is_multiple_of(8) {
            return Err(Refusal::INVALID);
        }
        let span = cx
            .env
            .mrs
            .check_remote(eth.rkey, link.pd, eth.va, 8, Access::REMOTE_ATOMIC)
            .map_err(|_| Refusal::ACCESS)?;
        let original = match packet.info().operation {
            Operation::CompareSwap => cx.env.memory.compare_swap(span, eth.compare, eth.swap_add),
            _ => cx.env.memory.fetch_add(span, eth.swap_add),
        }
        .map_err(|_| Refusal::ACCESS)?;
        let kind = ResourceKind::Atomic { original };
        self.accept(Resource {
            first_psn: self.epsn,
            packets: 1,
            kind,
        })?;
        Ok(Outcome::Executed {
            psns: 1,
            ends_message: true,
        })
    }

    fn accept(&mut self, resource: Resource) -> Result<(), Refusal> {
        self.replay.push(resource).map_err(|_| Refusal::INVALID)
    }

    fn complete_receive<M: Memory, C: CqSink>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
        cx: &mut Cx<'_, '_, M, C>,
    ) {
        let cqe = Cqe {
            wr_id: self.rq.front_wr_id(),
            status: WcStatus::Success,
            fault: Fault::None,
            opcode,
            byte_len,
            imm: packet.imm().map(|imm| imm.0),
            invalidated: packet.ieth().map(|ieth| ieth.rkey),
            qpn: link.qpn,
            src_qp: link.dest_qpn,
            solicited: packet.bth().solicited,
        };
        self.rq.pop();
        self.needs_receives = true;
        self.ack.on_receive_used();
        cx.complete(link.recv_cq, cqe);
    }
}

#[inline]
fn ends_message(packet: &Packet<'_>) -> bool {
    matches!(packet.info().position, Position::Last | Position::Only)
}

/// FIRST and MIDDLE are full, LAST has something, ONLY may be empty.
#[inline]
fn check_length(packet: &Packet<'_>, mtu: u32) -> Result<(), Refusal> {
    let (len, mtu) = (packet.payload().len(), mtu as usize);
    let ok = match packet.info().position {
        Position::First | Position::Middle => len == mtu,
        Position::Last => (1..=mtu).contains(&len),
        Position::Only => len <= mtu,
    };
    if ok { Ok(()) } else { Err(Refusal::INVALID) }
}
