//! QPs and shared receive queues by number. The space of numbers may be shared: it is dealt
//! out in chunks, and a table hands out numbers of its chunks only. So a QPN identifies its owner to the one that
//! steers packets between the owners of one address.
//!
//! Within a chunk numbers are given out in an order that a stranger cannot know, and
//! one that was given back waits until all others had their turn. Nothing is hashed
//! and nothing scans.
//!
//! A table of few QPs is small, for there are simulations of a thousand hosts: what has a place for every number or
//! every chunk is made as far as it is used.

mod chunk;
mod order;
mod places;

use core::ops::Range;
use std::collections::VecDeque;

use urxe_wire::Qpn;

use crate::mix::SplitMix64;
use crate::table::{Occupancy, QpIndex, shrink};

pub use chunk::{CHUNK_BITS, CHUNK_LEN, CHUNKS, QpnChunk};
use order::Order;
use places::Places;

/// A datagram that begins so is no packet: the opcode is one that vendors may use, and
/// no vendor does. Owners of a shared address send such to find out which socket is theirs.
pub const PROBE: [u8; 4] = [0xff, b'U', b'R', b'X'];

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    qpn: Qpn,
}

/// The table.
#[derive(Debug)]
pub struct QpnTable<T> {
    slots: Vec<Slot<T>>,
    free_slots: Vec<u32>,
    places: Places,
    /// Numbers to give out, the longest unused first. What `fresh` has comes before the given back ones.
    free_qpns: VecDeque<Qpn>,
    /// How many of them, the first ones, were never given out.
    fresh_qpns: usize,
    /// Numbers of granted chunks that are not in `free_qpns` yet, the first granted first.
    fresh: VecDeque<Order>,
    random: SplitMix64,
    /// Chunks of which numbers are given out by name only.
    aside: Range<u16>,
}

impl<T> QpnTable<T> {
    /// Most QPs that a table holds.
    pub const LEN_MAX: usize = 1 << 16;

    /// An empty table without any chunk; the order of its numbers follows from `secret`.
    pub fn new(secret: u64) -> Self {
        QpnTable {
            slots: Vec::new(),
            free_slots: Vec::new(),
            places: Places::default(),
            free_qpns: VecDeque::new(),
            fresh_qpns: 0,
            fresh: VecDeque::new(),
            random: SplitMix64::new(secret),
            aside: 0..0,
        }
    }

    /// Takes a chunk: its numbers may be given out from now on.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn grant(&mut self, chunk: QpnChunk) {
        assert!(usize::from(chunk.0) < CHUNKS, "there is no such chunk");
        if self.places.has(chunk) {
            return;
        }
        self.places.own(chunk);
        self.fresh.push_back(Order::draw(chunk, &mut self.random));
    }

    /// Takes numbers over that were never given out, if none is at hand.
    fn renew(&mut self) {
        if self.fresh_qpns > 0 {
            return;
        }
        if let Some(order) = self.fresh.front_mut() {
            let numbers = order.take();
            if order.is_empty() {
                self.fresh.pop_front();
            }
            self.fresh_qpns = numbers.len();
            self.free_qpns.reserve(numbers.len());
            for number in numbers.into_iter().rev() {
                self.free_qpns.push_front(number);
            }
        }
    }

    /// Sets numbers aside that are given out by name only ([`QpnTable::insert_as`]): half of all, or what lies between the chunks that
    /// were granted. For a table that is not shared. Returns their chunks.
    pub fn set_aside(&mut self) -> Range<u16> {
        // The first and the last chunk have numbers that no QP may have.
        let (mut run, mut longest) = (1..1, 1..1);
        for chunk in 1..CHUNKS as u16 - 1 {
            if !self.places.has(QpnChunk(chunk)) {
                run.end = chunk + 1;
            } else {
                run = chunk + 1..chunk + 1;
            }
            if run.len() > longest.len() {
                longest = run.clone();
            }
        }
        longest.start = longest
            .start
            .max(longest.end.saturating_sub(CHUNKS as u16 / 2));
        self.aside = longest;
        self.aside.clone()
    }

    fn is_aside(&self, qpn: Qpn) -> bool {
        self.aside.contains(&QpnChunk::of(qpn).0)
    }

    /// Takes a chunk at random that is not ours yet: for a table that is not shared.
    /// Returns false if there is none left.
    pub fn grant_any(&mut self) -> bool {
        let granted = self.granted();
        let granted = granted.filter(|chunk| !self.aside.contains(&chunk.0));
        if granted.count() + self.aside.len() == CHUNKS {
            return false;
        }
        loop {
            let chunk = QpnChunk(self.random.below(CHUNKS as u64) as u16);
            if !self.places.has(chunk) && !self.aside.contains(&chunk.0) {
                self.grant(chunk);
                return true;
            }
        }
    }

    /// The chunks that were granted.
    pub fn granted(&self) -> impl Iterator<Item = QpnChunk> + '_ {
        self.places.chunks()
    }

    /// True if another QP needs another chunk first.
    pub fn is_exhausted(&self) -> bool {
        self.free_qpns.is_empty() && self.fresh.is_empty()
    }

    /// Puts a QP in; `None` if the table is full or no number is left.
    pub fn insert_with(&mut self, make: impl FnOnce(QpIndex, Qpn) -> T) -> Option<(QpIndex, Qpn)> {
        if self.free_slots.is_empty() && self.slots.len() == Self::LEN_MAX {
            return None;
        }
        self.renew();
        let qpn = self.free_qpns.pop_front()?;
        self.fresh_qpns = self.fresh_qpns.saturating_sub(1);
        Some(self.insert(qpn, make))
    }

    /// Puts a QP in under a number that was set aside; `None` if the table is full, or the number was not, or is another's.
    pub fn insert_as(&mut self, qpn: Qpn, make: impl FnOnce(QpIndex, Qpn) -> T) -> Option<QpIndex> {
        let is_full = self.free_slots.is_empty() && self.slots.len() == Self::LEN_MAX;
        if is_full || !self.is_aside(qpn) || self.find(qpn).is_some() {
            return None;
        }
        if !self.is_ours(qpn) {
            self.places.own(QpnChunk::of(qpn));
        }
        Some(self.insert(qpn, make).0)
    }

    fn insert(&mut self, qpn: Qpn, make: impl FnOnce(QpIndex, Qpn) -> T) -> (QpIndex, Qpn) {
        let index = match self.free_slots.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot { value: None, qpn });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.qpn = qpn;
        slot.value = Some(make(QpIndex(index), qpn));
        self.places.set(qpn, Some(QpIndex(index)));
        (QpIndex(index), qpn)
    }

    /// Takes a QP out; its number rests until all others were used.
    pub fn remove(&mut self, index: QpIndex) -> Option<T> {
        let slot = self.slots.get_mut(index.0 as usize)?;
        let (value, qpn) = (slot.value.take()?, slot.qpn);
        self.places.set(qpn, None);
        self.free_slots.push(index.0);
        self.give_back(qpn);
        Some(value)
    }

    /// Takes a QP out; its number is not given out again before [`QpnTable::give_back`].
    pub fn remove_resting(&mut self, index: QpIndex) -> Option<T> {
        let given_back = self.free_qpns.len();
        let value = self.remove(index)?;
        self.free_qpns.truncate(given_back);
        Some(value)
    }

    /// The number of a QP that was taken out rests no longer.
    pub fn give_back(&mut self, qpn: Qpn) {
        if self.is_ours(qpn) && !self.is_aside(qpn) {
            self.free_qpns.push_back(qpn);
        }
    }

    /// Finds a QP by its number.
    #[inline]
    pub fn find(&self, qpn: Qpn) -> Option<QpIndex> {
        self.places.find(qpn)
    }

    /// True if the number is of one of our chunks: no other owner has it.
    #[inline]
    pub fn is_ours(&self, qpn: Qpn) -> bool {
        self.has_chunk(QpnChunk::of(qpn))
    }

    /// True if the numbers of a chunk are ours.
    #[inline]
    pub fn has_chunk(&self, chunk: QpnChunk) -> bool {
        self.places.has(chunk)
    }

    /// The QP at a place.
    #[inline]
    pub fn at(&self, index: QpIndex) -> Option<&T> {
        self.slots.get(index.0 as usize)?.value.as_ref()
    }

    /// The value at a place, to change it.
    #[inline]
    pub fn at_mut(&mut self, index: QpIndex) -> Option<&mut T> {
        self.slots.get_mut(index.0 as usize)?.value.as_mut()
    }

    /// Number of QPs.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many places there are, and how many QPs in them.
    #[inline]
    pub fn occupancy(&self) -> Occupancy {
        Occupancy::of(&self.slots, self.free_slots.len())
    }

    /// Gives up places that no QP has, if hardly any of very many is left ([`Occupancy::is_sparse`]). Numbers rest as
    /// before. Looks at all places.
    pub fn shrink(&mut self) {
        shrink(&mut self.slots, &mut self.free_slots, |slot| {
            slot.value.is_some()
        });
    }

    /// All QPs.
    pub fn iter(&self) -> impl Iterator<Item = (QpIndex, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, s)| s.value.as_ref().map(|v| (QpIndex(i as u32), v)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn table(chunks: &[u16]) -> QpnTable<char> {
        let mut table = QpnTable::new(3);
        for &chunk in chunks {
            table.grant(QpnChunk(chunk));
        }
        table
    }

    #[test]
    fn a_number_names_its_qp_until_that_is_gone() {
        let mut t = table(&[7]);
        let (a, qpn_a) = t.insert_with(|_, _| 'a').expect("room");
        let (_, qpn_b) = t.insert_with(|_, _| 'b').expect("room");
        assert_eq!(t.find(qpn_a), Some(a));
        assert_eq!(t.remove(a), Some('a'));
        assert_eq!((t.find(qpn_a), t.remove(a)), (None, None));
        let (again, qpn_c) = t.insert_with(|_, _| 'c').expect("room");
        assert_eq!(again, a, "places are used again");
        assert_ne!(qpn_c, qpn_a, "numbers rest");
        assert_eq!(t.find(qpn_b).and_then(|i| t.at(i)), Some(&'b'));
        assert_eq!((t.len(), t.iter().count()), (2, 2));
    }

    #[test]
    fn numbers_are_of_the_granted_chunks_and_never_reserved() {
        let mut t = table(&[0, 0xfff]);
        let mut seen = BTreeSet::new();
        while let Some((_, qpn)) = t.insert_with(|_, _| 'x') {
            assert!(matches!(QpnChunk::of(qpn).0, 0 | 0xfff), "{qpn:?}");
            assert!(!matches!(qpn.get(), 0 | 1 | 0xff_ffff));
            assert!(seen.insert(qpn), "{qpn:?} twice");
        }
        assert_eq!(seen.len(), 2 * CHUNK_LEN - 3);
        assert!(t.is_exhausted());
        t.grant(QpnChunk(5));
        let (_, qpn) = t.insert_with(|_, _| 'y').expect("a new chunk");
        assert_eq!(QpnChunk::of(qpn), QpnChunk(5));
        assert!(t.is_ours(qpn) && !t.is_ours(Qpn::new(6 << CHUNK_BITS)));
    }

    #[test]
    fn numbers_that_were_set_aside_are_given_out_by_name_alone() {
        let mut t = table(&[2000]);
        let aside = t.set_aside();
        assert!(aside.len() > 1000 && !aside.contains(&2000), "{aside:?}");
        let first = Qpn::new(u32::from(aside.start) << CHUNK_BITS);
        let last = Qpn::new((u32::from(aside.end) << CHUNK_BITS) - 1);
        let a = t.insert_as(last, |_, _| 'a').expect("is free");
        let b = t.insert_as(first, |_, _| 'b').expect("is free");
        assert_eq!((t.find(last), t.find(first)), (Some(a), Some(b)));
        assert_eq!(t.insert_as(first, |_, _| 'c'), None, "another has it");
        let own = Qpn::new(2000 << CHUNK_BITS);
        assert_eq!(t.insert_as(own, |_, _| 'c'), None, "it was granted");
        // It is free again for its name, and for nothing else.
        assert_eq!(t.remove(a), Some('a'));
        assert_eq!(t.remove_resting(b), Some('b'));
        while t.grant_any() {}
        while let Some((_, qpn)) = t.insert_with(|_, _| 'd') {
            assert!(!aside.contains(&QpnChunk::of(qpn).0), "{qpn:?}");
        }
        assert_eq!(t.insert_as(last, |_, _| 'e'), None, "the table is full");
        t.remove(QpIndex(7));
        assert!(t.insert_as(last, |_, _| 'e').is_some());
    }

    #[test]
    fn a_given_back_number_waits_for_all_others() {
        let mut t = table(&[9]);
        let (_, first) = t.insert_with(|_, _| 'a').expect("room");
        let mut between = 0;
        t.remove(QpIndex(0));
        loop {
            let (index, qpn) = t.insert_with(|_, _| 'b').expect("room");
            t.remove(index);
            if qpn == first {
                break;
            }
            between += 1;
        }
        assert_eq!(between, CHUNK_LEN - 1);
    }

    #[test]
    fn a_table_that_shrank_knows_who_stayed_and_lets_numbers_rest() {
        const MANY: usize = 3 * CHUNK_LEN;
        let mut t = table(&[3, 4, 5]);
        let all: Vec<_> = (0..MANY)
            .map(|_| t.insert_with(|_, _| 'a').expect("room"))
            .collect();
        t.shrink();
        assert_eq!(t.occupancy().places, MANY, "all are in use");
        let stays = |place: usize| place.is_multiple_of(41) && place < 2000;
        for &(index, _) in all.iter().filter(|(index, _)| !stays(index.0 as usize)) {
            t.remove(index);
        }
        t.shrink();
        assert_eq!(t.occupancy().places, 1969, "up to the last in use");
        for &(index, qpn) in &all {
            let is_there = stays(index.0 as usize);
            assert_eq!(t.find(qpn), is_there.then_some(index));
            assert_eq!(t.at(index).is_some(), is_there);
            t.remove(index);
        }
        t.shrink();
        let occupancy = Occupancy {
            used: 0,
            places: Occupancy::KEPT,
        };
        assert_eq!(t.occupancy(), occupancy);
        assert!(t.slots.capacity() + t.free_slots.capacity() < 4 * Occupancy::KEPT);
        // The number that was given back first comes first, after all that have waited longer.
        let again: Vec<_> = (0..MANY)
            .map(|_| t.insert_with(|_, _| 'b').expect("room").1)
            .collect();
        let waited = all.iter().filter(|(index, _)| !stays(index.0 as usize));
        let late = all.iter().filter(|(index, _)| stays(index.0 as usize));
        let order: Vec<_> = waited.chain(late).map(|&(_, qpn)| qpn).collect();
        assert_eq!(again, order);
        assert!(t.is_exhausted());
    }

    #[test]
    fn hundreds_of_qps_that_come_and_go_find_their_places() {
        let mut t = table(&[3]);
        for _ in 0..3 {
            let few = Occupancy::LARGE - 1;
            let all: Vec<_> = (0..few)
                .map(|_| t.insert_with(|_, _| 'a').expect("room").0)
                .collect();
            for index in all {
                t.remove(index);
            }
            t.shrink();
            assert_eq!(t.occupancy().places, few);
        }
    }

    #[test]
    fn an_order_that_depends_on_the_secret() {
        let order = |secret| {
            let mut t = QpnTable::new(secret);
            t.grant(QpnChunk(1));
            (0..8)
                .map(|_| t.insert_with(|_, _| ()).expect("room").1)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn without_neighbours_every_chunk_can_be_had() {
        let mut t = QpnTable::<()>::new(1);
        for _ in 0..CHUNKS {
            assert!(t.grant_any());
        }
        assert!(!t.grant_any());
        assert_eq!(t.granted().count(), CHUNKS);
    }
}
