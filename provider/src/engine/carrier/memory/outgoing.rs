//! What leaves through memory: a ring to one neighbour, which reads it.

use core::ops::Range;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;

use urxe_core::Time;
use urxe_core::loan::{LentMemory, Loan};
use urxe_core::transmit::{Transmit as Run, TxDest};
use urxe_ring::{Mark, Position, Producer, Push, Window};
use urxe_wire::Gid;

use super::record::{PACKETS, PATH, PATH_LEN, SEALED};
use crate::share::Neighbour;

/// Bytes of a record, at most, where a train may be cut: the receiver copies a record before it handles it, and the copy is to stay
/// in the first-level cache.
const RECORD_BYTES: usize = 16 << 10;

/// Bytes of a ring that are lent to a batch: at least room for a few packets. `urxe bench write` has 64 to 67 Gbit/s so, and 61 to 64 with half as
/// many at most.
const LENT_MIN: usize = 16 << 10;
const LENT_MAX: usize = 64 << 10;

/// Paths that the receiver remembers. A context has few addresses; with more paths than this the oldest is told again.
const PATHS_MAX: usize = 256;

/// How long a receiver that has not refused a ring may take to open it.
const OPENED_NS: u64 = 1_000_000_000;

/// The place of the next records, while packets are made there.
#[derive(Debug)]
struct Lent(Window);

impl LentMemory for Lent {
    #[inline]
    fn part_mut(&mut self, part: Range<usize>) -> &mut [u8] {
        self.0.part_mut(part)
    }
}

#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: Neighbour,
    producer: Producer,
    /// Unless it is out.
    window: Option<Box<Lent>>,
    offered_at: Time,
    /// Those that were told; the tag of a record is the place of its path.
    paths: Vec<TxDest>,
    next_path: usize,
    /// The path of the last record.
    last: usize,
    /// What was written before this time has been read.
    read_before: Time,
    /// Where the ring ended at a later time, until that has been read.
    mark: Option<(Position, Time)>,
    /// Where the last packets went, if the receiver is yet to be woken for them.
    pub(super) unwoken: Option<TxDest>,
}

impl Outgoing {
    /// A new ring, and what its reader opens it by.
    pub(super) fn create(to: Neighbour, now: Time) -> io::Result<(Outgoing, OwnedFd)> {
        let (producer, memory) = Producer::create()?;
        let outgoing = Outgoing {
            to,
            window: Some(Box::new(Lent(producer.window()))),
            producer,
            offered_at: now,
            paths: Vec::new(),
            next_path: 0,
            last: 0,
            read_before: Time::ZERO,
            mark: None,
            unwoken: None,
        };
        Ok((outgoing, memory))
    }

    /// Writes the packets of a run.
    #[inline]
    pub(super) fn push(&mut self, dest: &TxDest, segment_size: usize, bytes: &[u8]) -> Push {
        let tag = match self.knows(dest) {
            true => self.last,
            false => match self.tell(dest) {
                Ok(place) => place,
                Err(push) => return push,
            },
        };
        let mark = mark(dest, tag, segment_size);
        // The place in its train is the Identification that a packet's ICRC was computed for.
        if bytes.len() <= RECORD_BYTES || !dest.in_memory {
            return self.producer.push(mark, bytes);
        }
        let whole = (RECORD_BYTES / segment_size).max(1) * segment_size;
        for part in bytes.chunks(whole) {
            match self.producer.push(mark, part) {
                Push::Done => {}
                // What is gone is gone: the rest would only be out of order.
                end => return end,
            }
        }
        Push::Done
    }

    /// Lends the place of the next records for packets to an owner of QPNs, if there is room.
    pub(super) fn lend(&mut self, dest: &TxDest) -> Option<Loan> {
        let mut memory = self.window.take()?;
        if !self.producer.lend(&mut memory.0, LENT_MIN, LENT_MAX) {
            self.window = Some(memory);
            return None;
        }
        Some(Loan {
            len: memory.0.len(),
            before: Window::BEFORE,
            align: Window::ALIGN,
            run_max: RECORD_BYTES,
            to: (dest.remote, dest.chunk),
            memory,
        })
    }

    /// Takes back what was lent.
    pub(super) fn end_loan(&mut self, memory: Box<dyn LentMemory>) {
        let memory: Box<dyn Any> = memory;
        let mut memory: Box<Lent> = memory.downcast().expect("no other memory is lent");
        self.producer.end_loan(&mut memory.0);
        self.window = Some(memory);
    }

    /// Packets travel as the last ones did.
    #[inline]
    pub(super) fn knows(&self, dest: &TxDest) -> bool {
        let last = self.paths.get(self.last);
        last.is_some_and(|path| is_same(path, dest))
    }

    /// The packets of a run are where the next record is to be; their path is the last one's.
    #[inline]
    pub(super) fn publish(&mut self, run: &Run) {
        let mark = mark(&run.dest, self.last, run.segment_size);
        self.producer.publish(mark, run.range.len());
    }

    /// The place of a path that is not the last one's, told to the receiver if it does not know it.
    #[cold]
    fn tell(&mut self, dest: &TxDest) -> Result<usize, Push> {
        if let Some(place) = self.paths.iter().position(|path| is_same(path, dest)) {
            self.last = place;
            return Ok(place);
        }
        let place = self.next_path;
        let mut bytes = [0; PATH_LEN];
        bytes[..16].copy_from_slice(&Gid::from(dest.local).0);
        bytes[16..32].copy_from_slice(&Gid::from(dest.remote).0);
        bytes[32..34].copy_from_slice(&dest.source_port.to_be_bytes());
        bytes[34] = dest.tos;
        let mark = Mark {
            kind: PATH,
            tag: place as u16,
            size: 0,
        };
        match self.producer.push(mark, &bytes) {
            Push::Done => {}
            end => return Err(end),
        }
        match self.paths.get_mut(place) {
            Some(old) => *old = *dest,
            None => self.paths.push(*dest),
        }
        self.next_path = (place + 1) % PATHS_MAX;
        self.last = place;
        Ok(place)
    }

    /// The receiver sleeps, and it is for the caller to wake it.
    #[inline]
    pub(super) fn must_wake(&self) -> bool {
        self.producer.must_wake()
    }

    /// The receiver may not have read yet what was written before `since`. It is found out by how far it reads after the
    /// first question: others may write meanwhile, so that the ring need never be seen empty.
    pub(super) fn waits_since(&mut self, since: Time, now: Time) -> bool {
        if let Some((end, at)) = self.mark
            && self.producer.has_read(end)
        {
            self.read_before = at;
            self.mark = None;
        }
        if since <= self.read_before || self.producer.is_drained() {
            return false;
        }
        self.mark.get_or_insert((self.producer.position(), now));
        true
    }

    /// The receiver has had the time to open it, and has not: it cannot, or is stopped.
    pub(super) fn is_left_lying(&self, now: Time) -> bool {
        !self.producer.has_reader() && now.since_ns(self.offered_at) >= OPENED_NS
    }

    /// Takes back what no receiver has opened. Returns the receiver that it was for, if that was in time.
    pub(super) fn take_back(&mut self) -> Option<Neighbour> {
        self.producer.take_back().then_some(self.to)
    }

    /// The receiver takes nothing any more.
    pub(super) fn is_closed(&self) -> bool {
        self.producer.is_closed()
    }
}

#[inline]
fn mark(dest: &TxDest, path: usize, segment_size: usize) -> Mark {
    Mark {
        kind: if dest.in_memory { PACKETS } else { SEALED },
        tag: path as u16,
        size: segment_size as u16,
    }
}

/// Packets to both travel alike, whatever QPs they are for.
#[inline]
fn is_same(path: &TxDest, dest: &TxDest) -> bool {
    path.remote == dest.remote
        && path.local == dest.local
        && path.tos == dest.tos
        && path.source_port == dest.source_port
}
