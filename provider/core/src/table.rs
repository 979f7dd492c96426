//! Objects by number: a dense table with free slots, and the QPN that names a slot
//! on the wire. Nothing is hashed and nobody scans.

use urxe_wire::Qpn;

use crate::permute::Permutation24;

/// Place of a QP in its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct QpIndex(pub u32);

const SLOT_BITS: u32 = 16;
const GENERATION_MAX: u32 = 1 << (24 - SLOT_BITS);

/// A table of `T` whose places have unpredictable 24-bit numbers. A number is not
/// used again before its place was given out 256 times.
#[derive(Debug)]
pub struct QpTable<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    permutation: Permutation24,
}

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    generation: u32,
    qpn: Qpn,
}

impl<T> QpTable<T> {
    /// Most objects at once.
    pub const LEN_MAX: usize = 1 << SLOT_BITS;

    /// An empty table whose numbers follow from `secret`.
    pub fn new(secret: u64) -> Self {
        QpTable {
            slots: Vec::new(),
            free: Vec::new(),
            permutation: Permutation24::new(secret),
        }
    }

    /// Puts in what `make` returns for its place and number; `None` when full.
    pub fn insert_with(&mut self, make: impl FnOnce(QpIndex, Qpn) -> T) -> Option<(QpIndex, Qpn)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < Self::LEN_MAX => {
                self.slots.push(Slot {
                    value: None,
                    generation: 0,
                    qpn: Qpn::new(0),
                });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        // 0 and 1 are the management QPs and 0xffffff is multicast: never ours.
        let qpn = loop {
            slot.generation = (slot.generation + 1) % GENERATION_MAX;
            let number = self
                .permutation
                .forward((slot.generation << SLOT_BITS) | index);
            if !matches!(number, 0 | 1 | 0xff_ffff) {
                break Qpn::new(number);
            }
        };
        slot.qpn = qpn;
        slot.value = Some(make(QpIndex(index), qpn));
        Some((QpIndex(index), qpn))
    }

    /// Takes an object out.
    pub fn remove(&mut self, index: QpIndex) -> Option<T> {
        let value = self.slots.get_mut(index.0 as usize)?.value.take()?;
        self.free.push(index.0);
        Some(value)
    }

    /// The place that a number on the wire names, if it is in use.
    #[inline]
    pub fn find(&self, qpn: Qpn) -> Option<QpIndex> {
        let index = self.permutation.backward(qpn.get()) & ((1 << SLOT_BITS) - 1);
        let slot = self.slots.get(index as usize)?;
        (slot.qpn == qpn && slot.value.is_some()).then_some(QpIndex(index))
    }

    /// The object at a place.
    #[inline]
    pub fn at(&self, index: QpIndex) -> Option<&T> {
        self.slots.get(index.0 as usize)?.value.as_ref()
    }

    /// The object at a place, to change it.
    #[inline]
    pub fn at_mut(&mut self, index: QpIndex) -> Option<&mut T> {
        self.slots.get_mut(index.0 as usize)?.value.as_mut()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every object, by place. For reports; never on the packet path.
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

    #[test]
    fn numbers_name_places_until_they_are_free() {
        let mut t = QpTable::new(3);
        let (a, qpn_a) = t.insert_with(|_, _| 'a').expect("room");
        let (_, qpn_b) = t.insert_with(|_, _| 'b').expect("room");
        assert_eq!(t.find(qpn_a), Some(a));
        assert_eq!(t.remove(a), Some('a'));
        assert_eq!(t.find(qpn_a), None);
        let (again, qpn_c) = t.insert_with(|_, _| 'c').expect("room");
        assert_eq!(again, a);
        assert_ne!(qpn_c, qpn_a);
        assert_eq!(t.find(qpn_a), None, "an old number stays dead");
        assert_eq!(t.find(qpn_b).and_then(|i| t.at(i)), Some(&'b'));
        assert_eq!(t.len(), 2);
    }

    #[test]
    fn reserved_numbers_are_never_given_out_and_none_twice() {
        for secret in 0..40 {
            let mut t = QpTable::new(secret);
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..2000 {
                let (i, qpn) = t.insert_with(|_, _| ()).expect("room");
                assert!(!matches!(qpn.get(), 0 | 1 | 0xff_ffff));
                if seen.len() < 250 {
                    assert!(seen.insert(qpn), "{qpn:?} again");
                    t.remove(i);
                }
            }
        }
    }
}
