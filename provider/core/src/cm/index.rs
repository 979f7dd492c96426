//! A hash index: finds a place by a key, at a cost that does not grow with their number. The
//! keys are hashed with a secret, so that no peer can make them meet in one bucket.

use core::net::IpAddr;

use urxe_wire::Gid;

use crate::mix::SplitMix64;
use crate::table::cut;

const NONE: u32 = u32::MAX;
/// Buckets to begin with.
const BUCKETS: usize = 16;

/// Chains of places by hash.
#[derive(Debug)]
pub(super) struct Index {
    heads: Vec<u32>,
    /// By place: the next in its chain, and its hash.
    links: Vec<(u32, u64)>,
    len: usize,
}

impl Default for Index {
    fn default() -> Index {
        Index {
            heads: vec![NONE; BUCKETS],
            links: Vec::new(),
            len: 0,
        }
    }
}

impl Index {
    /// The first place with this hash that is the right one.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut at = self.heads[self.bucket(hash)];
        while at != NONE {
            let (next, other) = self.links[at as usize];
            if other == hash && is_it(at as usize) {
                return Some(at as usize);
            }
            at = next;
        }
        None
    }

    /// Puts a place in, which is in it not yet.
    pub(super) fn insert(&mut self, hash: u64, place: usize) {
        if self.len >= self.heads.len() {
            self.rebuild(self.heads.len() * 2);
        }
        if self.links.len() <= place {
            self.links.resize(place + 1, (NONE, 0));
        }
        let bucket = self.bucket(hash);
        self.links[place] = (self.heads[bucket], hash);
        self.heads[bucket] = place as u32;
        self.len += 1;
    }

    /// Takes it out.
    pub(super) fn remove(&mut self, hash: u64, place: usize) {
        let bucket = self.bucket(hash);
        let mut at = self.heads[bucket];
        let mut before = NONE;
        while at != NONE {
            let next = self.links[at as usize].0;
            if at as usize == place {
                match before {
                    NONE => self.heads[bucket] = next,
                    before => self.links[before as usize].0 = next,
                }
                self.len -= 1;
                return;
            }
            (before, at) = (at, next);
        }
    }

    /// Gives up the places from `places` on, which are not in it, and buckets that there are too many of.
    pub(super) fn shrink(&mut self, places: usize) {
        let buckets = self.len.next_power_of_two().max(BUCKETS);
        if buckets < self.heads.len() {
            self.rebuild(buckets);
        }
        cut(&mut self.links, places);
    }

    /// Deals everything out again, to another number of buckets: a power of two.
    fn rebuild(&mut self, buckets: usize) {
        let old = core::mem::replace(&mut self.heads, vec![NONE; buckets]);
        for head in old {
            let mut at = head;
            while at != NONE {
                let (next, hash) = self.links[at as usize];
                let bucket = self.bucket(hash);
                self.links[at as usize].0 = self.heads[bucket];
                self.heads[bucket] = at;
                at = next;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.heads.capacity().max(self.links.capacity())
    }

    /// The number of buckets is a power of two.
    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }
}

/// Mixes numbers with a secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher(u64);

impl Hasher {
    pub(super) fn new(secret: u64) -> Hasher {
        Hasher(secret)
    }

    pub(super) fn hash(self, numbers: &[u64]) -> u64 {
        numbers.iter().fold(self.0, |hash, &number| {
            SplitMix64::new(hash ^ number).bits()
        })
    }
}

/// An address as two numbers.
pub(super) fn halves(addr: IpAddr) -> [u64; 2] {
    let bits = u128::from_be_bytes(Gid::from(addr).0);
    [(bits >> 64) as u64, bits as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_until_it_is_taken_out() {
        let hasher = Hasher::new(5);
        let mut index = Index::default();
        let hash = |key: u64| hasher.hash(&[key]);
        for place in 0..1000 {
            index.insert(hash(place as u64 % 500), place);
        }
        for place in (0..1000).rev() {
            let key = place as u64 % 500;
            assert_eq!(index.find(hash(key), |p| p == place), Some(place));
            index.remove(hash(key), place);
            assert_eq!(index.find(hash(key), |p| p == place), None);
        }
        assert_eq!(index.len, 0);
    }

    #[test]
    fn chains_stay_short() {
        let hasher = Hasher::new(6);
        let mut index = Index::default();
        for place in 0..10_000 {
            index.insert(hasher.hash(&[place as u64, 7]), place);
        }
        let mut longest = 0;
        for head in &index.heads {
            let (mut at, mut length) = (*head, 0);
            while at != NONE {
                length += 1;
                at = index.links[at as usize].0;
            }
            longest = longest.max(length);
        }
        assert!(longest < 12, "{longest} in one bucket");
    }
}
