//! The trace hash: one number for all events, in order.

use core::fmt;

use urxe_core::mix::mix64;

use super::Time;

/// Hash of a run. Two runs with equal hashes had the same events at the same times in the
/// same order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceHash {
    state: u64,
    events: u64,
}

impl Default for TraceHash {
    fn default() -> Self {
        TraceHash {
            state: 0x7261_6365_2068_6173,
            events: 0,
        }
    }
}

impl TraceHash {
    /// Takes one event in.
    #[inline]
    pub fn record(&mut self, time: Time, place: u64, what: u64) {
        let state = (self.state ^ time.ps()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let state = (state ^ place)
            .rotate_left(29)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.state = (state ^ what ^ (state >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.events += 1;
    }

    /// The hash.
    pub fn value(&self) -> u64 {
        mix64(self.state ^ self.events)
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
    fn order_time_place_and_content_count() {
        let hash = |events: &[(u64, u64, u64)]| {
            let mut hash = TraceHash::default();
            for &(time, place, what) in events {
                hash.record(Time::from_ps(time), place, what);
            }
            hash.value()
        };
        let base = hash(&[(1, 2, 3), (1, 4, 5)]);
        assert_eq!(base, hash(&[(1, 2, 3), (1, 4, 5)]));
        for other in [
            &[(1, 4, 5), (1, 2, 3)][..],
            &[(1, 2, 3), (2, 4, 5)],
            &[(1, 2, 3), (1, 4, 6)],
            &[(1, 2, 3), (1, 5, 5)],
            &[(1, 2, 3)],
            &[],
        ] {
            assert_ne!(base, hash(other), "{other:?}");
        }
    }
}
