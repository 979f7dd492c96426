//! The only clock.

use std::time::{Duration, Instant};

use urxe_core::Time;

/// Counts nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock {
            origin: Instant::now(),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        // 584 years fit.
        Time(self.origin.elapsed().as_nanos() as u64)
    }
}

/// How long it is from `now` to `then`; zero if that is past.
pub(crate) fn until(now: Time, then: Time) -> Duration {
    Duration::from_nanos(then.since_ns(now))
}
