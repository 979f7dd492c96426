//! Numbers that look random, from a seed or a secret.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes 64 bits so that each of them depends on each (the finaliser of SplitMix64).
#[inline]
pub const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A small generator (SplitMix64): the same seed gives the same numbers. They hide an order if the seed is a secret, and
/// are no keys.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The numbers of a seed.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix64(self.0)
    }

    /// Goes on as if so many had been drawn.
    #[inline]
    pub const fn skip(&mut self, count: u64) {
        self.0 = self.0.wrapping_add(STEP.wrapping_mul(count));
    }

    /// A number below `end`, which is not 0. The bias of a remainder of 64 bits is far below what could be noticed.
    #[inline]
    pub const fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(
            [(); 3].map(|()| random.bits()),
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
        let mut ahead = random.clone();
        ahead.skip(100);
        assert!((0..100).all(|_| random.below(7) < 7));
        assert_eq!(ahead.bits(), random.bits());
    }
}
