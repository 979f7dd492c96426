//! The side that reads.

use core::sync::atomic::AtomicU32;
use std::io;
use std::os::fd::OwnedFd;

use crate::layout::{
    ASLEEP_AT, CLOSED_AT, ENDED_AT, Geometry, HEAD_AT, Mark, Place, RECORD_MAX, WORD, Word,
    room_for,
};
use crate::memory::Memory;
use crate::sync::{Ordering, fence};

/// What a look at the ring found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pop {
    /// Nothing.
    Empty,
    /// A record: its bytes were copied, or lie there still.
    Record {
        /// How many bytes.
        len: usize,
        /// What came with them.
        mark: Mark,
    },
    /// All was read, and no more comes.
    Closed,
    /// The producer has written nonsense. Nothing more is read.
    Broken,
}

/// The reading end of a ring. Dropping it tells the writer.
#[derive(Debug)]
pub struct Consumer {
    memory: Memory,
    geometry: Geometry,
    /// Where the chunk of the next record begins.
    start: usize,
    /// Where that record is.
    head: Place,
    /// Bytes of that record, if it was found to be one.
    found: usize,
    /// Bytes that were read and are not given back yet.
    untold: usize,
    is_broken: bool,
}

impl Consumer {
    /// Opens a ring that another process made. Once: a ring has one reader.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is something else, has a reader or was taken back, or what the system says.
    pub fn open(memory: OwnedFd) -> io::Result<Consumer> {
        Consumer::open_sized(memory, Geometry::USUAL)
    }

    pub(crate) fn open_sized(memory: OwnedFd, geometry: Geometry) -> io::Result<Consumer> {
        let memory = Memory::open(memory, &geometry)?;
        Ok(Consumer::on(memory, geometry))
    }

    /// Reads from memory that a producer writes to, or anything else does.
    pub(crate) fn on(memory: Memory, geometry: Geometry) -> Consumer {
        Consumer {
            memory,
            geometry,
            start: geometry.start(0),
            head: Place::default(),
            found: 0,
            untold: 0,
            is_broken: false,
        }
    }

    /// Copies the next record to the beginning of `out`, which should have room for [`RECORD_MAX`] bytes: a longer record than fits there breaks the ring.
    #[inline]
    pub fn pop(&mut self, out: &mut [u8]) -> Pop {
        let pop = self.peek();
        if let Pop::Record { len, .. } = pop {
            let Some(out) = out.get_mut(..len) else {
                return self.break_off();
            };
            self.copy(0, out);
            self.advance();
        }
        pop
    }

    /// Finds the next record, and leaves it there: [`Consumer::copy`] and [`Consumer::words`] read it, until [`Consumer::advance`].
    #[inline]
    pub fn peek(&mut self) -> Pop {
        self.found = 0;
        let word = self.look();
        match Word::unpack(word) {
            Word::Record { len, mark } if !self.is_broken => self.find(len, mark),
            Word::Nothing if !self.is_broken => self.nothing(),
            word => self.go_on(word),
        }
    }

    /// Copies bytes of the record that [`Consumer::peek`] found, from the byte at `at` on.
    ///
    /// # Panics
    /// If it has not so many.
    #[inline]
    pub fn copy(&self, at: usize, out: &mut [u8]) {
        let is_inside = at <= self.found && out.len() <= self.found - at;
        assert!(is_inside, "behind the record");
        self.memory.read(self.bytes_at() + at, out);
    }

    /// The record that [`Consumer::peek`] found, where it lies, without what is left behind the last whole word: the producer may change it at any
    /// time.
    #[inline]
    pub fn words(&self) -> &[AtomicU32] {
        self.memory.words(self.bytes_at(), self.found / 4)
    }

    /// The record that [`Consumer::peek`] found was read.
    #[inline]
    pub fn advance(&mut self) {
        let room = room_for(self.found);
        self.found = 0;
        self.head.offset += room;
        self.untold += room;
        if self.untold >= self.geometry.tell {
            self.release();
        }
    }

    /// True if there is nothing to read now, not even an end.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.look() == 0 && self.memory.flag(ENDED_AT).load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn look(&self) -> u64 {
        let word = self.memory.word(self.start + self.head.offset);
        word.load(Ordering::Acquire)
    }

    #[inline]
    fn find(&mut self, len: usize, mark: Mark) -> Pop {
        let room = room_for(len);
        if len > RECORD_MAX || self.head.offset + room > self.geometry.limit() {
            return self.break_off();
        }
        self.found = len;
        Pop::Record { len, mark }
    }

    /// Where the bytes of the next record are.
    #[inline]
    fn bytes_at(&self) -> usize {
        self.start + self.head.offset + WORD
    }

    #[inline]
    fn nothing(&self) -> Pop {
        if self.memory.flag(ENDED_AT).load(Ordering::Acquire) == 0 {
            return Pop::Empty;
        }
        // What was written before it ended may have come after the first look.
        if self.look() == 0 {
            Pop::Closed
        } else {
            Pop::Empty
        }
    }

    /// To the next chunk. Once only: there is a record at the beginning of each, or nothing yet.
    #[cold]
    fn go_on(&mut self, word: Word) -> Pop {
        let Word::Next(chunk) = word else {
            return self.break_off();
        };
        if self.is_broken || self.head.offset == 0 || chunk >= self.geometry.chunks {
            return self.break_off();
        }
        self.start = self.geometry.start(chunk);
        self.head = Place {
            left: self.head.left.wrapping_add(1),
            offset: 0,
        };
        // The producer may wait for this.
        self.release();
        self.peek()
    }

    fn break_off(&mut self) -> Pop {
        self.found = 0;
        self.is_broken = true;
        self.close();
        Pop::Broken
    }

    /// Gives what was read back to the producer: after a number of records.
    #[inline]
    pub fn release(&mut self) {
        self.untold = 0;
        let head = self.head.pack();
        self.memory.word(HEAD_AT).store(head, Ordering::Release);
    }

    /// Before this side sleeps: the producer is to wake it. False if there is something to read; then nothing was said.
    pub fn doze(&mut self) -> bool {
        let asleep = self.memory.flag(ASLEEP_AT);
        asleep.store(1, Ordering::Relaxed);
        // See `Producer::must_wake`.
        fence(Ordering::SeqCst);
        let is_quiet = self.look() == 0 && self.memory.flag(ENDED_AT).load(Ordering::Acquire) == 0;
        if !is_quiet {
            asleep.store(0, Ordering::Relaxed);
        }
        is_quiet || self.is_broken
    }

    /// The producer does not know any more that it is to wake this side: it did so once.
    #[inline]
    pub fn is_roused(&self) -> bool {
        self.memory.flag(ASLEEP_AT).load(Ordering::Relaxed) == 0
    }

    /// This side is awake.
    pub fn rouse(&mut self) {
        self.memory.flag(ASLEEP_AT).store(0, Ordering::Relaxed);
    }

    /// Tells the producer that nothing is read any more.
    pub fn close(&mut self) {
        self.memory.flag(CLOSED_AT).store(1, Ordering::Release);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if self.memory.is_own() {
            self.close();
        }
    }
}
