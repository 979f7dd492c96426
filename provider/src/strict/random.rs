//! The seed of strict mode's decisions, so that a failure can be repeated.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable with the seed.
const VARIABLE: &str = "URXE_SEED";

/// A small generator (SplitMix64): the same seed gives the same decisions.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The seed of this process, from `URXE_SEED` or else drawn from `fresh`; it is printed
/// when the first context asks. Each context gets another number from it.
pub(super) fn seed(fresh: u64) -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    static CONTEXTS: AtomicU64 = AtomicU64::new(0);
    let seed = SEED.get_or_init(|| {
        let given = std::env::var(VARIABLE).ok();
        let seed = match given.as_deref().map(parse) {
            Some(Some(seed)) => seed,
            Some(None) => {
                eprintln!("urxe: {VARIABLE} is not a number, so the seed is drawn");
                fresh & 0xffff_ffff
            }
            None => fresh & 0xffff_ffff,
        };
        eprintln!("urxe: strict mode is on; {VARIABLE}={seed} repeats this run's decisions");
        seed
    });
    seed.wrapping_add(CONTEXTS.fetch_add(1, Ordering::Relaxed) << 32)
}

/// A number, hexadecimal with `0x` or decimal.
fn parse(text: &str) -> Option<u64> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_decisions() {
        let decisions = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.below(1000))
        };
        assert_eq!(decisions(5), decisions(5));
        assert_ne!(decisions(5), decisions(6));
    }

    #[test]
    fn seeds_are_numbers() {
        assert_eq!(parse("12"), Some(12));
        assert_eq!(parse(" 0xff "), Some(255));
        assert_eq!(parse("seven"), None);
    }
}
