//! The trace hash: one number for all events.

use core::fmt;

use urxe_core::mix::mix64;

use super::Time;

/// Hash of a run. Two runs with equal hashes had the same events at the same times and places.
///
/// It is a sum over the events, so that the parts of a network can be counted by themselves. Times and places
/// are in each summand: what was in another order where order makes a difference has another hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TraceHash {
    sum: u64,
    events: u64,
}

impl TraceHash {
    /// Takes one event in.
    #[inline]
    pub fn record(&mut self, time: Time, place: u64, what: u64) {
        let state = (time.ps() ^ 0x7261_6365_2068_6173).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let state = (state ^ (state >> 32) ^ place)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.sum = self.sum.wrapping_add(mix64(state ^ what));
        self.events += 1;
    }

    /// Takes all events in that another one has.
    pub(crate) fn join(&mut self, other: TraceHash) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.events += other.events;
    }

    /// The hash.
    pub fn value(&self) -> u64 {
        mix64(self.sum ^ self.events)
    }

    /// Events taken in.
    pub fn events(&self) -> u64 {
        self.events
    }
}

impl fmt::Display for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.value())
    }
}

impl fmt::Debug for TraceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceHash({self} of {} events)", self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_place_and_content_count() {
        let hash = |events: &[(u64, u64, u64)]| {
            let mut hash = TraceHash::default();
            for &(time, place, what) in events {
                hash.record(Time::from_ps(time), place, what);
            }
            hash.value()
        };
        let base = hash(&[(1, 2, 3), (1, 4, 5)]);
        assert_eq!(base, hash(&[(1, 2, 3), (1, 4, 5)]));
        // At two places at one time there is no order.
        assert_eq!(base, hash(&[(1, 4, 5), (1, 2, 3)]));
        for other in [
            &[(1, 2, 5), (1, 4, 3)][..],
            &[(1, 2, 3), (2, 4, 5)],
            &[(2, 2, 3), (1, 4, 5)],
            &[(1, 2, 3), (1, 4, 6)],
            &[(1, 2, 3), (1, 5, 5)],
            &[(1, 2, 3)],
            &[],
        ] {
            assert_ne!(base, hash(other), "{other:?}");
        }
    }
}
