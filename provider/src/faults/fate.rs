//! Decides the faults of each packet: a function of the seed and the packet's number, so that a
//! run can be repeated.

use core::time::Duration;

use urxe_core::mix::SplitMix64;

use super::spec::FaultSpec;

/// Most packets that overtake one.
const OVERTAKERS_MAX: u64 = 3;

/// The faults of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fate {
    pub(super) is_dropped: bool,
    pub(super) is_duplicated: bool,
    /// A number from which the bit follows that is wrong.
    pub(super) corrupt: Option<u64>,
    /// Later packets that leave before it.
    pub(super) overtakers: u8,
    pub(super) delay: Duration,
}

/// The fates of all packets, one after another.
#[derive(Debug)]
pub(super) struct Fates {
    spec: FaultSpec,
    seed: u64,
    count: u64,
}

impl Fates {
    pub(super) fn new(spec: FaultSpec, seed: u64) -> Fates {
        Fates {
            spec,
            seed,
            count: 0,
        }
    }

    /// The faults of the next packet.
    pub(super) fn next(&mut self) -> Fate {
        // A generator of its own for each, from which all is drawn whether it is needed or
        // not: what happens to one packet, and one share, changes nothing for the others.
        let mut random =
            SplitMix64::new(self.seed ^ self.count.wrapping_mul(0xd134_2543_de82_ef95));
        self.count += 1;
        let mut draw = || random.below(1 << 32) as u32;
        let spec = &self.spec;
        let is_dropped = spec.drop.includes(draw());
        let is_duplicated = spec.duplicate.includes(draw());
        let is_corrupted = spec.corrupt.includes(draw());
        let is_overtaken = spec.reorder.includes(draw());
        let bit = random.below(u64::MAX);
        let overtakers = 1 + random.below(OVERTAKERS_MAX) as u8;
        let late = random.below(u64::MAX);
        Fate {
            is_dropped,
            is_duplicated,
            corrupt: is_corrupted.then_some(bit),
            overtakers: if is_overtaken { overtakers } else { 0 },
            delay: spec.delay.map_or(Duration::ZERO, |(low, high)| {
                let span = (high - low).as_nanos() as u64 + 1;
                low + Duration::from_nanos(late % span)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(text: &str, seed: u64, count: usize) -> Vec<Fate> {
        let mut fates = Fates::new(text.parse().expect("a specification"), seed);
        (0..count).map(|_| fates.next()).collect()
    }

    const ALL: &str = "drop=5%,dup=5%,reorder=5%,corrupt=5%,delay=1us..9us";

    #[test]
    fn the_same_seed_gives_the_same_fates() {
        assert_eq!(fates(ALL, 7, 1000), fates(ALL, 7, 1000));
        assert_ne!(fates(ALL, 7, 1000), fates(ALL, 8, 1000));
    }

    #[test]
    fn the_numbers_are_those_that_were_asked_for() {
        let fates = fates("drop=2%,dup=1%,reorder=10%,corrupt=0.5%", 7, 100_000);
        let near = |what: &str, wanted: usize, is: fn(&Fate) -> bool| {
            let count = fates.iter().filter(|f| is(f)).count();
            // Four standard deviations are below a fifth for the rarest.
            assert!(count.abs_diff(wanted) < wanted / 5, "{what}: {count}");
        };
        near("dropped", 2000, |f| f.is_dropped);
        near("duplicated", 1000, |f| f.is_duplicated);
        near("overtaken", 10_000, |f| f.overtakers > 0);
        near("corrupted", 500, |f| f.corrupt.is_some());
        assert!(fates.iter().all(|f| f.delay.is_zero()));
        assert!((1..=3).all(|n| fates.iter().any(|f| f.overtakers == n)));
    }

    /// To find out which kind of fault a program stumbles over, one takes the others away.
    #[test]
    fn one_kind_of_fault_changes_nothing_for_the_others() {
        let (all, one) = (fates(ALL, 7, 1000), fates("drop=5%", 7, 1000));
        let dropped = |fates: &[Fate]| fates.iter().map(|f| f.is_dropped).collect::<Vec<_>>();
        assert_eq!(dropped(&all), dropped(&one));
    }

    #[test]
    fn delays_are_within_their_limits() {
        let us = Duration::from_micros;
        let fates = fates(ALL, 7, 1000);
        assert!(fates.iter().all(|f| (us(1)..=us(9)).contains(&f.delay)));
        assert!(fates.iter().any(|f| f.delay < us(2)) && fates.iter().any(|f| f.delay > us(8)));
    }
}
