//! The place (index) of a QP or SRQ, which names it everywhere but on the wire; and when a table of places has become too large.

/// Place of a QP in its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct QpIndex(pub u32);

/// Place of a shared receive queue in its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct SrqId(pub u32);

impl SrqId {
    /// Bits of a place.
    const PLACE_BITS: u32 = 24;

    /// The same place as a device of several shards names it, where each has a table of its own.
    pub fn of_shard(self, shard: u32) -> SrqId {
        debug_assert!(self.0 >> Self::PLACE_BITS == 0 && shard >> (32 - Self::PLACE_BITS) == 0);
        SrqId(shard << Self::PLACE_BITS | self.0)
    }
}

/// How many of a table's places are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Places with something in them.
    pub used: usize,
    /// Places that there are: as many as were used at once since the table was last made smaller.
    pub places: usize,
}

impl Occupancy {
    /// A table of fewer places is never made smaller: connections that come and go by the hundred find what the
    /// others left.
    pub const LARGE: usize = 1024;
    /// Places that are left at least. It takes four times as many at once before the table is made smaller again.
    pub const KEPT: usize = 256;

    /// That of a table with so many free places.
    #[inline]
    pub fn of<T>(table: &[T], free: usize) -> Occupancy {
        Occupancy {
            used: table.len() - free,
            places: table.len(),
        }
    }

    /// True if hardly anything is left in a large table: a sixteenth or less.
    #[inline]
    pub fn is_sparse(self) -> bool {
        self.places >= Self::LARGE && self.used <= self.places / 16
    }

    /// True if it is sparse since the last one left, or if that was the very last: to report it once, not with
    /// each that leaves.
    #[inline]
    pub fn turns_sparse(self) -> bool {
        self.is_sparse() && (self.used == self.places / 16 || self.used == 0)
    }

    /// Places that a table keeps which gives up those behind the last one in use.
    fn places_to_keep<T>(table: &[T], is_used: impl Fn(&T) -> bool) -> usize {
        let used = table.iter().rposition(is_used).map_or(0, |last| last + 1);
        used.max(Self::KEPT).min(table.len())
    }
}

/// Gives up the places of a table behind the last one in use, if hardly any of very many are used ([`Occupancy::is_sparse`]);
/// `free` names those that are not in use. Returns true if there are fewer places now, or may be. Looks at all places.
pub fn shrink<T>(table: &mut Vec<T>, free: &mut Vec<u32>, is_used: impl Fn(&T) -> bool) -> bool {
    let is_sparse = Occupancy::of(table, free.len()).is_sparse();
    if is_sparse {
        let places = Occupancy::places_to_keep(table, is_used);
        cut(table, places);
        free.retain(|&place| (place as usize) < places);
        free.shrink_to_fit();
    }
    is_sparse
}

/// Shortens a table and gives the memory back.
pub fn cut<T>(table: &mut Vec<T>, places: usize) {
    table.truncate(places);
    table.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_tables_are_ever_sparse() {
        let is_sparse = |used, places| Occupancy { used, places }.is_sparse();
        assert!(!is_sparse(0, Occupancy::LARGE - 1));
        assert!(is_sparse(0, Occupancy::LARGE));
        assert!(is_sparse(1000, 16_000) && !is_sparse(1001, 16_000));
    }

    #[test]
    fn it_is_told_twice_on_the_way_down() {
        let told = (0..=2000)
            .rev()
            .filter(|&used| Occupancy { used, places: 2000 }.turns_sparse());
        assert_eq!(told.collect::<Vec<_>>(), [125, 0]);
    }

    #[test]
    fn what_is_in_use_and_a_few_more_are_kept() {
        let keep = |used: &[usize], len: usize| {
            let table: Vec<bool> = (0..len).map(|place| used.contains(&place)).collect();
            Occupancy::places_to_keep(&table, |&is_used| is_used)
        };
        assert_eq!(keep(&[], 5000), Occupancy::KEPT);
        assert_eq!(keep(&[3, 700], 5000), 701);
        assert_eq!(keep(&[4999], 5000), 5000);
        assert_eq!(keep(&[], 7), 7);
    }
}
