//! All outstanding work requests, and the bytes that they own.

use std::collections::{BTreeMap, VecDeque};

use urxe_core::cq::{Cqe, WcOpcode};
use urxe_core::error::WcStatus;
use urxe_core::memory::MemoryFault;
use urxe_core::mr::MrSpan;
use urxe_wire::{Lkey, Qpn};

use super::entry::{Buffer, Done, Entry, Queue};
use super::place::Place;
use super::ranges::{Owned, Owner, Range, Shared};
use super::report::StrictReport;
use super::rule::StrictRule;

/// Requests by queue, oldest first, and an index of their bytes.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    queues: BTreeMap<Queue, VecDeque<Entry>>,
    /// Targets that one request has for itself: only these are poisoned.
    targets: Owned,
    /// Targets that several requests share.
    shared: Shared,
    /// The buffers of outstanding sends.
    sources: Shared,
    /// The number of the next post.
    number: u64,
    /// The entry in which bytes were placed last.
    placed_last: Option<Owner>,
}

impl Ledger {
    /// A request is about to be posted. Its bytes are taken by [`Ledger::take_source`] or
    /// [`Ledger::take_target`].
    pub(super) fn begin(
        &mut self,
        queue: Queue,
        wr_id: u64,
        name: &'static str,
        is_signaled: bool,
        at: Place,
    ) {
        self.number += 1;
        self.queues.entry(queue).or_default().push_back(Entry {
            number: self.number,
            wr_id,
            name,
            at,
            is_signaled,
            done: None,
            pieces: Vec::new(),
            buffer: Buffer::None,
            is_orphan: false,
            written_at: None,
        });
    }

    /// The request that was begun last was refused.
    pub(super) fn cancel(&mut self, queue: Queue) {
        if let Some(entries) = self.queues.get_mut(&queue) {
            entries.pop_back();
        }
    }

    /// The request that was begun last, if it is not complete yet.
    pub(super) fn newest(&mut self, queue: Queue) -> Option<&mut Entry> {
        let newest = self.queues.get_mut(&queue)?.back_mut()?;
        newest.done.is_none().then_some(newest)
    }

    /// Requests without a polled completion, oldest first.
    pub(super) fn entries(&self, queue: Queue) -> impl DoubleEndedIterator<Item = &Entry> {
        self.queues.get(&queue).into_iter().flatten()
    }

    pub(super) fn len(&self, queue: Queue) -> usize {
        self.queues.get(&queue).map_or(0, VecDeque::len)
    }

    /// The newest request reads its bytes. Returns true if they belong to a request that
    /// writes them.
    ///
    /// With a fence it waits for the READs and atomics before it on its queue: so it may
    /// pass on what these bring.
    pub(super) fn take_source(&mut self, queue: Queue, is_fenced: bool) -> bool {
        let ranges = self.newest_ranges(queue);
        let (mut clashes, mut is_watched) = (false, true);
        for &range in &ranges {
            while let Some(owner) = self.targets.overlapping(range) {
                is_watched = false;
                if !is_fenced || owner.queue != queue {
                    clashes = true;
                    break;
                }
                self.share(owner);
            }
            is_watched &= !self.shared.overlaps(range);
        }
        if let Some(entry) = self.newest(queue).filter(|e| !e.pieces.is_empty())
            && is_watched
        {
            entry.remember();
            for range in ranges {
                self.sources.insert(range);
            }
        }
        clashes
    }

    /// The newest request writes its bytes: they are poisoned, if no other request needs
    /// them too.
    pub(super) fn take_target(&mut self, queue: Queue) {
        let ranges = self.newest_ranges(queue);
        let Some(number) = self.newest(queue).map(|entry| entry.number) else {
            return;
        };
        let within = (1..ranges.len()).any(|i| ranges[..i].iter().any(|r| r.overlaps(ranges[i])));
        let mut is_shared = within;
        for &range in &ranges {
            while let Some(owner) = self.targets.overlapping(range) {
                self.share(owner);
                is_shared = true;
            }
            // The READ's answer comes after the send, on the same QP. It is not the
            // program that changes what is sent.
            if self.sources.overlaps(range) {
                self.unwatch_sources(range);
                is_shared = true;
            }
            is_shared |= self.shared.overlaps(range);
        }
        if is_shared {
            for range in ranges {
                self.shared.insert(range);
            }
            if let Some(entry) = self.newest(queue) {
                entry.buffer = Buffer::Shared;
            }
            return;
        }
        if let Some(entry) = self.newest(queue).filter(|e| !e.pieces.is_empty()) {
            entry.poison();
            let pieces = entry.pieces.clone();
            for piece in pieces {
                let owner = Owner {
                    queue,
                    number,
                    offset: piece.offset,
                };
                self.targets.insert(Range::of(piece.span), owner);
            }
        }
    }

    /// Bytes of a message or a result arrived. Returns false if no entry owns the place.
    pub(super) fn place(&mut self, span: MrSpan, bytes: &[u8]) -> Result<bool, MemoryFault> {
        let found = self.targets.covering(Range::of(span));
        self.placed_last = found.map(|(owner, _)| owner);
        let Some((owner, offset)) = found else {
            return Ok(false);
        };
        if let Some(entry) = self.entry_mut(owner) {
            entry.place(offset, bytes);
        }
        Ok(true)
    }

    /// A peer writes here: what the program's requests have here cannot be watched.
    pub(super) fn on_peer_write(&mut self, span: MrSpan) {
        let range = Range::of(span);
        while let Some(owner) = self.targets.overlapping(range) {
            self.share(owner);
        }
        if self.sources.overlaps(range) {
            self.unwatch_sources(range);
        }
    }

    /// A completion was made for a request of this queue.
    pub(super) fn complete(&mut self, queue: Queue, cqe: &Cqe) -> Option<StrictReport> {
        let is_success = cqe.status == WcStatus::Success;
        let placed_last = self.placed_last.take();
        let entries = self.queues.get_mut(&queue)?;
        let may_be = |entry: &Entry| {
            entry.done.is_none()
                && entry.wr_id == cqe.wr_id
                && (entry.is_signaled || !queue.is_send() || !is_success)
        };
        let first = || entries.iter().position(may_be);
        let place = match queue {
            Queue::Send(_) | Queue::Recv(_) => first(),
            // In any order: a message's last bytes were placed just now, and one without
            // bytes took a receive that has none.
            Queue::Shared(_) => {
                let is_placed = cqe.opcode != WcOpcode::RecvRdmaWithImm;
                let has_bytes = cqe.byte_len > 0 && is_placed;
                let last = placed_last.filter(|last| last.queue == queue && has_bytes);
                let is_last = |entry: &Entry| last.is_some_and(|last| last.number == entry.number);
                let is_empty = |entry: &Entry| last.is_none() && !entry.has_placed();
                let mut entries = entries.iter();
                let meant = entries.position(|e| may_be(e) && (is_last(e) || is_empty(e)));
                meant.or_else(first)
            }
        }?;
        let entry = &mut entries[place];
        entry.done = Some(Done {
            qpn: cqe.qpn,
            status: cqe.status,
            opcode: cqe.opcode,
            byte_len: cqe.byte_len,
        });
        let failed_for_it = entry.is_orphan && cqe.status == WcStatus::LocProtErr;
        failed_for_it.then(|| entry.report(StrictRule::MrInUse, cqe.qpn, orphan_text(entry)))
    }

    /// The program polled a completion of a QP: the request, and in a queue of the QP's own
    /// those before it, are the program's again. Hands out each, and what was found out
    /// about it.
    pub(super) fn poll(
        &mut self,
        queue: Queue,
        qpn: Qpn,
        wr_id: u64,
        mut each: impl FnMut(&Entry, Option<StrictReport>),
    ) {
        let Some(entries) = self.queues.get(&queue) else {
            return;
        };
        let found = entries.iter().position(|entry| {
            entry.wr_id == wr_id && entry.done.is_some_and(|done| done.qpn == qpn)
        });
        let Some(last) = found else { return };
        let first = if queue.qpn().is_some() { 0 } else { last };
        for _ in first..=last {
            let entries = self.queues.get_mut(&queue);
            let Some(mut entry) = entries.and_then(|entries| entries.remove(first)) else {
                return;
            };
            self.unindex(&entry);
            let report = entry.give_back(Some(qpn));
            each(&entry, report);
        }
    }

    /// A QP goes: what it completed from a shared queue is not polled any more.
    pub(super) fn forget_done(&mut self, queue: Queue, qpn: Qpn) {
        let entries = self.queues.remove(&queue).unwrap_or_default();
        let is_gone = |entry: &Entry| entry.done.is_some_and(|done| done.qpn == qpn);
        let (gone, stay) = entries.into_iter().partition(is_gone);
        self.queues.insert(queue, stay);
        let gone: VecDeque<Entry> = gone;
        for mut entry in gone {
            self.unindex(&entry);
            entry.let_go();
        }
    }

    pub(super) fn forget(&mut self, queue: Queue) -> VecDeque<Entry> {
        let mut entries = self.queues.remove(&queue).unwrap_or_default();
        for entry in &mut entries {
            self.unindex(entry);
            entry.let_go();
        }
        entries
    }

    /// A region goes. Its bytes are the program's from now on; `is_under_way` knows of
    /// each request whether the adapter still needs it, given its distance from the
    /// newest of its queue.
    pub(super) fn deregister(
        &mut self,
        lkey: Lkey,
        is_under_way: impl Fn(Queue, usize) -> bool,
    ) -> Vec<StrictReport> {
        let mut reports = Vec::new();
        let queues: Vec<Queue> = self.queues.keys().copied().collect();
        for queue in queues {
            let mut entries = self.queues.remove(&queue).unwrap_or_default();
            let len = entries.len();
            for (place, entry) in entries.iter_mut().enumerate() {
                if !entry.pieces.iter().any(|piece| piece.lkey == lkey) {
                    continue;
                }
                self.unindex(entry);
                reports.extend(entry.give_back(queue.qpn()));
                entry.pieces.clear();
                let is_open = entry.done.is_none() && is_under_way(queue, len - place);
                if !is_open {
                    continue;
                }
                entry.is_orphan = true;
                // A receive that no message comes for does no harm: its completion tells.
                if queue.is_send() {
                    let text = orphan_text(entry);
                    reports.push(entry.report(StrictRule::MrInUse, queue.qpn(), text));
                }
            }
            self.queues.insert(queue, entries);
        }
        reports
    }

    /// The request that has some of these bytes for itself, and whether it writes them.
    pub(super) fn owner_of(&self, range: Range) -> Option<(Queue, &Entry)> {
        let owner = self.targets.overlapping(range)?;
        let entries = self.queues.get(&owner.queue)?;
        let place = entries.binary_search_by_key(&owner.number, |entry| entry.number);
        Some((owner.queue, &entries[place.ok()?]))
    }

    /// The program writes to these bytes, by a call of the library.
    pub(super) fn note_write(&mut self, range: Range, at: Place) {
        for entry in self.queues.values_mut().flatten() {
            let mut ranges = entry.pieces.iter().map(|piece| Range::of(piece.span));
            if ranges.any(|piece| piece.overlaps(range)) {
                entry.written_at = Some(at);
            }
        }
    }

    fn newest_ranges(&mut self, queue: Queue) -> Vec<Range> {
        let newest = self.newest(queue);
        let pieces = newest.map(|entry| entry.pieces.iter());
        let ranges = pieces.into_iter().flatten();
        ranges.map(|piece| Range::of(piece.span)).collect()
    }

    fn entry_mut(&mut self, owner: Owner) -> Option<&mut Entry> {
        let entries = self.queues.get_mut(&owner.queue)?;
        let place = entries.binary_search_by_key(&owner.number, |entry| entry.number);
        entries.get_mut(place.ok()?)
    }

    /// Others need a target too: it is not poisoned any more.
    fn share(&mut self, owner: Owner) {
        let Some(entry) = self.entry_mut(owner) else {
            return;
        };
        entry.let_go();
        entry.buffer = Buffer::Shared;
        let pieces = entry.pieces.clone();
        for piece in pieces {
            let range = Range::of(piece.span);
            self.targets.remove(range);
            self.shared.insert(range);
        }
    }

    fn unwatch_sources(&mut self, range: Range) {
        let entries = self.queues.values_mut().flatten();
        for entry in entries.filter(|entry| matches!(entry.buffer, Buffer::Source(_))) {
            if entry
                .pieces
                .iter()
                .any(|piece| Range::of(piece.span).overlaps(range))
            {
                for piece in &entry.pieces {
                    self.sources.remove(Range::of(piece.span));
                }
                entry.buffer = Buffer::None;
            }
        }
    }

    fn unindex(&mut self, entry: &Entry) {
        for piece in &entry.pieces {
            let range = Range::of(piece.span);
            match entry.buffer {
                Buffer::Source(_) => self.sources.remove(range),
                Buffer::Target { .. } => self.targets.remove(range),
                Buffer::Shared => self.shared.remove(range),
                Buffer::None => {}
            }
        }
    }
}

fn orphan_text(entry: &Entry) -> String {
    format!(
        "memory of a {} (wr_id {}) was deregistered before the request was complete.",
        entry.name, entry.wr_id
    )
}
