//! Strict mode between the core and what the core works on: memory and completion
//! queues.

use std::cell::RefCell;

use urxe_core::cq::{CqId, CqOverrun, CqSink, Cqe};
use urxe_core::memory::{Memory, MemoryFault};
use urxe_core::mr::MrSpan;
use urxe_wire::Qpn;

use super::Strict;
use super::ranges::Range;
use crate::mem::UserMemory;
use crate::queues::CqTable;

/// The program's memory, with strict mode before it if that is on: one branch tells.
#[derive(Debug)]
pub(crate) struct WatchedMemory<'a>(pub(crate) Option<&'a RefCell<Strict>>);

macro_rules! ask {
    ($($method:ident($($name:ident: $type:ty),*) -> $result:ty;)*) => {
        impl Memory for WatchedMemory<'_> {
            $(#[inline]
            fn $method(&self, $($name: $type),*) -> Result<$result, MemoryFault> {
                match self.0 {
                    None => UserMemory.$method($($name),*),
                    Some(strict) => StrictMemory(strict).$method($($name),*),
                }
            })*
        }
    };
}

ask! {
    copy_out(span: MrSpan, dst: &mut [u8]) -> ();
    copy_in(span: MrSpan, src: &[u8]) -> ();
    place_write(qpn: Qpn, span: MrSpan, src: &[u8]) -> ();
    compare_swap(span: MrSpan, compare: u64, swap: u64) -> u64;
    fetch_add(span: MrSpan, add: u64) -> u64;
    persist(span: MrSpan) -> ();
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
    pub(crate) strict: Option<&'a RefCell<Strict>>,
    pub(crate) cqs: &'a mut CqTable,
}

impl CqSink for WatchedCqs<'_> {
    #[inline]
    fn push(&mut self, cq: CqId, cqe: Cqe) -> Result<(), CqOverrun> {
        match self.strict {
            None => self.cqs.push(cq, cqe),
            Some(strict) => self.push_later(strict, cq, cqe),
        }
    }
}

impl WatchedCqs<'_> {
    #[cold]
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
