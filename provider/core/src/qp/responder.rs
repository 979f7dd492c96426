//! The responder: request packets of the peer are checked in the specification's
//! order, executed, and answered. The order of [`Responder::handle_request`] is the
//! order of IBTA 9.7.4: PSN, opcode sequence, operation, resources, length, R_Key,
//! execution, completion, acknowledgement.

use urxe_wire::{CreditCode, Msn, NakCode, Operation, Packet, Psn, Rkey, RnrTimer, Syndrome};

use crate::context::{Cx, Host};
use crate::error::{DropReason, Fault};
use crate::mr::Access;
use crate::qp::ack::OwedAck;
use crate::qp::recovery::{Ahead, Seen, Waiting, span};
use crate::qp::replay::{Replay, ResourceKind};
use crate::qp::report::ResponderCounts;
use crate::qp::{Link, RecvSource};
use crate::tm::TagRole;
use crate::work::RecvQueue;

/// The message that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
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

/// A request that is refused for good: the peer gets a NAK, the QP fails. Which check
/// refused it is for the report (`diagnose.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// An opcode that cannot come now.
    Sequence,
    /// Over XRC: a queue that the target does not serve.
    Queue,
    /// The QP's access flags lack this right.
    Right(Access),
    /// More READs and atomics than `max_dest_rd_atomic`.
    TooMany,
    /// An address of an atomic that is no multiple of 8.
    Misaligned,
    /// Headers and payload that do not fit each other or the path MTU.
    Length,
    /// A message that is longer than its receive.
    TooLong,
    /// Memory that may not be accessed with this right.
    Memory(Access),
    /// An rkey that may not be invalidated.
    Invalidate,
    /// The memory of an accepted READ is gone.
    ReadSourceGone,
    /// This side's receive, or its memory.
    Local(Fault),
}

/// A packet's result stays in registers.
const _: () = assert!(size_of::<Refusal>() <= 8 && size_of::<Result<Outcome, Refusal>>() <= 16);

impl Refusal {
    /// What the receive that was being filled is completed with, if there is one.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Refusal::Local(fault) => fault,
            Refusal::TooLong => Fault::RecvTooShort,
            Refusal::Memory(_) | Refusal::Invalidate | Refusal::ReadSourceGone => {
                Fault::ResponderAccess
            }
            _ => Fault::ResponderInvalidRequest,
        }
    }

    /// What the NAK says.
    pub(crate) fn code(self) -> NakCode {
        match self.fault() {
            Fault::ResponderAccess => NakCode::RemoteAccess,
            Fault::ResponderInvalidRequest | Fault::RecvTooShort => NakCode::InvalidRequest,
            _ => NakCode::RemoteOperational,
        }
    }
}

/// How a packet fared.
pub(crate) enum Outcome {
    /// Executed; PSNs that it stands for, and whether it ends a message.
    Executed { psns: u32, ends_message: bool },
    /// No receive for it.
    NotReady,
}

/// In the order in which it lies in memory: what a turn of own requests looks at, too, comes last ([`Qp`](crate::qp::Qp)).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Responder {
    pub(crate) recvs: RecvSource,
    /// Receives that wait, or, with a shared receive queue, the one being filled.
    pub(crate) rq: RecvQueue,
    pub(crate) incoming: Incoming,
    /// What the message that comes in is, if its queue has tags.
    pub(crate) tagged: Option<Box<TagRole>>,
    /// Packets ahead of a gap, while there is one.
    pub(crate) ahead: Option<Box<Ahead>>,
    pub(crate) seen: Seen,
    pub(crate) epsn: Psn,
    pub(crate) msn: Msn,
    pub(crate) counts: ResponderCounts,
    /// Packets that came again, modulo 2^16.
    pub(crate) duplicates: u16,
    pub(crate) waiting: Waiting,
    /// The last credit code said "none".
    pub(crate) told_none: bool,
    /// The peer sends messages that need receives.
    pub(crate) needs_receives: bool,
    /// The peer sets MigReq, as adapters do and Linux's rdma_rxe does not.
    pub(crate) peer_sets_mig_req: bool,
    /// The last request that was executed is a READ or atomic.
    pub(crate) answered_last: bool,
    pub(crate) nak_owed: Option<(Syndrome, Psn)>,
    pub(crate) ack: OwedAck,
    pub(crate) replay: Replay,
}

impl Responder {
    pub(crate) fn new(rq: RecvQueue, recvs: RecvSource) -> Self {
        Responder {
            rq,
            recvs,
            epsn: Psn::ZERO,
            msn: Msn::ZERO,
            incoming: Incoming::Idle,
            tagged: recvs.has_tags.then(|| Box::new(TagRole::new())),
            waiting: Waiting::No,
            replay: Replay::default(),
            nak_owed: None,
            counts: ResponderCounts::default(),
            ack: OwedAck::new(),
            told_none: false,
            needs_receives: false,
            peer_sets_mig_req: true,
            answered_last: false,
            duplicates: 0,
            ahead: None,
            seen: Seen::default(),
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
        *self = Responder::new(rq, self.recvs);
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
            mark!(CreditsAnnounced);
            self.told_none = false;
            self.ack.owe_now();
        }
    }

    /// Credits for the AETH: receives that the peer may count on.
    #[inline]
    pub(crate) fn credits(&mut self) -> CreditCode {
        if self.recvs.srq.is_some() {
            return self.credits_shared();
        }
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
    #[inline(always)]
    pub(crate) fn handle_request<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Refusal> {
        let bth = packet.bth();
        self.peer_sets_mig_req = bth.mig_req;
        if bth.psn != self.epsn {
            if bth.psn.is_before(self.epsn) {
                self.on_duplicate(link, packet, cx);
            } else {
                self.on_ahead(link, packet, cx);
            }
            return Ok(());
        }
        // The expected packet: whatever was said about it is settled.
        self.waiting = Waiting::No;
        self.nak_owed = None;
        match self.execute(link, packet, cx) {
            Ok(Outcome::Executed { psns, ends_message }) => {
                mark!(ExpectedPsnWrapped if self.epsn.add(psns).get() < self.epsn.get());
                self.epsn = self.epsn.add(psns);
                if ends_message {
                    self.msn = self.msn.next();
                    cx.common.stats.rcvd_messages += 1;
                }
                // The response to a READ or atomic acknowledges it and all before it.
                self.answered_last =
                    !matches!(packet.info().operation, Operation::Send | Operation::Write);
                if self.answered_last {
                    self.ack.cancel();
                } else {
                    let wanted = bth.ack_req || ends_message && cx.now() < cx.common.waits_until;
                    self.ack.on_executed(cx.now(), wanted);
                    if ends_message {
                        self.ack.on_message(bth.ack_req);
                    }
                }
                Ok(())
            }
            Ok(Outcome::NotReady) => {
                let timer = RnrTimer::new(link.min_rnr_timer);
                self.nak_owed = Some((Syndrome::rnr(timer), self.epsn));
                mark!(RnrNakSent);
                self.waiting = Waiting::RnrNakSent;
                cx.common.stats.send_rnr_err += 1;
                self.counts.send_rnr_err += 1;
                tell!(
                    DEBUG,
                    qpn = link.qpn.get(),
                    psn = self.epsn.get(),
                    "NAK: no receive is posted"
                );
                Ok(())
            }
            Err(refusal) => Err(self.refuse(refusal, cx)),
        }
    }

    /// The expected request is refused for good: the NAK is owed, the QP must fail.
    pub(crate) fn refuse<H: Host>(&mut self, refusal: Refusal, cx: &mut Cx<'_, '_, H>) -> Refusal {
        self.nak_owed = Some((Syndrome::nak(refusal.code()), self.epsn));
        cx.common.stats.responder_err += 1;
        refusal
    }

    /// True while a SEND is being placed into the oldest receive.
    pub(crate) fn fills_receive(&self) -> bool {
        matches!(self.incoming, Incoming::Send { .. })
    }

    /// Completes all receives: the one being filled with `fault`, the rest flushed.
    pub(crate) fn flush<H: Host>(&mut self, fault: Fault, link: &Link, cx: &mut Cx<'_, '_, H>) {
        let mut first = match self.incoming {
            Incoming::Send { .. } => fault,
            _ => Fault::Flushed,
        };
        mark!(FlushedWhileFilling if self.fills_receive());
        self.forget_tagged(cx.common);
        self.flush_asked(link, cx);
        self.incoming = Incoming::Idle;
        self.forget_kept(cx.common);
        self.forget_orphan(&cx.common.srqs);
        while !self.rq.is_empty() {
            let cqe = self.flushed(link, first);
            self.rq.pop();
            cx.complete(self.recvs.cq, cqe);
            first = Fault::Flushed;
        }
    }

    /// A packet that was executed before: never again, but its answer may have been
    /// lost. A READ is read again, an atomic's result is repeated.
    fn on_duplicate<H: Host>(&mut self, link: &Link, packet: &Packet<'_>, cx: &mut Cx<'_, '_, H>) {
        cx.common.stats.duplicate_request += 1;
        self.counts.duplicate_request += 1;
        let psn = packet.bth().psn;
        if Responder::is_copy(link, packet) {
            return;
        }
        let kept = |is_it: fn(ResourceKind) -> bool| {
            let found = self.replay.find(psn).filter(|(_, r)| is_it(r.kind));
            found.map(|(number, _)| number)
        };
        let kept = match packet.info().operation {
            Operation::Send | Operation::Write => {
                mark!(DuplicateMessage);
                self.duplicates = self.duplicates.wrapping_add(1);
                let kept = self.ahead.as_ref().map_or(0, |ahead| ahead.kept());
                let behind = self.epsn.distance_from(psn.next()) + kept;
                self.seen.note_again(psn, 1, behind);
                self.ack.owe_now();
                return;
            }
            Operation::ReadRequest => self.find_same_read(link, packet, psn),
            Operation::CompareSwap | Operation::FetchAdd => {
                kept(|kind| matches!(kind, ResourceKind::Atomic { .. }))
            }
            Operation::AtomicWrite | Operation::Flush => kept(|kind| kind == ResourceKind::Placed),
            _ => None,
        };
        match kept {
            Some(number) => {
                mark!(ReadReplayed if packet.info().operation == Operation::ReadRequest);
                mark!(AtomicReplayed if packet.atomic_eth().is_some());
                mark!(PlacedReplayed if matches!(packet.info().operation, Operation::AtomicWrite | Operation::Flush));
                let packets = span(packet, link.mtu);
                if self.is_part_of_read(link, number, psn, packets) {
                    self.replay.repeat_part(number, psn, packets);
                } else {
                    self.seen.note_again(psn, packets, 0);
                    self.replay.rewind(number, psn);
                }
            }
            None if self.repeat_unknown(link, packet) => {}
            None => {
                mark!(StaleDuplicate);
                cx.common.stats.drop_packet(DropReason::StaleDuplicate);
            }
        }
    }

    /// Nothing behind these packets is to be answered again: the peer asks for what it lacks, or not for the rest of a READ.
    fn is_part_of_read(&self, link: &Link, number: u64, psn: Psn, packets: u32) -> bool {
        link.peer.is_known() || !self.replay.is_rest(number, psn, packets)
    }

    /// A repeated READ must ask for a part of what was asked for before, under the
    /// same key; anything else is not a repetition.
    fn find_same_read(&self, link: &Link, packet: &Packet<'_>, psn: Psn) -> Option<u64> {
        let reth = packet.reth()?;
        let (number, resource) = self.replay.find(psn)?;
        let ResourceKind::Read { va, rkey, len, .. } = resource.kind else {
            return None;
        };
        let offset = psn.distance_from(resource.first_psn) * link.mtu;
        (reth.rkey == rkey
            && reth.va == va.wrapping_add(u64::from(offset))
            && reth.dma_len <= len - offset
            && (reth.dma_len == len - offset
                || reth.dma_len > 0 && reth.dma_len.is_multiple_of(link.mtu)))
        .then_some(number)
    }
}
