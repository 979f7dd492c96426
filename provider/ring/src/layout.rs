//! What lies where in the memory, and what a record's first word says.
//!
//! | at | what | written by |
//! |---|---|---|
//! | 0 | magic number and version | the producer, once |
//! | 64 | 1: no more records come | producer |
//! | 128 | how far the consumer has read: chunks that it has left << 32, and bytes of the next one | consumer |
//! | 192 | 1: the consumer sleeps, or is about to | consumer; the producer that wakes it takes the 1 away |
//! | 196 | 1: the consumer reads no more | consumer |
//! | 200 | 1: a consumer has opened it; 2: the producer has taken it back before | the first of the two |
//! | 4096 | the records, in chunks | producer |
//!
//! They are in cache lines of their own, as they are written at different times by different sides.
//!
//! A record is one word and then its bytes, and takes a multiple of [`LINE`]. The word is what is published; behind the
//! record is the place of the next one, where a word of 0 says that there is none yet. So a reader that waits looks at the very line that
//! will hold the next record: a short message moves one cache line between two processors, and no more.
//!
//! A chunk ends with a word that names the next chunk. The producer takes the first that the consumer has left, so a pair that keeps
//! up uses two of them. They are large: a line that is written again is in no other processor's cache any more. With chunks of 128 KiB
//! `urxe bench write` has half of the bandwidth.

/// What the first eight bytes are.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"urxering") ^ VERSION;
/// Changes with anything that is said here.
const VERSION: u64 = 2;

pub(crate) const MAGIC_AT: usize = 0;
pub(crate) const ENDED_AT: usize = 64;
pub(crate) const HEAD_AT: usize = 128;
pub(crate) const ASLEEP_AT: usize = 192;
pub(crate) const CLOSED_AT: usize = 196;
pub(crate) const OPENED_AT: usize = 200;
pub(crate) const RECORDS_AT: usize = 4096;

/// What is at [`OPENED_AT`] if it is not 0.
pub(crate) const OPENED: u32 = 1;
pub(crate) const TAKEN_BACK: u32 = 2;

/// Bytes of a cache line. Records begin at multiples of it.
pub(crate) const LINE: usize = 64;
/// Bytes of the word before a record's bytes.
pub(crate) const WORD: usize = 8;

/// Longest record: the longest datagram of a network, and the longest train that a kernel makes of some.
pub const RECORD_MAX: usize = 1 << 16;

/// How large a ring is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Bytes of a chunk.
    pub(crate) chunk: usize,
    /// Chunks, 32 at most.
    pub(crate) chunks: u32,
    /// Bytes after which the consumer tells that it has read them.
    pub(crate) tell: usize,
}

impl Geometry {
    /// Four megabytes; what is not used takes no memory.
    pub(crate) const USUAL: Geometry = Geometry {
        chunk: 512 << 10,
        chunks: 8,
        tell: 16 << 10,
    };

    /// Bytes for records.
    pub(crate) const fn records(&self) -> usize {
        self.chunk * self.chunks as usize
    }

    /// Bytes of the whole.
    pub(crate) fn len(&self) -> usize {
        RECORDS_AT + self.records()
    }

    /// Where a chunk begins.
    #[inline]
    pub(crate) fn start(&self, chunk: u32) -> usize {
        RECORDS_AT + self.chunk * chunk as usize
    }

    /// How far records may reach in a chunk: a word follows.
    #[inline]
    pub(crate) fn limit(&self) -> usize {
        self.chunk - LINE
    }
}

/// Bytes that a ring holds before it is full, records and what is between them.
pub const RING_BYTES: u32 = Geometry::USUAL.records() as u32;

/// Bytes that a record takes.
#[inline]
pub(crate) fn room_for(len: usize) -> usize {
    (WORD + len).next_multiple_of(LINE)
}

/// What a record carries beside its bytes; what it means is its users' affair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// A kind of records, below [`Mark::KINDS`].
    pub kind: u8,
    /// A number.
    pub tag: u16,
    /// Another.
    pub size: u16,
}

impl Mark {
    /// Kinds that there can be.
    pub const KINDS: u8 = 0x40;
}

/// A record's first word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// Nothing is here yet.
    Nothing,
    /// The next record is at the beginning of that chunk.
    Next(u32),
    Record {
        len: usize,
        mark: Mark,
    },
    /// What no producer writes.
    Nonsense,
}

const NEXT: u8 = 0xff;

impl Word {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        match self {
            Word::Nothing | Word::Nonsense => 0,
            Word::Next(chunk) => u64::from(NEXT) | u64::from(chunk) << 8,
            Word::Record { len, mark } => {
                u64::from(mark.kind + 1)
                    | u64::from(mark.tag) << 8
                    | u64::from(mark.size) << 24
                    | (len as u64) << 40
            }
        }
    }

    #[inline]
    pub(crate) fn unpack(word: u64) -> Word {
        match word as u8 {
            0 if word == 0 => Word::Nothing,
            NEXT if word >> 40 == 0 => Word::Next((word >> 8) as u32),
            kind @ 1..=Mark::KINDS => Word::Record {
                len: (word >> 40) as usize,
                mark: Mark {
                    kind: kind - 1,
                    tag: (word >> 8) as u16,
                    size: (word >> 24) as u16,
                },
            },
            _ => Word::Nonsense,
        }
    }
}

/// How far a side is: chunks that it has left, and bytes of the one that it is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    pub(crate) left: u32,
    pub(crate) offset: usize,
}

impl Place {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.left) << 32 | self.offset as u64
    }

    #[inline]
    pub(crate) fn unpack(word: u64) -> Place {
        Place {
            left: (word >> 32) as u32,
            offset: word as u32 as usize,
        }
    }
}
