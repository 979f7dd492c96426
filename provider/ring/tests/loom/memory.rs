//! The shared memory, of loom's parts: it fails a test in which the bytes of a record are copied out while they are copied
//! in, or without having seen the word that says that they are there.

use core::ops::Range;
use std::io;
use std::os::fd::OwnedFd;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::{ASLEEP_AT, CLOSED_AT, ENDED_AT, Geometry, HEAD_AT, LINE, RECORDS_AT, WORD};

/// One side's view of it.
pub(crate) struct Memory(Arc<Parts>);

struct Parts {
    ended: AtomicU32,
    asleep: AtomicU32,
    closed: AtomicU32,
    head: AtomicU64,
    lines: Vec<Line>,
}

/// Where a record may begin. Those of the tests end there, too.
struct Line {
    word: AtomicU64,
    bytes: UnsafeCell<[u8; LINE - WORD]>,
}

impl Memory {
    /// Both sides' views. What earlier records left there is nonsense, except for the first word.
    pub(crate) fn both(geometry: &Geometry) -> (Memory, Memory) {
        let line = |index| Line {
            word: AtomicU64::new(if index == 0 { 0 } else { u64::MAX }),
            bytes: UnsafeCell::new([0xee; LINE - WORD]),
        };
        let parts = Arc::new(Parts {
            ended: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            head: AtomicU64::new(0),
            lines: (0..geometry.records() / LINE).map(line).collect(),
        });
        (Memory(parts.clone()), Memory(parts))
    }

    pub(crate) fn create(_geometry: &Geometry) -> io::Result<(Memory, OwnedFd)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn open(_memory: OwnedFd, _geometry: &Geometry) -> io::Result<Memory> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn line(&self, at: usize) -> &Line {
        let at = at - RECORDS_AT;
        assert!(at.is_multiple_of(LINE), "no beginning of a record");
        &self.0.lines[at / LINE]
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        match at {
            HEAD_AT => &self.0.head,
            _ => &self.line(at).word,
        }
    }

    pub(crate) fn flag(&self, at: usize) -> &AtomicU32 {
        match at {
            ENDED_AT => &self.0.ended,
            ASLEEP_AT => &self.0.asleep,
            CLOSED_AT => &self.0.closed,
            _ => panic!("no flag at {at}"),
        }
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        self.line(at - WORD).bytes.with_mut(|line| {
            // SAFETY: loom fails the test if there is another access at the same time.
            unsafe { (&mut *line)[..bytes.len()].copy_from_slice(bytes) };
        });
    }

    /// # Safety
    /// As of the memory in use.
    pub(crate) unsafe fn part_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.line(range.start - WORD).bytes.with_mut(|line| {
            // SAFETY: loom fails the test if there is another access now; later ones are seen with the next part, or by the reader.
            unsafe { &mut (&mut *line)[..range.len()] }
        })
    }

    pub(crate) fn share(&self) -> Memory {
        Memory(self.0.clone())
    }

    pub(crate) fn is_same(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        self.line(at - WORD).bytes.with(|line| {
            // SAFETY: loom fails the test if there is a write at the same time.
            unsafe { out.copy_from_slice(&(&*line)[..out.len()]) };
        });
    }

    /// Loom knows no words that are bytes, too: it is asked whether they may be read now.
    pub(crate) fn words(&self, at: usize, _words: usize) -> &[core::sync::atomic::AtomicU32] {
        self.line(at - WORD).bytes.with(|_| &[])
    }

    pub(crate) fn is_own(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}
