//! Random numbers in streams: each entity has one for each purpose, so that a draw more in one
//! place (another fault, another flow) changes no draw anywhere else.

use urxe_core::mix::{SplitMix64, mix64};

/// The entity that draws random numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entity {
    /// The simulation as a whole.
    World,
    /// A host, by number.
    Host(u32),
    /// A switch, by number.
    Switch(u32),
    /// A port, by number: also what happens on the cable that leaves it.
    Port(u32),
    /// A flow, by number.
    Flow(u32),
    /// A fault, by its place in the schedule.
    Fault(u32),
}

impl Entity {
    fn number(self) -> u64 {
        let (kind, id) = match self {
            Entity::World => (1, 0),
            Entity::Host(id) => (2, id),
            Entity::Switch(id) => (3, id),
            Entity::Port(id) => (4, id),
            Entity::Flow(id) => (5, id),
            Entity::Fault(id) => (6, id),
        };
        kind << 32 | u64::from(id)
    }
}

/// A stream of random numbers (xoshiro256++): the same on every machine and in every
/// version of this crate that does not say otherwise in the changelog.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The stream of `entity` for `purpose` under a seed.
    pub fn stream(seed: u64, entity: Entity, purpose: &str) -> Rng {
        let mut state = mix64(seed ^ 0x6661_6272_6963_2d73);
        state = mix64(state ^ entity.number());
        for byte in purpose.bytes() {
            state = mix64(state ^ u64::from(byte));
        }
        Rng::new(state)
    }

    /// A stream from a number.
    pub fn new(seed: u64) -> Rng {
        // Seeded as its authors ask for: by another generator, never all zero.
        let mut other = SplitMix64::new(seed);
        Rng([(); 4].map(|()| other.bits()))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `end`; 0 if that is 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        // The upper half of a product: biased by less than `end` in 2^64.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// True with the probability that [`Rng::odds`] made a number of.
    #[inline]
    pub fn hits(&mut self, odds: u64) -> bool {
        odds == u64::MAX || self.bits() < odds
    }

    /// A probability as a threshold among 2^64: computed once, compared exactly.
    pub fn odds(probability: f64) -> u64 {
        // A float is exact in these operations on every machine; `as` saturates.
        (probability.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u64
    }

    /// Evenly from [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Exponentially distributed with mean 1, in 2^-32: for Poisson arrivals. Built from
    /// integers alone, as `ln` of the C library may differ from machine to machine.
    pub fn exponential_q32(&mut self) -> u64 {
        // -ln(u) = k ln 2 - ln(m) with u = m 2^-k, m in [1, 2).
        const LN2_Q32: u64 = 2_977_044_472;
        let bits = self.bits() | 1;
        let k = u64::from(bits.leading_zeros()) + 1;
        let mantissa = bits << bits.leading_zeros();
        k * LN2_Q32 - ln_q32(mantissa)
    }
}

/// Natural logarithm, in 2^-32, of `m` * 2^-63 for a number of [1, 2): by squaring, a bit of
/// the binary logarithm at a time.
fn ln_q32(m: u64) -> u64 {
    let mut x = m;
    let mut log2: u64 = 0;
    for _ in 0..32 {
        let square = (u128::from(x) * u128::from(x)) >> 63;
        log2 <<= 1;
        if square >> 64 != 0 {
            log2 |= 1;
            x = (square >> 1) as u64;
        } else {
            x = square as u64;
        }
    }
    ((u128::from(log2) * 2_977_044_472) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_their_own_and_the_same_every_time() {
        let first = |entity, purpose| Rng::stream(7, entity, purpose).bits();
        let all = [
            first(Entity::World, "a"),
            first(Entity::World, "b"),
            first(Entity::Host(0), "a"),
            first(Entity::Switch(0), "a"),
            first(Entity::Host(1), "a"),
            Rng::stream(8, Entity::World, "a").bits(),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(!all[..i].contains(a), "stream {i} repeats another");
        }
        // Would change with the generator: then so does every published seed.
        assert_eq!(Rng::new(1).bits(), 0xcfc5_d07f_6f03_c29b);
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let mut rng = Rng::new(3);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(
            counts.iter().all(|n| (9_600..10_400).contains(n)),
            "{counts:?}"
        );
        let tenth = Rng::odds(0.1);
        let hits = (0..100_000).filter(|_| rng.hits(tenth)).count();
        assert!((9_600..10_400).contains(&hits), "{hits}");
        assert!(!rng.hits(Rng::odds(0.0)) && rng.hits(Rng::odds(1.0)));
    }

    #[test]
    fn waiting_times_are_exponential() {
        let mut rng = Rng::new(5);
        let draws: Vec<f64> = (0..200_000)
            .map(|_| rng.exponential_q32() as f64 / 4_294_967_296.0)
            .collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let beyond = |x: f64| draws.iter().filter(|&&d| d > x).count() as f64 / draws.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        for x in [0.5f64, 1.0, 2.0, 4.0] {
            assert!((beyond(x) - (-x).exp()).abs() < 0.004, "{x}: {}", beyond(x));
        }
    }
}
