//! The side that writes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use crate::layout::{
    ASLEEP_AT, CLOSED_AT, ENDED_AT, Geometry, HEAD_AT, LINE, Mark, OPENED, OPENED_AT, Place,
    RECORD_MAX, TAKEN_BACK, WORD, Word, room_for,
};
use crate::memory::Memory;
use crate::sync::{Ordering, fence};
use crate::window::Window;

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Push {
    /// The consumer finds it.
    Done,
    /// There is no room: the consumer has not read for the length of the ring.
    Full,
    /// The consumer reads no more, or has written nonsense.
    Closed,
}

/// A place in what a producer writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position(Place);

/// The writing end of a ring. Dropping it tells the reader that no more comes.
#[derive(Debug)]
pub struct Producer {
    memory: Memory,
    geometry: Geometry,
    /// Where the chunk of the next record begins.
    start: usize,
    /// Where the next record goes. The word there is 0.
    tail: Place,
    /// How far the consumer had read when that was looked at last.
    head: Place,
    /// The chunks that hold what it had not read then, in order; the last is the one that is written. Has room for all: a push
    /// allocates nothing.
    used: VecDeque<u32>,
    /// The others, a bit each.
    free: u32,
    /// A window has what is behind the tail.
    is_lent: bool,
    is_broken: bool,
}

impl Producer {
    /// A new ring in memory of its own, and the descriptor by which a [`Consumer`](crate::Consumer) opens it. Nothing else leads to it: it has no name.
    ///
    /// # Errors
    /// What the system says: no memory, or too many descriptors.
    pub fn create() -> io::Result<(Producer, OwnedFd)> {
        Producer::create_sized(Geometry::USUAL)
    }

    pub(crate) fn create_sized(geometry: Geometry) -> io::Result<(Producer, OwnedFd)> {
        let (memory, descriptor) = Memory::create(&geometry)?;
        Ok((Producer::on(memory, geometry), descriptor))
    }

    /// Writes to memory that is all zeros but for the magic number.
    pub(crate) fn on(memory: Memory, geometry: Geometry) -> Producer {
        let mut used = VecDeque::with_capacity(geometry.chunks as usize);
        used.push_back(0);
        Producer {
            memory,
            geometry,
            start: geometry.start(0),
            tail: Place::default(),
            head: Place::default(),
            used,
            free: (u32::MAX >> (32 - geometry.chunks)) & !1,
            is_lent: false,
            is_broken: false,
        }
    }

    /// Writes a record.
    ///
    /// # Panics
    /// If it is longer than [`RECORD_MAX`], or its kind too large, or a window is out.
    #[inline]
    pub fn push(&mut self, mark: Mark, bytes: &[u8]) -> Push {
        assert!(
            bytes.len() <= RECORD_MAX && !self.is_lent,
            "no such record, or a window has the place"
        );
        let room = room_for(bytes.len());
        if self.tail.offset + room > self.geometry.limit() {
            match self.next_chunk() {
                Push::Done => {}
                end => return end,
            }
        }
        self.memory
            .write(self.start + self.tail.offset + WORD, bytes);
        self.publish(mark, bytes.len());
        Push::Done
    }

    /// A window, in which nothing is lent yet.
    pub fn window(&self) -> Window {
        Window::new(self.memory.share())
    }

    /// Lends a window the place of the next records: at least `len_min` bytes and room for a word, else at most `len_max`. Until [`Producer::end_loan`] no record can be
    /// written otherwise. False if there is no room, or the consumer reads no more: then nothing is lent.
    ///
    /// # Panics
    /// If something is lent already, or the window is of another ring.
    pub fn lend(&mut self, window: &mut Window, len_min: usize, len_max: usize) -> bool {
        assert!(
            !self.is_lent && window.is_of(&self.memory),
            "no window to lend to"
        );
        if self.is_closed() {
            return false;
        }
        let limit = self.geometry.limit();
        let len_min = len_min.max(LINE);
        if limit - self.tail.offset < len_min
            && (limit < len_min || self.next_chunk() != Push::Done)
        {
            return false;
        }
        let at = self.start + self.tail.offset;
        let len = len_max.max(len_min).min(limit - self.tail.offset);
        window.set(at..at + len);
        self.is_lent = true;
        true
    }

    /// Takes back what was lent. The bytes stay, for [`Producer::publish`].
    ///
    /// # Panics
    /// If the window is of another ring.
    pub fn end_loan(&mut self, window: &mut Window) {
        assert!(window.is_of(&self.memory), "the window of another ring");
        self.is_lent &= window.is_empty();
        window.set(0..0);
    }

    /// Gives the consumer a record that was made in a window: the one right behind the last record that was published, or written.
    ///
    /// # Panics
    /// If it is longer than [`RECORD_MAX`], or than what was lent can hold, or its kind too large, or the window is still out.
    #[inline]
    pub fn publish(&mut self, mark: Mark, len: usize) {
        assert!(
            len <= RECORD_MAX && mark.kind < Mark::KINDS,
            "no such record"
        );
        let room = room_for(len);
        let end = self.tail.offset + room;
        assert!(
            !self.is_lent && end <= self.geometry.limit(),
            "no place for a record"
        );
        let at = self.start + self.tail.offset;
        // First, as there may be anything from an earlier use.
        self.memory.word(at + room).store(0, Ordering::Relaxed);
        let word = Word::Record { len, mark };
        self.memory.word(at).store(word.pack(), Ordering::Release);
        self.tail.offset = end;
    }

    /// Goes on in the first chunk that the consumer has left.
    #[cold]
    fn next_chunk(&mut self) -> Push {
        if self.is_closed() || !self.look() {
            return Push::Closed;
        }
        let next = self.free.trailing_zeros();
        if next >= self.geometry.chunks {
            return Push::Full;
        }
        self.free &= !(1 << next);
        self.used.push_back(next);
        let at = self.start + self.tail.offset;
        self.start = self.geometry.start(next);
        self.memory.word(self.start).store(0, Ordering::Relaxed);
        let word = Word::Next(next).pack();
        self.memory.word(at).store(word, Ordering::Release);
        self.tail = Place {
            left: self.tail.left.wrapping_add(1),
            offset: 0,
        };
        Push::Done
    }

    /// Reads how far the consumer is, and takes back the chunks that it has left. False if what it says makes no sense.
    fn look(&mut self) -> bool {
        let head = Place::unpack(self.memory.word(HEAD_AT).load(Ordering::Acquire));
        let left = head.left.wrapping_sub(self.head.left) as usize;
        let is_here = head.left == self.tail.left;
        let is_sound = left < self.used.len()
            && head.offset <= self.geometry.limit()
            && (left > 0 || head.offset >= self.head.offset)
            && (!is_here || head.offset <= self.tail.offset);
        if is_sound {
            for chunk in self.used.drain(..left) {
                self.free |= 1 << chunk;
            }
            self.head = head;
        } else {
            self.is_broken = true;
        }
        is_sound
    }

    /// After records were written: true if the consumer sleeps, and the caller is to wake it.
    #[inline]
    pub fn must_wake(&self) -> bool {
        // Between the records and the flag. The consumer has one like it between the flag and its last look at the records: so either
        // the flag is seen here, or the records there.
        fence(Ordering::SeqCst);
        let asleep = self.memory.flag(ASLEEP_AT);
        // An exchange that fails writes nothing: a swap of 0 for 0 would be one more store for the tests to put in order.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        asleep.load(Ordering::Relaxed) == 1
            && asleep.compare_exchange(1, 0, success, failure).is_ok()
    }

    /// Where the next record goes.
    pub fn position(&self) -> Position {
        Position(self.tail)
    }

    /// True if the consumer has read everything that was written before the ring ended there.
    pub fn has_read(&self, end: Position) -> bool {
        let head = Place::unpack(self.memory.word(HEAD_AT).load(Ordering::Acquire));
        let ahead = head.left.wrapping_sub(end.0.left).cast_signed();
        ahead > 0 || (ahead == 0 && head.offset >= end.0.offset)
    }

    /// True if the consumer has read everything.
    pub fn is_drained(&self) -> bool {
        self.has_read(self.position())
    }

    /// True if the consumer reads no more, or has written nonsense.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.is_broken || self.memory.flag(CLOSED_AT).load(Ordering::Acquire) != 0
    }

    /// True if a consumer has opened it.
    pub fn has_reader(&self) -> bool {
        self.memory.flag(OPENED_AT).load(Ordering::Acquire) == OPENED
    }

    /// Keeps the records from a consumer that has not opened it yet. False if one has.
    pub fn take_back(&mut self) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let opened = self.memory.flag(OPENED_AT);
        let taken = opened.compare_exchange(0, TAKEN_BACK, success, failure);
        self.is_broken |= taken.is_ok();
        taken.is_ok()
    }

    /// The chunk that is written.
    #[cfg(test)]
    pub(crate) fn chunk(&self) -> u32 {
        *self.used.back().expect("there is always one")
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if self.memory.is_own() {
            self.memory.flag(ENDED_AT).store(1, Ordering::Release);
        }
    }
}
