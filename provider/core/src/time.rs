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
}

impl Add<u64> for Time {
    type Output = Time;

    /// Adds nanoseconds; sticks at the end of time rather than wrapping.
    fn add(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }
}
