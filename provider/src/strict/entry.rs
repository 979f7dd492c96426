//! One outstanding work request, and the bytes that the adapter owns meanwhile.

use urxe_core::cq::{TmFlags, WcOpcode};
use urxe_core::error::WcStatus;
use urxe_core::memory::Memory;
use urxe_core::mr::MrSpan;
use urxe_core::srq::SrqId;
use urxe_core::work::WrOpcode;
use urxe_wire::{Lkey, Qpn};

use super::hash::Hashes;
use super::place::Place;
use super::poison;
use super::report::StrictReport;
use super::rule::StrictRule;
use crate::mem::UserMemory;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Queue {
    Send(Qpn),
    Recv(Qpn),
    /// A receive queue that several QPs share.
    Shared(SrqId),
}

impl Queue {
    /// The own queue of a QP for a completed request.
    pub(super) fn of(qpn: Qpn, opcode: WcOpcode) -> Queue {
        match opcode {
            WcOpcode::Recv | WcOpcode::RecvRdmaWithImm | WcOpcode::TmRecv | WcOpcode::TmNoTag => {
                Queue::Recv(qpn)
            }
            _ => Queue::Send(qpn),
        }
    }

    /// The queue that a completion keeps its order with. All of tag matching have one order, whatever QP they are of.
    pub(super) fn ordered_with(qpn: Qpn, opcode: WcOpcode) -> Queue {
        match opcode {
            WcOpcode::TmAdd
            | WcOpcode::TmDel
            | WcOpcode::TmSync
            | WcOpcode::TmRecv
            | WcOpcode::TmNoTag => Queue::Recv(Qpn::new(0)),
            _ => Queue::of(qpn, opcode),
        }
    }

    /// The QP that it belongs to, if it belongs to one.
    pub(super) fn qpn(self) -> Option<Qpn> {
        match self {
            Queue::Send(qpn) | Queue::Recv(qpn) => Some(qpn),
            Queue::Shared(_) => None,
        }
    }

    pub(super) fn is_send(self) -> bool {
        matches!(self, Queue::Send(_))
    }
}

/// A work request from its post until its completion is polled.
#[derive(Debug)]
pub(super) struct Entry {
    /// Grows with every post of the queue.
    pub(super) number: u64,
    pub(super) wr_id: u64,
    /// Its name in reports.
    pub(super) name: &'static str,
    pub(super) at: Place,
    /// True if it makes a completion on success too.
    pub(super) is_signaled: bool,
    /// Its completion was made; the program has not seen it.
    pub(super) done: Option<Done>,
    pub(super) pieces: Vec<Piece>,
    pub(super) buffer: Buffer,
    /// Its memory was deregistered under it.
    pub(super) is_orphan: bool,
    /// The last call by which the program wrote to its bytes.
    pub(super) written_at: Option<Place>,
}

/// A scatter/gather entry that passed its check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) lkey: Lkey,
    pub(super) span: MrSpan,
    pub(super) offset: usize,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) qpn: Qpn,
    pub(super) status: WcStatus,
    pub(super) opcode: WcOpcode,
    pub(super) byte_len: u32,
}

/// What is known about the bytes.
#[derive(Debug)]
pub(super) enum Buffer {
    /// Nothing is watched: there are no bytes, or they are the program's.
    None,
    /// The adapter writes them, and several requests share them: nothing is watched.
    Shared,
    /// The adapter reads them.
    Source(Hashes),
    /// The adapter writes them: they are poisoned.
    Target {
        /// What was there, for what is not written.
        original: Vec<u8>,
        /// What was placed, from the first packet on. The program gets it when it polls.
        placed: Option<Vec<u8>>,
    },
}

impl Entry {
    /// Bytes of all pieces.
    fn load(&self) -> Vec<u8> {
        let len = self.pieces.iter().map(|piece| piece.span.len()).sum();
        let mut bytes = vec![0; len];
        for piece in &self.pieces {
            let (at, len) = (piece.offset, piece.span.len());
            // Memory that cannot be reached fails the request itself.
            let _ = UserMemory.copy_out(piece.span, &mut bytes[at..at + len]);
        }
        bytes
    }

    fn store(&self, bytes: &[u8]) {
        for piece in &self.pieces {
            let (at, len) = (piece.offset, piece.span.len());
            let _ = UserMemory.copy_in(piece.span, &bytes[at..at + len]);
        }
    }

    /// Remembers the bytes: a later change is noticed.
    pub(super) fn remember(&mut self) {
        self.buffer = Buffer::Source(Hashes::of(&self.load()));
    }

    /// Poisons the bytes: from here on they belong to the adapter.
    pub(super) fn poison(&mut self) {
        let original = self.load();
        let mut poison = vec![0; original.len()];
        poison::fill(&mut poison, 0);
        self.store(&poison);
        self.buffer = Buffer::Target {
            original,
            placed: None,
        };
    }

    /// Keeps bytes of the message until the program may see them.
    pub(super) fn place(&mut self, offset: usize, bytes: &[u8]) {
        if let Buffer::Target { original, placed } = &mut self.buffer {
            let placed = placed.get_or_insert_with(|| original.clone());
            placed[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Part of a message is there.
    pub(super) fn has_placed(&self) -> bool {
        matches!(
            self.buffer,
            Buffer::Target {
                placed: Some(_),
                ..
            }
        )
    }

    /// Bytes of the message that the program gets.
    fn received(&self) -> usize {
        match self.done {
            // An unsignaled READ or atomic, that a later completion vouches for.
            None => usize::MAX,
            Some(done) if done.status != WcStatus::Success => 0,
            // The length is that of the WRITE: nothing is placed here.
            Some(done) if done.opcode == WcOpcode::RecvRdmaWithImm => 0,
            Some(done) => done.byte_len as usize,
        }
    }

    /// Gives the bytes back to the program: whatever was placed is there from now on.
    /// Says what the program did to them meanwhile.
    pub(super) fn give_back(&mut self, qpn: Option<Qpn>) -> Option<StrictReport> {
        let received = self.received();
        let buffer = std::mem::replace(&mut self.buffer, Buffer::None);
        match buffer {
            Buffer::None | Buffer::Shared => None,
            Buffer::Source(hashes) => {
                let at = hashes.first_change(&self.load())?;
                Some(self.report(StrictRule::SendBufferChanged, qpn, self.source_text(at)))
            }
            Buffer::Target { original, placed } => {
                let changed = poison::first_change(&self.load());
                let mut bytes = original;
                if let Some(placed) = placed {
                    let end = received.min(bytes.len());
                    bytes[..end].copy_from_slice(&placed[..end]);
                }
                self.store(&bytes);
                let text = self.target_text(bytes.len(), changed?);
                Some(self.report(StrictRule::ReceiveBufferWritten, qpn, text))
            }
        }
    }

    /// Gives the bytes back without a look at them.
    pub(super) fn let_go(&mut self) {
        if let Buffer::Target { original, placed } =
            std::mem::replace(&mut self.buffer, Buffer::None)
        {
            self.store(&placed.unwrap_or(original));
        }
    }

    pub(super) fn report(
        &self,
        rule: StrictRule,
        qpn: impl Into<Option<Qpn>>,
        text: String,
    ) -> StrictReport {
        let report = StrictReport::new(rule, text).of(self.wr_id, self.at);
        report.on(qpn)
    }

    fn source_text(&self, at: usize) -> String {
        let (name, wr_id, by) = (self.name, self.wr_id, self.writer());
        format!(
            "the buffer of a {name} (wr_id {wr_id}) was changed{by}, in the 64 bytes from offset \
             {at} on, after it was posted and before its completion was polled."
        )
    }

    fn target_text(&self, len: usize, at: usize) -> String {
        let (name, wr_id, by) = (self.name, self.wr_id, self.writer());
        format!(
            "the program wrote into the {len} bytes of a {name} (wr_id {wr_id}){by}, first at \
             offset {at}, after it was posted and before its completion was polled."
        )
    }

    /// The caller that wrote, where that is known.
    fn writer(&self) -> String {
        self.written_at
            .map_or_else(String::new, |at| format!(" (at {at})"))
    }
}

/// The completion is that of a tag, or of an operation on tags: neither is in the ledger.
pub(super) fn is_of_tags(opcode: WcOpcode, flags: TmFlags) -> bool {
    let of_tag = flags.contains(TmFlags::MATCH) || flags.contains(TmFlags::DATA_VALID);
    of_tag || matches!(opcode, WcOpcode::TmAdd | WcOpcode::TmDel | WcOpcode::TmSync)
}

/// An operation's name in reports.
pub(super) fn name_of(opcode: WrOpcode) -> &'static str {
    match opcode {
        WrOpcode::Send | WrOpcode::SendWithImm | WrOpcode::SendWithInv => "SEND",
        WrOpcode::RdmaWrite => "RDMA WRITE",
        WrOpcode::RdmaWriteWithImm => "RDMA WRITE with immediate",
        WrOpcode::RdmaRead => "RDMA READ",
        WrOpcode::AtomicCmpAndSwp => "compare-and-swap",
        WrOpcode::AtomicFetchAndAdd => "fetch-and-add",
        WrOpcode::AtomicWrite => "ATOMIC WRITE",
        WrOpcode::Flush => "FLUSH",
        _ => "work request",
    }
}
