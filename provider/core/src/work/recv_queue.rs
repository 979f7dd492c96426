//! The queue of posted receives, first in, first out: of one QP, or shared.

use crate::work::{PostError, RecvWr, Sge, ring, slots_of};

/// A receive while it waits.
#[derive(Clone, Copy, Debug, Default)]
struct RecvWqe {
    wr_id: u64,
    length: u64,
    num_sge: u16,
}

impl RecvWqe {
    #[inline]
    fn new(wr_id: u64, sges: &[Sge]) -> RecvWqe {
        RecvWqe {
            wr_id,
            length: sges.iter().map(|s| u64::from(s.length)).sum(),
            num_sge: sges.len() as u16,
        }
    }
}

/// The receive queue: fixed capacity, first in, first out.
#[derive(Debug)]
pub struct RecvQueue {
    slots: Box<[RecvWqe]>,
    sges: Box<[Sge]>,
    sge_max: u32,
    capacity: u32,
    head: u64,
    tail: u64,
}

impl RecvQueue {
    /// Bytes that a queue of this size takes.
    pub const fn bytes(capacity: u32, sge_max: usize) -> usize {
        slots_of(capacity) * (size_of::<RecvWqe>() + sge_max * size_of::<Sge>())
    }

    /// A queue for `capacity` receives of at most `sge_max` entries.
    pub fn new(capacity: u32, sge_max: usize) -> RecvQueue {
        let slots = slots_of(capacity);
        RecvQueue {
            slots: vec![RecvWqe::default(); slots].into(),
            sges: vec![Sge::EMPTY; slots * sge_max].into(),
            sge_max: sge_max as u32,
            capacity,
            head: 0,
            tail: 0,
        }
    }

    /// Appends a receive.
    ///
    /// # Errors
    /// [`PostError`]; the queue is unchanged.
    pub fn push(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.len() >= self.capacity {
            return Err(PostError::QueueFull(self.capacity));
        }
        if wr.sges.len() > self.sge_max() {
            return Err(PostError::TooManySges {
                given: wr.sges.len(),
                max: self.sge_max(),
            });
        }
        let slot = self.slot(self.tail);
        let at = slot * self.sge_max();
        self.sges[at..at + wr.sges.len()].copy_from_slice(wr.sges);
        self.slots[slot] = RecvWqe::new(wr.wr_id, wr.sges);
        self.tail += 1;
        Ok(())
    }

    /// Moves all receives to another queue of as many entries a receive, as far as that has room.
    pub fn drain_into(&mut self, other: &mut RecvQueue) {
        debug_assert_eq!(self.sge_max, other.sge_max);
        while self.head < self.tail && other.len() < other.capacity {
            self.move_front(other);
        }
    }

    /// Moves the oldest receive to another queue, which has room for it.
    #[inline]
    fn move_front(&mut self, other: &mut RecvQueue) {
        let to = other.slot(other.tail);
        let sges = self.front_sges();
        other.sges[to * self.sge_max()..][..sges.len()].copy_from_slice(sges);
        other.slots[to] = self.slots[self.slot(self.head)];
        other.tail += 1;
        self.head += 1;
    }

    /// A place for one receive that is taken from a shared queue. Nothing can be
    /// posted to it.
    pub(crate) fn place(sge_max: usize) -> RecvQueue {
        RecvQueue {
            capacity: 0,
            ..RecvQueue::new(1, sge_max)
        }
    }

    /// Takes the oldest receive of a shared queue into this empty place; false if
    /// there is none.
    pub(crate) fn take_from(&mut self, shared: &mut RecvQueue) -> bool {
        debug_assert!(self.is_empty(), "one receive at a time");
        if shared.is_empty() {
            return false;
        }
        shared.move_front(self);
        true
    }

    /// Puts the memory of a tag into this empty place, which has room for as many entries.
    pub(crate) fn fill(&mut self, wr_id: u64, sges: &[Sge]) {
        debug_assert!(self.is_empty(), "one receive at a time");
        let slot = self.slot(self.tail);
        let at = slot * self.sge_max();
        self.sges[at..][..sges.len()].copy_from_slice(sges);
        self.slots[slot] = RecvWqe::new(wr_id, sges);
        self.tail += 1;
    }

    /// Gives the queue another size, which its receives must fit.
    pub(crate) fn resize(&mut self, capacity: u32) {
        debug_assert!(self.len() <= capacity, "checked by the caller");
        let mut new = RecvQueue::new(capacity, self.sge_max());
        self.drain_into(&mut new);
        *self = new;
    }

    /// `wr_id` of the oldest receive; the queue must not be empty.
    #[inline]
    pub fn front_wr_id(&self) -> u64 {
        self.slots[self.slot(self.head)].wr_id
    }

    /// Bytes that the oldest receive has room for.
    #[inline]
    pub fn front_length(&self) -> u64 {
        self.slots[self.slot(self.head)].length
    }

    /// Entries of the oldest receive.
    #[inline]
    pub fn front_sges(&self) -> &[Sge] {
        let slot = self.slot(self.head);
        let at = slot * self.sge_max();
        &self.sges[at..at + self.slots[slot].num_sge as usize]
    }
}

ring!(RecvQueue);

#[cfg(test)]
mod tests {
    use super::*;
    use urxe_wire::Lkey;

    fn sge(n: u32) -> Sge {
        Sge {
            addr: u64::from(n),
            length: n,
            lkey: Lkey(n),
        }
    }

    #[test]
    fn receive_queue_is_fifo() {
        let mut q = RecvQueue::new(2, 1);
        for id in [7, 8] {
            q.push(&RecvWr {
                wr_id: id,
                sges: &[sge(id as u32)],
            })
            .expect("room");
        }
        assert_eq!(
            q.push(&RecvWr {
                wr_id: 9,
                sges: &[]
            }),
            Err(PostError::QueueFull(2))
        );
        assert_eq!((q.front_wr_id(), q.front_length()), (7, 7));
        q.pop();
        assert_eq!(q.front_sges(), &[sge(8)]);
    }
}
