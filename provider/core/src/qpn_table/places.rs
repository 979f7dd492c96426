//! Where the QP of a number is. A look-up is an index into a page, which is there once a number of it was used.

use urxe_wire::Qpn;

use super::chunk::{CHUNK_LEN, CHUNKS, QpnChunk};
use crate::table::QpIndex;

/// Numbers of a page.
const PAGE_LEN: usize = 64;
/// Pages of a chunk.
const PAGES: usize = CHUNK_LEN / PAGE_LEN;

/// No QP has this number.
const UNUSED: u32 = u32::MAX;
/// The page is not there.
const NO_PAGE: u8 = u8::MAX;
/// No chunk of ours.
const FOREIGN: u16 = u16::MAX;

/// As many chunks are compared with one after the other, before there is a table of all chunks.
const FEW: usize = 4;

/// A chunk of ours.
#[derive(Debug)]
struct Owned {
    chunk: QpnChunk,
    /// By the upper bits of the number in the chunk: the place of its page.
    index: [u8; PAGES],
    /// By the lower bits: the place of the QP that has it.
    pages: Vec<[u32; PAGE_LEN]>,
}

/// The chunks of a table, and the QPs in them by number.
#[derive(Debug)]
pub(super) struct Places {
    owned: Vec<Owned>,
    /// The chunks in `owned`, as far as they are few.
    few: [u16; FEW],
    /// By chunk: its place in `owned`, if those are more than few; else empty.
    all: Box<[u16]>,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            owned: Vec::new(),
            few: [FOREIGN; FEW],
            all: Box::default(),
        }
    }
}

impl Places {
    /// Adds a chunk, which it must not have.
    pub(super) fn own(&mut self, chunk: QpnChunk) {
        debug_assert!(!self.has(chunk));
        let place = self.owned.len();
        self.owned.push(Owned {
            chunk,
            index: [NO_PAGE; PAGES],
            pages: Vec::new(),
        });
        match self.few.get_mut(place) {
            Some(few) => *few = chunk.0,
            None => {
                if self.all.is_empty() {
                    self.all = vec![FOREIGN; CHUNKS].into();
                    for (place, few) in (0..).zip(self.few) {
                        self.all[usize::from(few)] = place;
                    }
                }
                self.all[usize::from(chunk.0)] = place as u16;
            }
        }
    }

    /// The chunks, the first added first.
    pub(super) fn chunks(&self) -> impl Iterator<Item = QpnChunk> + '_ {
        self.owned.iter().map(|owned| owned.chunk)
    }

    /// True if it has the chunk.
    #[inline]
    pub(super) fn has(&self, chunk: QpnChunk) -> bool {
        self.place_of(chunk).is_some()
    }

    #[inline]
    fn place_of(&self, chunk: QpnChunk) -> Option<usize> {
        if self.all.is_empty() {
            return self.few.iter().position(|&few| few == chunk.0);
        }
        match self.all[usize::from(chunk.0)] {
            FOREIGN => None,
            place => Some(usize::from(place)),
        }
    }

    /// The QP that has a number.
    #[inline]
    pub(super) fn find(&self, qpn: Qpn) -> Option<QpIndex> {
        let owned = self.owned.get(self.place_of(QpnChunk::of(qpn))?)?;
        let (page, at) = split(qpn);
        match owned.pages.get(usize::from(owned.index[page]))?[at] {
            UNUSED => None,
            index => Some(QpIndex(index)),
        }
    }

    /// A QP has the number from now on, or none has.
    ///
    /// # Panics
    /// If it is not of a chunk of ours.
    pub(super) fn set(&mut self, qpn: Qpn, index: Option<QpIndex>) {
        let place = self.place_of(QpnChunk::of(qpn));
        let owned = &mut self.owned[place.expect("its chunk is ours")];
        let (page, at) = split(qpn);
        if owned.index[page] == NO_PAGE {
            owned.index[page] = owned.pages.len() as u8;
            owned.pages.push([UNUSED; PAGE_LEN]);
        }
        let page = &mut owned.pages[usize::from(owned.index[page])];
        page[at] = index.map_or(UNUSED, |index| index.0);
    }
}

/// Which page of its chunk a number is in, and where in that.
#[inline]
fn split(qpn: Qpn) -> (usize, usize) {
    let number = qpn.get() as usize % CHUNK_LEN;
    (number / PAGE_LEN, number % PAGE_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qpn_table::chunk::CHUNK_BITS;

    #[test]
    fn all_numbers_of_all_chunks_have_a_place() {
        let mut places = Places::default();
        let chunks: Vec<u16> = (0..2 * FEW as u16).map(|n| n * 511).collect();
        let numbers = |chunk: u16| {
            let first = u32::from(chunk) << CHUNK_BITS;
            (first..first + CHUNK_LEN as u32).step_by(17).map(Qpn::new)
        };
        for (n, &chunk) in chunks.iter().enumerate() {
            assert!(!places.has(QpnChunk(chunk)));
            places.own(QpnChunk(chunk));
            assert!(numbers(chunk).all(|qpn| places.find(qpn).is_none()));
            for qpn in numbers(chunk) {
                places.set(qpn, Some(QpIndex(qpn.get())));
            }
            for qpn in chunks[..=n].iter().flat_map(|&chunk| numbers(chunk)) {
                assert_eq!(places.find(qpn), Some(QpIndex(qpn.get())));
                let beside = Qpn::new(qpn.get() + 1);
                assert_eq!(places.find(beside), None);
            }
        }
        assert!(places.chunks().map(|chunk| chunk.0).eq(chunks));
        assert!(!places.has(QpnChunk(1)));
        let gone = Qpn::new(511 << CHUNK_BITS);
        places.set(gone, None);
        assert_eq!(places.find(gone), None);
    }
}
