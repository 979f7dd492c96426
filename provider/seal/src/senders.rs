//! Keys with what is kept for each, in memory that does not move: so that keys leave no copies where they were, and lie close together.

use std::collections::HashMap;
use std::hash::Hash;

use crate::Hide;

/// Entries that lie together: with their keys some 160 KiB, which the system gives as pages of their own.
const CHUNK: usize = 128;

/// A table of at most so many entries, each found by an identifier.
pub(crate) struct Table<I, T> {
    /// Each full but the last, none ever grown.
    chunks: Vec<Vec<(I, T)>>,
    places: HashMap<I, usize>,
    /// What was found last: most packets come in trains.
    last: Option<(I, usize)>,
    free: Vec<usize>,
    hide: Hide,
}

impl<I: Copy + Eq + Hash, T> Table<I, Option<T>> {
    pub(crate) fn new(hide: Hide) -> Table<I, Option<T>> {
        Table {
            chunks: Vec::new(),
            places: HashMap::new(),
            last: None,
            free: Vec::new(),
            hide,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &I> {
        self.places.keys()
    }

    #[inline]
    pub(crate) fn find(&mut self, id: &I) -> Option<usize> {
        if let Some((last, place)) = &self.last
            && last == id
        {
            return Some(*place);
        }
        let place = *self.places.get(id)?;
        self.last = Some((*id, place));
        Some(place)
    }

    /// What is at a place that [`Table::find`] returned.
    #[inline]
    pub(crate) fn at(&mut self, place: usize) -> &mut T {
        let (_, entry) = &mut self.chunks[place / CHUNK][place % CHUNK];
        entry.as_mut().expect("a place that was found is taken")
    }

    /// Adds one that is not there.
    #[cold]
    pub(crate) fn insert(&mut self, id: I, entry: T) -> usize {
        let place = if let Some(place) = self.free.pop() {
            self.chunks[place / CHUNK][place % CHUNK] = (id, Some(entry));
            place
        } else {
            if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
                let chunk: Vec<(I, Option<T>)> = Vec::with_capacity(CHUNK);
                (self.hide)(chunk.as_ptr().cast(), size_of::<(I, Option<T>)>() * CHUNK);
                self.chunks.push(chunk);
            }
            let chunks = self.chunks.len() - 1;
            let chunk = &mut self.chunks[chunks];
            chunk.push((id, Some(entry)));
            chunks * CHUNK + chunk.len() - 1
        };
        self.places.insert(id, place);
        self.last = Some((id, place));
        place
    }

    /// True if there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Takes one out, if it is there.
    #[cold]
    pub(crate) fn remove(&mut self, id: &I) {
        self.last = None;
        if let Some(place) = self.places.remove(id) {
            self.chunks[place / CHUNK][place % CHUNK].1 = None;
            self.free.push(place);
        }
    }

    /// Takes out those that `keep` says no to.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&I) -> bool) {
        self.last = None;
        let Table {
            chunks,
            places,
            free,
            ..
        } = self;
        places.retain(|id, place| {
            let stays = keep(id);
            if !stays {
                chunks[*place / CHUNK][*place % CHUNK].1 = None;
                free.push(*place);
            }
            stays
        });
    }

    /// Gives up the memory behind the last entry.
    #[cold]
    pub(crate) fn shrink(&mut self) {
        let is_used = |chunk: &Vec<(I, Option<T>)>| chunk.iter().any(|(_, entry)| entry.is_some());
        let chunks = self.chunks.iter().rposition(is_used).map_or(0, |k| k + 1);
        self.chunks.truncate(chunks);
        self.free.retain(|place| place / CHUNK < chunks);
        self.free.shrink_to_fit();
        self.places.shrink_to_fit();
        self.last = None;
    }

    /// Takes out the one with the smallest number of some that are next in turn.
    #[cold]
    pub(crate) fn evict(&mut self, turn: u64, number: impl Fn(&T) -> u64) {
        /// As many are looked at.
        const LOOK: u64 = 64;
        let total = self.chunks.iter().map(Vec::len).sum::<usize>() as u64;
        let places = (0..LOOK.min(total)).map(|n| ((turn * LOOK + n) % total) as usize);
        let oldest = places
            .filter_map(|place| {
                let (id, entry) = &self.chunks[place / CHUNK][place % CHUNK];
                Some((number(entry.as_ref()?), *id))
            })
            .min_by_key(|(number, _)| *number);
        if let Some((_, oldest)) = oldest {
            self.retain(|id| *id != oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_behind_the_last_entry() {
        let mut table: Table<usize, Option<usize>> = Table::new(|_, _| {});
        for id in 0..10 * CHUNK {
            table.insert(id, 3 * id);
        }
        let stays = CHUNK + 5;
        (0..10 * CHUNK)
            .filter(|&id| id != stays)
            .for_each(|id| table.remove(&id));
        table.shrink();
        assert_eq!((table.chunks.len(), table.len()), (2, 1));
        assert!(table.places.capacity() < CHUNK);
        for id in 10 * CHUNK..20 * CHUNK {
            table.insert(id, 3 * id);
        }
        for id in (10 * CHUNK..20 * CHUNK).chain([stays]) {
            let place = table.find(&id).expect("there");
            assert_eq!(*table.at(place), 3 * id);
        }
        assert_eq!(table.chunks.len(), 11, "free places come first");
        table.retain(|_| false);
        table.shrink();
        assert!(table.chunks.is_empty() && table.is_empty());
        assert_eq!(table.insert(1, 2), 0);
    }
}
