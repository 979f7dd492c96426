//! Detects changes of a send buffer: a hash of each small piece, so that a report can say
//! where it changed.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;

/// Bytes that share a hash.
pub(super) const PIECE: usize = 64;

/// The hashes of a buffer.
#[derive(Debug, Default)]
pub(super) struct Hashes(Vec<u64>);

impl Hashes {
    pub(super) fn of(bytes: &[u8]) -> Hashes {
        Hashes(bytes.chunks(PIECE).map(hash).collect())
    }

    /// Offset of the first piece that is not what it was.
    pub(super) fn first_change(&self, bytes: &[u8]) -> Option<usize> {
        let pieces = bytes.chunks(PIECE).zip(&self.0);
        let changed = pieces
            .into_iter()
            .position(|(now, then)| hash(now) != *then);
        changed.map(|piece| piece * PIECE)
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changed_piece_is_named() {
        for len in [0, 1, 63, 64, 65, 1000] {
            let mut bytes = vec![7; len];
            let hashes = Hashes::of(&bytes);
            assert_eq!(hashes.first_change(&bytes), None);
            for at in 0..len {
                bytes[at] = 8;
                assert_eq!(hashes.first_change(&bytes), Some(at / PIECE * PIECE));
                bytes[at] = 7;
            }
        }
    }
}
