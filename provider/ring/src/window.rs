//! Memory of a ring that is lent: records are made where they will lie, and not copied there.

use core::ops::Range;

use crate::layout::{LINE, WORD};
use crate::memory::Memory;

/// Memory behind the last record of a ring, lent by its producer ([`Producer::lend`](crate::Producer::lend)). Records are made there one
/// behind the other, each [`Window::BEFORE`] bytes behind a multiple of [`Window::ALIGN`]; then the window goes back, and the producer
/// publishes them ([`Producer::publish`](crate::Producer::publish)).
#[derive(Debug)]
pub struct Window {
    memory: Memory,
    /// What is lent of it.
    lent: Range<usize>,
}

impl Window {
    /// A record begins so many bytes behind a multiple of [`Window::ALIGN`].
    pub const BEFORE: usize = WORD;
    /// See [`Window::BEFORE`].
    pub const ALIGN: usize = LINE;

    pub(crate) fn new(memory: Memory) -> Window {
        Window { memory, lent: 0..0 }
    }

    /// Bytes that are lent, the words before the records counted.
    #[inline]
    pub fn len(&self) -> usize {
        self.lent.len()
    }

    /// Nothing is lent.
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    /// Bytes of the window. They are what was there before: an older record, or zeros.
    ///
    /// # Panics
    /// If the window is shorter, or there is no room for a record's word before them.
    #[inline]
    pub fn part_mut(&mut self, part: Range<usize>) -> &mut [u8] {
        assert!(
            Window::BEFORE <= part.start && part.start <= part.end && part.end <= self.len(),
            "outside of the window"
        );
        let start = self.lent.start;
        // SAFETY: while something is lent, its producer writes nothing and publishes nothing, and lends nothing to another window. It lies in a
        // chunk that the consumer has left, behind the word of the next record, which the consumer looks at; the words behind that are not
        // looked at before the records are published.
        unsafe { self.memory.part_mut(start + part.start..start + part.end) }
    }

    pub(crate) fn is_of(&self, memory: &Memory) -> bool {
        self.memory.is_same(memory)
    }

    pub(crate) fn set(&mut self, lent: Range<usize>) {
        self.lent = lent;
    }
}
