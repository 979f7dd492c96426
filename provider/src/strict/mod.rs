//! Strict mode (`URXE_STRICT=1`): an adapter that hands out no luck.
//!
//! Verbs leave much to chance: when a completion comes, in which order bytes appear, what
//! a buffer holds while it is posted. Programs that rely on it work until they meet another
//! adapter. Here chance is used up: everything comes as late and in as odd an order as the
//! rules allow, and what breaks the rules is reported in words. docs/STRICT.md describes
//! each rule.
//!
//! Everything is behind the engine's lock. With strict mode off none of this runs: the
//! engine asks once a post, a poll and a turn whether it is on.

mod delay;
mod entry;
mod hash;
mod hooks;
mod ledger;
mod mode;
mod place;
mod placement;
mod poison;
mod post;
mod ranges;
mod report;
mod rule;
mod watch;

use std::collections::{BTreeMap, HashMap};

use urxe_core::cq::{CqId, Cqe, WcOpcode};
use urxe_core::mix::SplitMix64;
use urxe_core::mr::PdId;
use urxe_core::srq::{SrqId, SrqInit};
use urxe_core::table::QpIndex;
use urxe_core::{QpInit, Time};
use urxe_wire::Qpn;

pub(crate) use entry::Queue;
pub(crate) use hooks::{WatchedCqs, WatchedMemory, Watching};
pub use mode::StrictMode;
pub(crate) use place::Place;
pub use place::{Caller, Callers, name_callers};
pub(crate) use post::Watched;
pub use report::StrictReport;
pub use rule::StrictRule;

use crate::host::environment;
use crate::queues::CqTable;
use crate::wc::Wc;
use delay::HeldCompletions;
use entry::is_of_tags;
use ledger::Ledger;
use placement::HeldWrites;
use report::Reports;

/// What must be known of a QP.
#[derive(Debug)]
struct QpNotes {
    index: QpIndex,
    pd: PdId,
    send_cq: CqId,
    recv_cq: CqId,
    max_send_wr: u32,
    srq: Option<SrqId>,
    sq_sig_all: bool,
    /// Messages that were refused since a receive was last posted.
    refused: u64,
    /// Times in a row that the peer asked to wait.
    rnr_in_a_row: u32,
}

#[derive(Debug)]
pub(crate) struct Strict {
    /// When the present holder of the engine's lock began.
    now: Time,
    random: SplitMix64,
    reports: Reports,
    ledger: Ledger,
    writes: HeldWrites,
    completions: HeldCompletions,
    qps: BTreeMap<Qpn, QpNotes>,
    srqs: HashMap<SrqId, PdId>,
    /// Completions that a queue may have to take, and the program has not polled.
    expected: HashMap<CqId, usize>,
}

impl Strict {
    /// Strict mode, with a seed made from `fresh` if none is given anywhere.
    pub(crate) fn new(mode: StrictMode, seed: Option<u64>, fresh: u64) -> Strict {
        Strict {
            now: Time::ZERO,
            random: SplitMix64::new(
                seed.unwrap_or_else(|| environment::seed_of_context(None, fresh)),
            ),
            reports: Reports::new(mode),
            ledger: Ledger::default(),
            writes: HeldWrites::default(),
            completions: HeldCompletions::default(),
            qps: BTreeMap::new(),
            srqs: HashMap::new(),
            expected: HashMap::new(),
        }
    }

    /// What was found since the last call.
    pub(crate) fn take_reports(&mut self) -> Vec<StrictReport> {
        self.reports.take()
    }

    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Acknowledgements wait: what they would acknowledge is not placed yet.
    pub(crate) fn holds_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Lets come what was held back long enough. Returns true if there was any.
    pub(crate) fn release_due(&mut self, cqs: &mut CqTable) -> bool {
        let mut any = self
            .completions
            .release_due(self.now, cqs, &mut self.random);
        if self.writes.due().is_some_and(|due| due <= self.now) {
            self.writes.place_all(&mut self.random);
            any = true;
        }
        any
    }

    /// When [`Strict::release_due`] has something to do.
    pub(crate) fn due(&self) -> Option<Time> {
        [self.completions.due(), self.writes.due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Objects are about to be changed: nothing may be left that an earlier check allowed.
    pub(crate) fn settle(&mut self) {
        self.writes.place_all(&mut self.random);
    }

    /// Completions that were held back come now.
    pub(crate) fn settle_completions(&mut self, cqs: &mut CqTable) {
        self.completions.release_all(cqs, &mut self.random);
    }

    pub(crate) fn on_qp_created(&mut self, index: QpIndex, qpn: Qpn, init: &QpInit) {
        let notes = QpNotes {
            index,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            max_send_wr: init.cap.max_send_wr,
            srq: init.srq,
            sq_sig_all: init.sq_sig_all,
            refused: 0,
            rnr_in_a_row: 0,
        };
        self.qps.insert(qpn, notes);
    }

    /// Receives that several QPs share. (Those of the XRC kind are not watched: which of
    /// them a message takes is the sender's choice.)
    pub(crate) fn on_srq_created(&mut self, id: SrqId, init: &SrqInit) {
        if init.xrc.is_none() {
            self.srqs.insert(id, init.pd);
        }
    }

    pub(crate) fn on_srq_destroyed(&mut self, id: SrqId) {
        self.srqs.remove(&id);
        self.ledger.forget(Queue::Shared(id));
    }

    /// The core made a completion: it may not be in its queue for a while.
    fn on_completion(&mut self, cqe: &Cqe) {
        if is_of_tags(cqe.opcode, cqe.tm.flags) {
            return;
        }
        let queue = self.queue_of(cqe.qpn, cqe.opcode);
        if !queue.is_send() {
            // It tells the program about every WRITE before it.
            self.writes.place_of(cqe.qpn);
        } else if let Some(notes) = self.qps.get_mut(&cqe.qpn) {
            notes.rnr_in_a_row = 0;
        }
        if let Some(report) = self.ledger.complete(queue, cqe) {
            self.reports.add(report);
        }
    }

    /// The program gets a completion: from now on the buffers are its own.
    pub(crate) fn on_polled(&mut self, wc: &Wc) {
        if is_of_tags(wc.opcode, wc.tm.flags) {
            return;
        }
        let queue = self.queue_of(wc.qp_num, wc.opcode);
        let cq = self.cq_of(queue);
        let Strict {
            ledger,
            reports,
            expected,
            ..
        } = self;
        ledger.poll(queue, wc.qp_num, wc.wr_id, |entry, report| {
            if entry.is_signaled
                && let Some(expected) = cq.and_then(|cq| expected.get_mut(&cq))
            {
                *expected = expected.saturating_sub(1);
            }
            if let Some(report) = report {
                reports.add(report);
            }
        });
    }

    /// The queue that a QP's completed request was posted to.
    fn queue_of(&self, qpn: Qpn, opcode: WcOpcode) -> Queue {
        match (Queue::of(qpn, opcode), self.qps.get(&qpn)) {
            (Queue::Recv(_), Some(QpNotes { srq: Some(id), .. })) => Queue::Shared(*id),
            (own, _) => own,
        }
    }

    /// Where the completions of a queue go, if that is one place.
    pub(crate) fn cq_of(&self, queue: Queue) -> Option<CqId> {
        let notes = self.qps.get(&queue.qpn()?)?;
        Some(if queue.is_send() {
            notes.send_cq
        } else {
            notes.recv_cq
        })
    }

    /// The protection domain that a queue's memory must be in.
    fn pd_of(&self, queue: Queue) -> Option<PdId> {
        match queue {
            Queue::Send(qpn) | Queue::Recv(qpn) => Some(self.qps.get(&qpn)?.pd),
            Queue::Shared(id) => self.srqs.get(&id).copied(),
        }
    }
}
