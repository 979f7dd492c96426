//! A keyed permutation of 24-bit numbers, so that a memory key tells a
//! stranger nothing about the next one, while a lookup stays arithmetic: no
//! hashing, no table. It hides, but is no cipher (memory keys travel in clear).

use crate::mix::SplitMix64;

/// A keyed bijection on `0..2^24`.
#[derive(Clone, Copy)]
pub(crate) struct Permutation24 {
    round_keys: [u32; 4],
}

const HALF_BITS: u32 = 12;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;

impl Permutation24 {
    /// Makes the permutation that belongs to a secret.
    pub(crate) fn new(secret: u64) -> Self {
        let mut spread = SplitMix64::new(secret);
        let round_keys = core::array::from_fn(|_| spread.bits() as u32 | 1);
        Permutation24 { round_keys }
    }

    /// The image of `value` (24 bits).
    #[inline]
    pub(crate) fn forward(&self, value: u32) -> u32 {
        let (mut left, mut right) = ((value >> HALF_BITS) & HALF_MASK, value & HALF_MASK);
        for key in self.round_keys {
            (left, right) = (right, left ^ round(right, key));
        }
        (left << HALF_BITS) | right
    }

    /// The value that [`Permutation24::forward`] maps to `image` (24 bits).
    #[inline]
    pub(crate) fn backward(&self, image: u32) -> u32 {
        let (mut left, mut right) = ((image >> HALF_BITS) & HALF_MASK, image & HALF_MASK);
        for key in self.round_keys.iter().rev() {
            (left, right) = (right ^ round(left, *key), left);
        }
        (left << HALF_BITS) | right
    }
}

impl core::fmt::Debug for Permutation24 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Permutation24(secret)")
    }
}

#[inline]
fn round(half: u32, key: u32) -> u32 {
    let x = (half ^ (key >> 20)).wrapping_mul(key);
    ((x >> 15) ^ (x >> 3)) & HALF_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_bijection() {
        let p = Permutation24::new(0x1234_5678_9abc_def0);
        let mut seen = vec![false; 1 << 24];
        for v in 0..1 << 24 {
            let image = p.forward(v);
            assert!(image < 1 << 24);
            assert!(
                !core::mem::replace(&mut seen[image as usize], true),
                "{image:#x} twice"
            );
            assert_eq!(p.backward(image), v);
        }
    }

    #[test]
    fn neighbours_are_far_apart_and_secrets_differ() {
        let (a, b) = (Permutation24::new(1), Permutation24::new(2));
        let same = (0..4096).filter(|&v| a.forward(v) == b.forward(v)).count();
        assert!(
            same < 16,
            "{same} of 4096 images are equal under two secrets"
        );
        let close = (0..4096)
            .filter(|&v| a.forward(v).abs_diff(a.forward(v + 1)) < 64)
            .count();
        assert!(close < 64, "{close} of 4096 neighbours stay neighbours");
    }
}
