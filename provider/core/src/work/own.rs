//! Requests of the shard's own in a send queue: the READ of a rendezvous, and the SEND that ends it ([`crate::tm`]).
//!
//! They have places beside those that the program may fill. READ and SEND take the same one: the SEND is queued when the
//! READ is done.

use urxe_wire::{Rvh, Tmh, TmhOp};

use crate::qp::attr::QpCap;
use crate::work::{SendFlags, SendQueue, SendRules, SendWqe, Sge, WrOpcode};

/// Most entries of a tag.
pub(crate) const TAG_SGE_MAX: usize = 4;
/// Rendezvous of a QP that may be under way at once.
pub(crate) const RNDV_MAX: u32 = 32;
/// Both headers.
const FIN: usize = Tmh::LEN + Rvh::LEN;

/// A tag and the request for a rendezvous that it took.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    pub(crate) tmh: Tmh,
    pub(crate) rvh: Rvh,
    pub(crate) recv_wr_id: u64,
    sges: [Sge; TAG_SGE_MAX],
    num_sge: usize,
}

impl Rendezvous {
    /// `sges` are those of a tag.
    pub(crate) fn new((tmh, rvh): (Tmh, Rvh), recv_wr_id: u64, sges: &[Sge]) -> Rendezvous {
        let mut of = Rendezvous {
            tmh,
            rvh,
            recv_wr_id,
            sges: [Sge::EMPTY; TAG_SGE_MAX],
            num_sge: sges.len(),
        };
        of.sges[..sges.len()].copy_from_slice(sges);
        of
    }

    pub(crate) fn sges(&self) -> &[Sge] {
        &self.sges[..self.num_sge]
    }
}

impl SendRules {
    /// What a QP that is asked for with `cap` gets.
    pub(crate) fn widen(&self, cap: QpCap) -> QpCap {
        if self.has_tags { cap.with_tags() } else { cap }
    }

    /// Places of its send queue for requests of the shard's own. READs end while their SENDs wait already.
    pub(crate) fn own_max(&self) -> u32 {
        if self.has_tags { 2 * RNDV_MAX } else { 0 }
    }
}

impl SendFlags {
    /// The request is the shard's own.
    pub(crate) const OWN: SendFlags = SendFlags(1 << 31);
}

impl QpCap {
    /// What a QP needs for rendezvous: at least as many entries as tags have, and inline bytes for the headers.
    #[must_use]
    pub fn with_tags(self) -> QpCap {
        QpCap {
            max_send_sge: self.max_send_sge.max(TAG_SGE_MAX as u32),
            max_inline_data: self.max_inline_data.max(FIN as u32),
            ..self
        }
    }
}

impl SendQueue {
    /// Forgets everything.
    pub(crate) fn forget_all(&mut self) {
        self.clear();
        self.own = 0;
    }

    /// Requests of the shard's own.
    pub(crate) fn own(&self) -> u32 {
        self.own
    }

    /// Appends the READ of a rendezvous, for which there must be a place.
    pub(crate) fn push_read(&mut self, of: &Rendezvous) {
        debug_assert!(self.own < RNDV_MAX, "the caller asked for a place");
        let slot = self.slot(self.tail);
        let (sges_at, inline_at) = (slot * self.sge_max(), slot * self.inline_max());
        self.sges[sges_at..][..of.sges().len()].copy_from_slice(of.sges());
        let fin = Tmh {
            opcode: TmhOp::Fin as u8,
            ..of.tmh
        };
        let place = &mut self.inline[inline_at..][..FIN];
        place[..Tmh::LEN].copy_from_slice(&fin.emit());
        place[Tmh::LEN..].copy_from_slice(&of.rvh.emit());
        self.append(SendWqe {
            wr_id: of.recv_wr_id,
            remote_addr: of.rvh.va,
            rkey: of.rvh.rkey,
            length: of.rvh.len,
            opcode: WrOpcode::RdmaRead,
            flags: SendFlags::OWN | SendFlags::SIGNALED,
            num_sge: of.sges().len() as u16,
            ..SendWqe::EMPTY
        });
    }

    /// The oldest request, a READ of the shard's own, is done: the SEND that says so is appended.
    pub(crate) fn push_fin(&mut self) {
        let (from, to) = (self.slot(self.head), self.slot(self.tail));
        let (at, to) = (from * self.inline_max(), to * self.inline_max());
        self.inline.copy_within(at..at + FIN, to);
        self.append(SendWqe {
            length: FIN as u32,
            opcode: WrOpcode::Send,
            flags: SendFlags::OWN | SendFlags::SIGNALED | SendFlags::INLINE,
            ..SendWqe::EMPTY
        });
    }

    /// The oldest request, which is the shard's own, is about to be taken out.
    pub(crate) fn leave_own(&mut self) {
        self.own -= 1;
    }

    fn append(&mut self, wqe: SendWqe) {
        let slot = self.slot(self.tail);
        self.slots[slot] = wqe;
        self.tail += 1;
        self.own += 1;
    }
}
