//! Strict mode, and a network that watches its programs, between the core and what the core works on: memory and completion
//! queues.

use core::sync::atomic::AtomicU32;
use std::cell::RefCell;
use std::sync::Arc;

use urxe_core::cq::{CqId, CqOverrun, CqSink, Cqe};
use urxe_core::memory::{Memory, MemoryFault};
use urxe_core::mr::MrSpan;
use urxe_wire::Qpn;

use super::Strict;
use super::ranges::Range;
use crate::mem::UserMemory;
use crate::network::{Act, AtomicOp, Network};
use crate::queues::CqTable;
use crate::wc::Wc;

/// What watches the core's work. Usually nothing does.
#[derive(Debug)]
pub(crate) struct Watching {
    pub(crate) strict: Option<RefCell<Strict>>,
    pub(crate) network: Option<Arc<dyn Network>>,
}

impl Watching {
    pub(crate) fn note(&self, act: &Act<'_>) {
        if let Some(network) = &self.network {
            network.note(act);
        }
    }
}

/// The program's memory, with what watches before it: one branch tells.
#[derive(Debug)]
pub(crate) struct WatchedMemory<'a>(pub(crate) Option<&'a Watching>);

macro_rules! ask {
    ($($method:ident($($name:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Memory for WatchedMemory<'_> {
            $(#[inline]
            fn $method(&self, $($name: $type),*) -> Result<$result, MemoryFault> {
                match self.0 {
                    None => UserMemory.$method($($name),*),
                    Some(watching) => watching.$method($($name),*),
                }
            })*
        }
    };
}

ask! {
    copy_out(span: MrSpan, dst: &mut [u8]) -> ();
    copy_in(span: MrSpan, src: &[u8]) -> ();
    place_write(qpn: Qpn, span: MrSpan, src: &[u8]) -> ();
    copy_words_in(span: MrSpan, src: &[AtomicU32]) -> ();
    place_written_words(qpn: Qpn, span: MrSpan, src: &[AtomicU32]) -> ();
    compare_swap(span: MrSpan, compare: u64, swap: u64) -> u64;
    fetch_add(span: MrSpan, add: u64) -> u64;
    persist(span: MrSpan) -> ();
}

impl Memory for Watching {
    fn copy_out(&self, span: MrSpan, dst: &mut [u8]) -> Result<(), MemoryFault> {
        match &self.strict {
            Some(strict) => StrictMemory(strict).copy_out(span, dst),
            None => UserMemory.copy_out(span, dst),
        }
    }

    fn copy_in(&self, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault> {
        match &self.strict {
            Some(strict) => StrictMemory(strict).copy_in(span, src),
            None => UserMemory.copy_in(span, src),
        }?;
        self.note_placed(span, src);
        Ok(())
    }

    fn place_write(&self, qpn: Qpn, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault> {
        match &self.strict {
            Some(strict) => StrictMemory(strict).place_write(qpn, span, src),
            None => UserMemory.place_write(qpn, span, src),
        }?;
        self.note_placed(span, src);
        Ok(())
    }

    fn compare_swap(&self, span: MrSpan, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        let old = match &self.strict {
            Some(strict) => StrictMemory(strict).compare_swap(span, compare, swap),
            None => UserMemory.compare_swap(span, compare, swap),
        }?;
        self.note_atomic(span, old, AtomicOp::CompareSwap(compare, swap));
        Ok(old)
    }

    fn fetch_add(&self, span: MrSpan, add: u64) -> Result<u64, MemoryFault> {
        let old = match &self.strict {
            Some(strict) => StrictMemory(strict).fetch_add(span, add),
            None => UserMemory.fetch_add(span, add),
        }?;
        self.note_atomic(span, old, AtomicOp::FetchAdd(add));
        Ok(old)
    }

    fn persist(&self, span: MrSpan) -> Result<(), MemoryFault> {
        match &self.strict {
            Some(strict) => StrictMemory(strict).persist(span),
            None => UserMemory.persist(span),
        }
    }
}

impl Watching {
    fn note_placed(&self, span: MrSpan, bytes: &[u8]) {
        let at = span.host_addr();
        self.note(&Act::Placed { at, bytes });
    }

    fn note_atomic(&self, span: MrSpan, old: u64, operation: AtomicOp) {
        let at = span.host_addr();
        self.note(&Act::Atomic { at, old, operation });
    }
}

/// What arrives is kept from the program as long as the rules allow.
struct StrictMemory<'a>(&'a RefCell<Strict>);

impl Memory for StrictMemory<'_> {
    fn copy_out(&self, span: MrSpan, dst: &mut [u8]) -> Result<(), MemoryFault> {
        self.before_access(span);
        UserMemory.copy_out(span, dst)
    }

    fn copy_in(&self, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault> {
        let strict = &mut *self.0.borrow_mut();
        strict.writes.place_overlapping(Range::of(span));
        if strict.ledger.place(span, src)? {
            return Ok(());
        }
        UserMemory.copy_in(span, src)
    }

    fn place_write(&self, qpn: Qpn, span: MrSpan, src: &[u8]) -> Result<(), MemoryFault> {
        let strict = &mut *self.0.borrow_mut();
        strict.ledger.on_peer_write(span);
        strict
            .writes
            .write(qpn, span, src, strict.now, &mut strict.random)
    }

    fn compare_swap(&self, span: MrSpan, compare: u64, swap: u64) -> Result<u64, MemoryFault> {
        self.before_atomic(span);
        UserMemory.compare_swap(span, compare, swap)
    }

    fn fetch_add(&self, span: MrSpan, add: u64) -> Result<u64, MemoryFault> {
        self.before_atomic(span);
        UserMemory.fetch_add(span, add)
    }

    fn persist(&self, span: MrSpan) -> Result<(), MemoryFault> {
        self.before_access(span);
        UserMemory.persist(span)
    }
}

impl StrictMemory<'_> {
    fn before_access(&self, span: MrSpan) {
        let writes = &mut self.0.borrow_mut().writes;
        writes.place_overlapping(Range::of(span));
    }

    /// An atomic tells the program about the WRITEs before it: all must be there.
    fn before_atomic(&self, span: MrSpan) {
        let strict = &mut *self.0.borrow_mut();
        strict.ledger.on_peer_write(span);
        strict.writes.place_all(&mut strict.random);
    }
}

/// The completion queues, which get completions later with strict mode on.
#[derive(Debug)]
pub(crate) struct WatchedCqs<'a> {
    pub(crate) watching: Option<&'a Watching>,
    pub(crate) cqs: &'a mut CqTable,
}

impl CqSink for WatchedCqs<'_> {
    #[inline]
    fn push(&mut self, cq: CqId, cqe: Cqe) -> Result<(), CqOverrun> {
        match self.watching {
            None => self.cqs.push(cq, cqe),
            Some(watching) => self.push_watched(watching, cq, cqe),
        }
    }
}

impl WatchedCqs<'_> {
    #[cold]
    fn push_watched(&mut self, watching: &Watching, cq: CqId, cqe: Cqe) -> Result<(), CqOverrun> {
        match &watching.strict {
            None => self.cqs.push(cq, cqe),
            Some(strict) => self.push_later(strict, cq, cqe),
        }?;
        watching.note(&Act::Completed(&Wc::from(cqe)));
        Ok(())
    }

    fn push_later(
        &mut self,
        strict: &RefCell<Strict>,
        cq: CqId,
        cqe: Cqe,
    ) -> Result<(), CqOverrun> {
        let strict = &mut *strict.borrow_mut();
        strict.on_completion(&cqe);
        strict
            .completions
            .push(cq, cqe, strict.now, self.cqs, &mut strict.random)
    }
}
