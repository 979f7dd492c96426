//! Time in the core: a number that the caller passes in.

use core::ops::Add;

/// Nanoseconds since an origin of the caller's choice (the engine's start, or the
/// beginning of a simulation). Never read from a clock in this crate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);

    /// Nanoseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub fn since_ns(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The earliest of those that there are. (`flatten().min()` may be compiled to look at the bytes of what is not there, which
    /// changes nothing, but Valgrind tells the users of programs.)
    pub fn earliest<const N: usize>(times: [Option<Time>; N]) -> Option<Time> {
        const NEVER: u64 = u64::MAX;
        let counts = times.map(|time| time.map_or(NEVER, |time| time.0));
        let first = counts.into_iter().fold(NEVER, u64::min);
        (first != NEVER).then_some(Time(first))
    }
}

impl Add<u64> for Time {
    type Output = Time;

    /// Adds nanoseconds; sticks at the end of time rather than wrapping.
    fn add(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}

/// When something is due, or never, in the room of a time: QPs have several, and there may be many QPs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due(Time);

impl Due {
    /// The end of time is not reached.
    pub(crate) const NEVER: Due = Due(Time(u64::MAX));

    #[inline]
    pub(crate) fn at(time: Time) -> Due {
        Due(time)
    }

    #[inline]
    pub(crate) fn time(self) -> Option<Time> {
        self.is_set().then_some(self.0)
    }

    #[inline]
    pub(crate) fn is_set(self) -> bool {
        self != Due::NEVER
    }
}

impl Default for Due {
    fn default() -> Due {
        Due::NEVER
    }
}

impl From<Option<Time>> for Due {
    #[inline]
    fn from(time: Option<Time>) -> Due {
        time.map_or(Due::NEVER, Due::at)
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, Time};

    #[test]
    fn what_is_never_due_has_no_time() {
        assert_eq!(size_of::<Due>(), size_of::<Time>());
        assert_eq!(Due::default().time(), None);
        for time in [Some(Time::ZERO), Some(Time(7)), None] {
            assert_eq!(Due::from(time).time(), time);
            assert_eq!(Due::from(time).is_set(), time.is_some());
        }
    }

    #[test]
    fn the_earliest_is_one_of_those_that_there_are() {
        let (a, b) = (Some(Time(5)), Some(Time::ZERO));
        assert_eq!(Time::earliest([a, None]), a);
        assert_eq!(Time::earliest([None, a, b]), b);
        assert_eq!(Time::earliest([None, None]), None);
        assert_eq!(Time::earliest([]), None);
    }
}
