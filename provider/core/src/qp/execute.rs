//! Executing a request with the expected PSN: opcode sequence, operation,
//! resources, length, R_Key, and then the operation itself.

use urxe_wire::{Operation, Packet, Position, Rkey};

use crate::context::{Cx, Host};
use crate::cq::{Cqe, WcOpcode};
use crate::error::Fault;
use crate::memory::Memory;
use crate::mr::{Access, MrSpan};
use crate::qp::Link;
use crate::qp::replay::{Resource, ResourceKind};
use crate::qp::responder::{Incoming, Outcome, Refusal, Responder};
use crate::qp::sgl;
use crate::work::MESSAGE_MAX;

impl Responder {
    #[inline(always)]
    pub(crate) fn execute<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
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
            ) if !starts => {
                self.on_write_packet(link, packet, (va, rkey, total, received), None, cx)
            }
            (Incoming::Idle, Operation::ReadRequest) => self.on_read(link, packet, cx),
            (Incoming::Idle, Operation::CompareSwap | Operation::FetchAdd) => {
                self.on_atomic(link, packet, cx)
            }
            (Incoming::Idle, Operation::AtomicWrite) => self.on_atomic_write(link, packet, cx),
            (Incoming::Idle, Operation::Flush) => self.on_flush(link, packet, cx),
            // An opcode out of sequence, or one that this service does not have.
            _ => Err(Refusal::Sequence),
        }
    }

    #[inline]
    fn on_send<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        received: u64,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        if self.tagged.is_some() {
            return self.on_tagged_send(link, packet, received, cx);
        }
        if self.rq.is_empty() && !self.find_receive(link, cx) {
            self.needs_receives = true;
            return Ok(Outcome::NotReady);
        }
        check_length(packet, link.mtu)?;
        let total = self.place_send(packet.payload(), received, cx)?;
        let ends = ends_message(packet);
        if ends {
            self.end_send(link, packet, cx)?;
            let wr_id = self.rq.front_wr_id();
            let done = link.cqe(wr_id, WcOpcode::Recv, Fault::None, total as u32);
            self.complete_receive(packet, done, cx);
        } else {
            self.incoming = Incoming::Send { received: total };
        }
        Ok(Outcome::Executed {
            psns: 1,
            ends_message: ends,
        })
    }

    /// Places bytes of a SEND into the oldest receive; returns how many it has then.
    #[inline]
    pub(crate) fn place_send<H: Host>(
        &mut self,
        payload: &[u8],
        received: u64,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<u64, Refusal> {
        let total = received + payload.len() as u64;
        // From here on the oldest receive is taken, and a fault is its fault.
        self.incoming = Incoming::Send { received };
        if total > self.rq.front_length() || total > MESSAGE_MAX {
            mark!(RecvTooShort);
            return Err(Refusal::TooLong);
        }
        if !payload.is_empty() {
            sgl::scatter(
                cx.env,
                self.recvs.pd,
                self.rq.front_sges(),
                received,
                payload,
            )
            .map_err(Refusal::Local)?;
        }
        Ok(total)
    }

    /// The last packet of a SEND is placed; it may take an rkey back.
    #[inline]
    pub(crate) fn end_send<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Refusal> {
        if let Some(rkey) = packet.ieth().map(|ieth| ieth.rkey) {
            cx.env
                .mrs
                .check_invalidate(rkey, link.accessor())
                .map_err(|_| Refusal::Invalidate)?;
            cx.env.mrs.invalidate(rkey);
        }
        self.incoming = Incoming::Idle;
        Ok(())
    }

    #[inline]
    fn on_write_start<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        check_right(link, Access::REMOTE_WRITE)?;
        let reth = packet
            .reth()
            .expect("WRITE FIRST and ONLY have a RETH by their table entries");
        let spans_packets = packet.info().position == Position::First;
        if u64::from(reth.dma_len) > MESSAGE_MAX || spans_packets != (reth.dma_len > link.mtu) {
            return Err(Refusal::Length);
        }
        // The whole range at once, so that nothing of a bad WRITE lands. A WRITE of
        // no bytes checks neither key nor address (IBTA C9-88).
        let mut whole = None;
        if reth.dma_len > 0 {
            let place = (reth.rkey, reth.va, reth.dma_len);
            whole = Some(check_key(link, place, Access::REMOTE_WRITE, cx)?);
        }
        mark!(ZeroLengthUnchecked if reth.dma_len == 0);
        let write = (reth.va, reth.rkey, reth.dma_len, 0);
        self.on_write_packet(link, packet, write, whole, cx)
    }

    /// `whole` is all that the WRITE goes to, if that was checked for this packet.
    #[inline]
    fn on_write_packet<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        (va, rkey, total, received): (u64, Rkey, u32, u32),
        whole: Option<MrSpan>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        let ends = ends_message(packet);
        if packet.info().has_imm() && self.rq.is_empty() && !self.find_receive(link, cx) {
            self.needs_receives = true;
            return Ok(Outcome::NotReady);
        }
        check_length(packet, link.mtu)?;
        let payload = packet.payload();
        let left = total - received;
        if payload.len() as u64 > u64::from(left) || ends != (payload.len() as u32 == left) {
            return Err(Refusal::Length);
        }
        if !payload.is_empty() {
            let span = match whole {
                Some(whole) => whole.part(0, payload.len()),
                None => {
                    let at = va + u64::from(received);
                    let (by, len) = (link.accessor(), payload.len());
                    let mrs = &cx.env.mrs;
                    mrs.check_remote(rkey, by, at, len, Access::REMOTE_WRITE)
                        .map_err(|_| write_target_gone())?
                }
            };
            cx.env
                .memory
                .place_write(link.qpn, span, payload)
                .map_err(|_| write_target_gone())?;
        }
        if ends {
            self.incoming = Incoming::Idle;
            if packet.info().has_imm() {
                let wr_id = self.rq.front_wr_id();
                let done = link.cqe(wr_id, WcOpcode::RecvRdmaWithImm, Fault::None, total);
                self.complete_receive(packet, done, cx);
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

    fn on_read<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        self.check_acceptable(link, Access::REMOTE_READ)?;
        let reth = packet
            .reth()
            .expect("READ REQUEST has a RETH by its table entry");
        if !packet.payload().is_empty() || u64::from(reth.dma_len) > MESSAGE_MAX {
            return Err(Refusal::Length);
        }
        if reth.dma_len > 0 {
            let place = (reth.rkey, reth.va, reth.dma_len);
            check_key(link, place, Access::REMOTE_READ, cx)?;
        }
        let packets = reth.dma_len.div_ceil(link.mtu).max(1);
        let kind = ResourceKind::Read {
            va: reth.va,
            rkey: reth.rkey,
            len: reth.dma_len,
            pd: link.pd,
        };
        self.accept(packets, kind)
    }

    fn on_atomic<H: Host>(
        &mut self,
        link: &Link,
        packet: &Packet<'_>,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<Outcome, Refusal> {
        self.check_acceptable(link, Access::REMOTE_ATOMIC)?;
        let eth = packet
            .atomic_eth()
            .expect("atomics have an AtomicETH by their table entries");
        if !packet.payload().is_empty() {
            return Err(Refusal::Length);
        }
        if !eth.va.is_multiple_of(8) {
            return Err(Refusal::Misaligned);
        }
        let span = check_key(link, (eth.rkey, eth.va, 8), Access::REMOTE_ATOMIC, cx)?;
        let original = match packet.info().operation {
            Operation::CompareSwap => cx.env.memory.compare_swap(span, eth.compare, eth.swap_add),
            _ => cx.env.memory.fetch_add(span, eth.swap_add),
        }
        .map_err(|_| Refusal::Memory(Access::REMOTE_ATOMIC))?;
        self.accept(1, ResourceKind::Atomic { original })
    }

    /// May a request that is answered by a response come in?
    pub(crate) fn check_acceptable(&self, link: &Link, need: Access) -> Result<(), Refusal> {
        check_right(link, need)?;
        if self.replay.has_room() {
            Ok(())
        } else {
            Err(Refusal::TooMany)
        }
    }

    /// Executed; the answer is due, and kept in case it gets lost.
    pub(crate) fn accept(&mut self, packets: u32, kind: ResourceKind) -> Result<Outcome, Refusal> {
        let resource = Resource {
            first_psn: self.epsn,
            packets,
            kind,
        };
        self.replay.push(resource).map_err(|_| Refusal::TooMany)?;
        Ok(Outcome::Executed {
            psns: packets,
            ends_message: true,
        })
    }

    /// The oldest receive is done, as `done` says but for what its last packet carries.
    #[inline]
    pub(crate) fn complete_receive<H: Host>(
        &mut self,
        packet: &Packet<'_>,
        done: Cqe,
        cx: &mut Cx<'_, '_, H>,
    ) {
        let cqe = Cqe {
            imm: packet.imm().map(|imm| imm.0),
            invalidated: packet.ieth().map(|ieth| ieth.rkey),
            solicited: done.solicited || packet.bth().solicited,
            ..done
        };
        self.rq.pop();
        self.needs_receives = true;
        self.ack.on_receive_used();
        cx.common.stats.rdma_recvs += 1;
        cx.complete(self.recvs.cq, cqe);
    }
}

/// The key was good when the WRITE began.
#[cold]
fn write_target_gone() -> Refusal {
    mark!(WriteTargetGone);
    Refusal::Memory(Access::REMOTE_WRITE)
}

#[inline]
fn check_right(link: &Link, need: Access) -> Result<(), Refusal> {
    if link.access.contains(need) {
        Ok(())
    } else {
        Err(Refusal::Right(need))
    }
}

/// What the rkey of a request opens.
#[inline]
pub(crate) fn check_key<H: Host>(
    link: &Link,
    (rkey, va, len): (Rkey, u64, u32),
    need: Access,
    cx: &Cx<'_, '_, H>,
) -> Result<MrSpan, Refusal> {
    let mrs = &cx.env.mrs;
    mrs.check_remote(rkey, link.accessor(), va, len as usize, need)
        .map_err(|_| refuse_key(need))
}

#[cold]
fn refuse_key(need: Access) -> Refusal {
    mark!(RemoteKeyRefused);
    Refusal::Memory(need)
}

#[inline]
fn ends_message(packet: &Packet<'_>) -> bool {
    matches!(packet.info().position, Position::Last | Position::Only)
}

/// FIRST and MIDDLE are full, LAST has something, ONLY may be empty.
#[inline]
pub(crate) fn check_length(packet: &Packet<'_>, mtu: u32) -> Result<(), Refusal> {
    let (len, mtu) = (packet.payload().len(), mtu as usize);
    let ok = match packet.info().position {
        Position::First | Position::Middle => len == mtu,
        Position::Last => (1..=mtu).contains(&len),
        Position::Only => len <= mtu,
    };
    if ok { Ok(()) } else { Err(Refusal::Length) }
}
