//! The list of tags of a shared receive queue, in the order in which they were added.
//!
//! A message is looked up once for every mask that is in use, by hash: how many tags wait does not matter.

use crate::mix::mix64;
use crate::tm::{TagHandle, TagRecv, TmCap};
use crate::work::{MESSAGE_MAX, PostError, Sge};

/// Bits of a handle that name a place; the others count how often the place was given out.
pub(super) const PLACE_BITS: u32 = 14;

impl TagHandle {
    fn place(self) -> u16 {
        (self.0 & (TmCap::NUM_TAGS_MAX - 1)) as u16
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// Messages may take it, once the counts are in step.
    Listed,
}

/// A tag, or a place for one.
#[derive(Clone, Debug)]
struct Slot {
    state: State,
    num_sge: u8,
    /// Counts up when the tag is gone.
    generation: u32,
    /// Neighbours in the chain of the bucket; of a free place, the next free one.
    before: Option<u16>,
    after: Option<u16>,
    /// Grows from tag to tag.
    number: u64,
    tag: u64,
    mask: u64,
    recv_wr_id: u64,
    sges: [Sge; TmCap::SGE_MAX as usize],
}

/// A chain of tags, in the order in which they were added.
#[derive(Clone, Copy, Default, Debug)]
struct Bucket {
    first: Option<u16>,
    last: Option<u16>,
}

/// A mask that tags of the list have, and how many.
#[derive(Clone, Copy, Debug)]
struct Mask {
    mask: u64,
    tags: u32,
}

/// A tag that was taken out of the list.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    pub(crate) recv_wr_id: u64,
    pub(crate) sges: &'a [Sge],
}

#[derive(Debug)]
pub(crate) struct TagList {
    slots: Vec<Slot>,
    free: Option<u16>,
    buckets: Box<[Bucket]>,
    masks: Vec<Mask>,
    max: u32,
    /// Tags in the list.
    len: u32,
    /// Peers choose what is looked up: they must not know what collides.
    secret: u64,
    /// Number of the next tag.
    next: u64,
    /// Tags before this number may be taken.
    open: u64,
    /// Unexpected messages so far.
    unexpected: u32,
    /// Of these the program has reported so many as handled.
    reported: u32,
}

impl TagList {
    pub(crate) fn new(max: u32, secret: u64) -> TagList {
        debug_assert!(max <= TmCap::NUM_TAGS_MAX, "checked by the caller");
        TagList {
            slots: Vec::new(),
            free: None,
            buckets: vec![Bucket::default(); max.max(1).next_power_of_two() as usize].into(),
            masks: Vec::new(),
            max,
            len: 0,
            secret,
            next: 0,
            open: 0,
            unexpected: 0,
            reported: 0,
        }
    }

    /// May such a tag be added?
    pub(crate) fn check_add(&self, recv: &TagRecv<'_>) -> Result<(), PostError> {
        let (given, max) = (recv.sges.len(), TmCap::SGE_MAX as usize);
        if given > max {
            return Err(PostError::TooManySges { given, max });
        }
        let length: u64 = recv.sges.iter().map(|sge| u64::from(sge.length)).sum();
        if length > MESSAGE_MAX {
            return Err(PostError::MessageTooLong(length));
        }
        match self.len < self.max {
            true => Ok(()),
            false => Err(PostError::TagListFull(self.max)),
        }
    }

    /// Was there ever a tag with this handle?
    pub(crate) fn check_handle(&self, handle: TagHandle) -> Result<(), PostError> {
        match self.slots.get(usize::from(handle.place())) {
            Some(_) => Ok(()),
            None => Err(PostError::NoTag(handle.0)),
        }
    }

    /// Adds a tag behind all others.
    ///
    /// # Errors
    /// [`PostError`]: the list is full, or the entries are too many.
    pub(crate) fn add(&mut self, recv: &TagRecv<'_>) -> Result<TagHandle, PostError> {
        self.check_add(recv)?;
        let place = self.find_place();
        let (number, is_open) = (self.next, self.is_in_step());
        self.next += 1;
        let slot = &mut self.slots[usize::from(place)];
        *slot = Slot {
            state: State::Listed,
            num_sge: recv.sges.len() as u8,
            generation: slot.generation,
            before: None,
            after: None,
            number,
            tag: recv.tag,
            mask: recv.mask,
            recv_wr_id: recv.recv_wr_id,
            sges: slot.sges,
        };
        slot.sges[..recv.sges.len()].copy_from_slice(recv.sges);
        let handle = TagHandle(slot.generation << PLACE_BITS | u32::from(place));
        self.link(place);
        if is_open {
            self.open = self.next;
        }
        Ok(handle)
    }

    /// Removes a tag; false if it is gone.
    ///
    /// # Errors
    /// [`PostError::NoTag`]: no tag ever had this handle.
    pub(crate) fn remove(&mut self, handle: TagHandle) -> Result<bool, PostError> {
        self.check_handle(handle)?;
        let place = handle.place();
        let slot = &self.slots[usize::from(place)];
        let is_it = slot.generation == handle.0 >> PLACE_BITS;
        if !is_it || slot.state != State::Listed {
            return Ok(false);
        }
        self.unlink(place);
        self.give_back(place);
        Ok(true)
    }

    /// Takes the oldest tag that matches out of the list.
    #[inline]
    pub(crate) fn take(&mut self, tag: u64) -> Option<Taken<'_>> {
        let place = self.find(tag)?;
        self.unlink(place);
        self.give_back(place);
        let slot = &self.slots[usize::from(place)];
        Some(Taken {
            recv_wr_id: slot.recv_wr_id,
            sges: &slot.sges[..usize::from(slot.num_sge)],
        })
    }

    /// A message is unexpected.
    #[inline]
    pub(crate) fn count_unexpected(&mut self) {
        self.unexpected = self.unexpected.wrapping_add(1);
    }

    /// An unexpected message failed before it was complete: the program never sees it.
    pub(crate) fn forget_unexpected(&mut self) {
        self.unexpected = self.unexpected.wrapping_sub(1);
    }

    /// The program has handled so many unexpected messages.
    pub(crate) fn report(&mut self, handled: u32) {
        self.reported = handled;
        if self.is_in_step() {
            self.open = self.next;
        }
    }

    /// The program has handled all unexpected messages, and said so.
    #[inline]
    pub(crate) fn is_in_step(&self) -> bool {
        self.reported == self.unexpected
    }

    /// Tags wait until the counts are in step.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.open != self.next
    }

    /// Tags in the list.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The oldest tag that matches and may be taken.
    #[inline]
    fn find(&self, tag: u64) -> Option<u16> {
        let mut oldest: Option<(u64, u16)> = None;
        for &Mask { mask, .. } in &self.masks {
            let wanted = tag & mask;
            let mut at = self.buckets[self.bucket(wanted, mask)].first;
            while let Some(place) = at {
                let slot = &self.slots[usize::from(place)];
                if slot.tag == wanted && slot.mask == mask {
                    // Those behind it are younger.
                    if slot.number < self.open && oldest.is_none_or(|(n, _)| slot.number < n) {
                        oldest = Some((slot.number, place));
                    }
                    break;
                }
                at = slot.after;
            }
        }
        oldest.map(|(_, place)| place)
    }

    #[inline]
    fn bucket(&self, tag: u64, mask: u64) -> usize {
        let hash = mix64(mix64(tag ^ self.secret) ^ mask);
        hash as usize & (self.buckets.len() - 1)
    }

    fn find_place(&mut self) -> u16 {
        self.len += 1;
        if let Some(place) = self.free {
            self.free = self.slots[usize::from(place)].after;
            return place;
        }
        let place = self.slots.len() as u16;
        self.slots.push(Slot {
            state: State::Free,
            num_sge: 0,
            generation: 0,
            before: None,
            after: None,
            number: 0,
            tag: 0,
            mask: 0,
            recv_wr_id: 0,
            sges: [Sge::EMPTY; TmCap::SGE_MAX as usize],
        });
        place
    }

    fn give_back(&mut self, place: u16) {
        self.len -= 1;
        let slot = &mut self.slots[usize::from(place)];
        slot.state = State::Free;
        slot.generation = (slot.generation + 1) & (u32::MAX >> PLACE_BITS);
        slot.after = self.free;
        self.free = Some(place);
    }

    /// Puts a tag at the end of its chain.
    fn link(&mut self, place: u16) {
        let (tag, mask) = self.key(place);
        match self.masks.iter_mut().find(|known| known.mask == mask) {
            Some(known) => known.tags += 1,
            None => self.masks.push(Mask { mask, tags: 1 }),
        }
        let bucket = self.bucket(tag, mask);
        let last = self.buckets[bucket].last.replace(place);
        match last {
            Some(last) => self.slots[usize::from(last)].after = Some(place),
            None => self.buckets[bucket].first = Some(place),
        }
        let slot = &mut self.slots[usize::from(place)];
        (slot.before, slot.after) = (last, None);
    }

    fn unlink(&mut self, place: u16) {
        let (tag, mask) = self.key(place);
        let slot = &self.slots[usize::from(place)];
        let (before, after) = (slot.before, slot.after);
        let bucket = self.bucket(tag, mask);
        match before {
            Some(before) => self.slots[usize::from(before)].after = after,
            None => self.buckets[bucket].first = after,
        }
        match after {
            Some(after) => self.slots[usize::from(after)].before = before,
            None => self.buckets[bucket].last = before,
        }
        if let Some(at) = self.masks.iter().position(|known| known.mask == mask) {
            self.masks[at].tags -= 1;
            if self.masks[at].tags == 0 {
                self.masks.swap_remove(at);
            }
        }
    }

    fn key(&self, place: u16) -> (u64, u64) {
        let slot = &self.slots[usize::from(place)];
        (slot.tag, slot.mask)
    }
}

#[cfg(test)]
mod tests;
