//! Which bytes of the program belong to which requests.

use std::collections::BTreeMap;

use urxe_core::mr::MrSpan;

use super::entry::Queue;

/// The bytes `start..end`, as the memory counts them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Range {
    pub(super) fn of(span: MrSpan) -> Range {
        let start = span.host_addr();
        Range {
            start,
            end: start + span.len() as u64,
        }
    }

    pub(super) fn overlaps(self, other: Range) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// A request that owns a range, and where in its message that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) queue: Queue,
    pub(super) number: u64,
    pub(super) offset: usize,
}

/// Ranges that one request each owns; they do not overlap.
#[derive(Debug, Default)]
pub(super) struct Owned(BTreeMap<u64, (u64, Owner)>);

impl Owned {
    pub(super) fn insert(&mut self, range: Range, owner: Owner) {
        self.0.insert(range.start, (range.end, owner));
    }

    pub(super) fn remove(&mut self, range: Range) {
        self.0.remove(&range.start);
    }

    /// The last of the owners of bytes in `range`.
    pub(super) fn overlapping(&self, range: Range) -> Option<Owner> {
        // They do not overlap, so the last that begins before the end also ends last.
        let (_, &(end, owner)) = self.0.range(..range.end).next_back()?;
        (end > range.start).then_some(owner)
    }

    /// The owner of all bytes of `range`, and the offset of its first byte.
    pub(super) fn covering(&self, range: Range) -> Option<(Owner, usize)> {
        let (&start, &(end, owner)) = self.0.range(..=range.start).next_back()?;
        let offset = owner.offset + (range.start - start) as usize;
        (end >= range.end).then_some((owner, offset))
    }
}

/// Ranges that requests may share, with the number of requests.
#[derive(Debug, Default)]
pub(super) struct Shared(BTreeMap<Range, u32>);

impl Shared {
    pub(super) fn insert(&mut self, range: Range) {
        *self.0.entry(range).or_default() += 1;
    }

    pub(super) fn remove(&mut self, range: Range) {
        if let Some(count) = self.0.get_mut(&range) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&range);
            }
        }
    }

    pub(super) fn overlaps(&self, range: Range) -> bool {
        self.0.keys().any(|other| other.overlaps(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use urxe_wire::Qpn;

    fn owner(number: u64) -> Owner {
        let queue = Queue::Recv(Qpn::new(2));
        Owner {
            queue,
            number,
            offset: 100,
        }
    }

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn owners_are_found_by_any_of_their_bytes() {
        let mut owned = Owned::default();
        owned.insert(range(10, 20), owner(1));
        owned.insert(range(20, 30), owner(2));
        let found = |start, end| owned.overlapping(range(start, end)).map(|o| o.number);
        assert_eq!(found(0, 10), None);
        assert_eq!(found(0, 11), Some(1));
        assert_eq!(found(19, 21), Some(2));
        assert_eq!(found(30, 40), None);
        let (covers, offset) = owned.covering(range(24, 30)).expect("inside");
        assert_eq!((covers.number, offset), (2, 104));
        assert!(owned.covering(range(15, 21)).is_none());
    }

    #[test]
    fn shared_ranges_are_counted() {
        let mut shared = Shared::default();
        shared.insert(range(0, 8));
        shared.insert(range(0, 8));
        shared.remove(range(0, 8));
        assert!(shared.overlaps(range(7, 9)));
        shared.remove(range(0, 8));
        assert!(!shared.overlaps(range(7, 9)));
    }
}
