//! READs between two sides that tell each other: the peer answers from the request alone what it answered before, so a READ
//! holds one of its places only until it was answered once, and not until all of it is here. What of an answer was lost is asked for by the way.
//!
//! A lost request is worse than a lost answer: until it comes again the peer has nothing to send. So a request for many
//! packets leaves twice. The two do not ask for an ACK (AckReq is 0), and the peer takes one; one that asks for what was lost does.

use urxe_wire::{Operation, Packet, Psn};

use crate::context::{Cx, Host};
use crate::mr::Access;
use crate::qp::Link;
use crate::qp::recovery::Peer;
use crate::qp::replay::{Resource, ResourceKind};
use crate::qp::requester::{Requester, SendStep};
use crate::qp::responder::Responder;
use crate::transmit::TxBatch;
use crate::work::{MESSAGE_MAX, SendWqe, WrOpcode};

/// Packets that a READ request asks for, at least, if it leaves twice: so the second costs little.
const TWICE_FROM: u32 = 8;

/// Packets that a READ request asks for while answers are lost, if that is enough to fill the window.
const CHUNK: u32 = 16;

impl Requester {
    /// A READ or atomic was answered, up to `psn`, and the answer was the next in order.
    #[inline]
    pub(crate) fn free_place(&mut self, psn: Psn) {
        if let Some(s) = &mut self.selective {
            // It may have been free since a later answer came.
            if s.freed.is_after(psn) {
                return;
            }
            s.freed = psn.next();
        }
        self.rd_inflight = self.rd_inflight.saturating_sub(1);
    }

    /// An answer came: the peer has answered everything before it. An atomic keeps its place until its result is here, and
    /// so does all behind it: what the peer does only once it must remember.
    pub(crate) fn free_places(&mut self, psn: Psn) {
        let Some(s) = &mut self.selective else {
            return;
        };
        if s.answered.is_before(psn.next()) {
            s.answered = psn.next();
        }
        let (mut at, answered) = (s.freed, s.answered);
        while at.is_before(answered) {
            let wqe = self.sq.wqe(self.find_request(at));
            let into = at.distance_from(wqe.first_psn);
            let (end, holds) = match wqe.opcode {
                WrOpcode::RdmaRead => (wqe.first_psn.add(self.chunk_end(wqe, into)), 1),
                opcode => (wqe.last_psn.next(), u32::from(opcode.is_read_or_atomic())),
            };
            let is_once = holds > 0 && wqe.opcode != WrOpcode::RdmaRead;
            if end.is_after(answered) || is_once && at != psn && !self.is_here(at) {
                break;
            }
            self.rd_inflight = self.rd_inflight.saturating_sub(holds);
            at = end;
        }
        if let Some(s) = &mut self.selective {
            s.freed = at;
        }
    }

    fn is_here(&self, psn: Psn) -> bool {
        let s = self.selective.as_ref();
        s.is_some_and(|s| s.board.is_here(s.number(psn)))
    }

    /// READs and atomics that are not done, which a fenced request waits for.
    #[inline]
    pub(crate) fn has_reads(&self) -> bool {
        match &self.selective {
            Some(s) => self.una.is_before(s.reads_end),
            None => self.rd_inflight > 0,
        }
    }

    /// Packets that a request of a READ asks for, from now on. While answers are lost on the way from a peer that may repeat a request to its
    /// end only, no more than fill the window: the fewer they are, the fewer come twice.
    pub(crate) fn chunk(&self, link: &Link) -> u32 {
        let small = CHUNK.min(self.read_chunk);
        let is_lossy = self.selective.is_some() && !self.may_ask_anything(link);
        match is_lossy && self.window.packets() <= small * u32::from(link.max_rd_atomic) {
            true => small,
            false => self.read_chunk,
        }
    }

    /// End of the READ request that packet `at` of the response belongs to.
    #[inline]
    pub(crate) fn chunk_end(&self, wqe: &SendWqe, at: u32) -> u32 {
        let packets = wqe.last_psn.distance_from(wqe.first_psn) + 1;
        ((at / wqe.chunk() + 1) * wqe.chunk()).min(packets)
    }

    /// A new READ request or atomic left that stands for `span` PSNs.
    pub(crate) fn note_read(&mut self, psn: Psn, span: u32, opcode: WrOpcode, link: &Link) {
        let is_told = link.peer == Peer::Selective;
        if let Some(s) = &mut self.selective {
            let number = s.number(psn);
            s.board.expect_answers(number, span);
            s.reads_end = psn.add(span);
            let is_long = opcode == WrOpcode::RdmaRead && span >= TWICE_FROM && is_told;
            s.copy = is_long.then_some(psn);
        }
    }

    /// The READ request that leaves now is the first of its kind, or its copy, and the peer knows that no repetition is.
    #[inline]
    pub(crate) fn is_first_asking(&self, link: &Link) -> bool {
        let s = self.selective.as_ref();
        let s = s.filter(|_| link.peer == Peer::Selective);
        s.is_some_and(|s| !self.next_psn.is_before(self.sent_end) || s.copy == Some(self.next_psn))
    }

    /// The last READ request leaves a second time.
    #[cold]
    pub(crate) fn send_copy<H: Host>(
        &mut self,
        psn: Psn,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> SendStep {
        let is_due = !psn.is_before(self.una);
        if is_due {
            let aside = (self.cursor, self.next_psn, self.rd_inflight);
            (self.cursor, self.next_psn) = (self.find_request(psn), psn);
            let sent = self.emit_read_or_atomic(link, batch);
            (self.cursor, self.next_psn, self.rd_inflight) = aside;
            if let Ok(None) = sent {
                return SendStep::BatchFull;
            }
            mark!(ReadCopied);
            cx.common.stats.sent_pkts += 1;
        }
        if let Some(s) = &mut self.selective {
            s.copy = None;
        }
        SendStep::Local
    }
}

impl Responder {
    /// A READ request of which another came, or comes.
    pub(crate) fn is_copy(link: &Link, packet: &Packet<'_>) -> bool {
        link.peer.is_known()
            && packet.info().operation == Operation::ReadRequest
            && !packet.bth().ack_req
    }

    /// Answers a part of a READ that was answered so long ago that its place has another. Memory is checked as it is
    /// read, as for any READ. False if it cannot be such a part.
    pub(crate) fn repeat_unknown(&mut self, link: &Link, packet: &Packet<'_>) -> bool {
        let psn = packet.bth().psn;
        let reth = packet.reth().filter(|reth| {
            link.peer.is_known()
                && link.access.contains(Access::REMOTE_READ)
                && self.replay.find(psn).is_none()
                && u64::from(reth.dma_len) <= MESSAGE_MAX
        });
        let Some(reth) = reth else {
            return false;
        };
        let packets = reth.dma_len.div_ceil(link.mtu).max(1);
        if packets > self.epsn.distance_from(psn) {
            return false;
        }
        mark!(UnknownPartRepeated);
        self.replay.repeat(Resource {
            first_psn: psn,
            packets,
            kind: ResourceKind::Read {
                va: reth.va,
                rkey: reth.rkey,
                len: reth.dma_len,
                pd: link.pd,
            },
        });
        true
    }
}
