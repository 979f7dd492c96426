//! The engine's clock: the only one.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use urxe_core::Time;

use crate::network::Network;

/// Counts nanoseconds: since it was made, or as a network counts them.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    System(Origin),
    Network(Arc<dyn Network>),
}

/// When a clock began to count, and what the system's clock said then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    instant: Instant,
    wall_ns: u64,
}

impl Origin {
    /// Of several attempts the one that took the shortest time: in a longer one another process ran between the clocks.
    fn now() -> Origin {
        let attempt = |_| {
            let instant = Instant::now();
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let wall_ns = since.map_or(0, |since| since.as_nanos() as u64);
            (instant.elapsed(), Origin { instant, wall_ns })
        };
        let attempts = (0..4).map(attempt);
        let (_, origin) = attempts
            .min_by_key(|(took, _)| *took)
            .expect("there are four");
        origin
    }
}

impl Clock {
    pub(crate) fn system() -> Clock {
        Clock::System(Origin::now())
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        match self {
            // 584 years fit.
            Clock::System(origin) => Time(origin.instant.elapsed().as_nanos() as u64),
            Clock::Network(network) => now_on(network),
        }
    }

    /// Time is what a network says.
    pub(crate) fn is_of_network(&self) -> bool {
        matches!(self, Clock::Network(_))
    }

    /// What the system's clock said at a time of this one, in nanoseconds since 1970. The difference of the two is that
    /// at the beginning for good: what is later here is later there, though the system's clock be set meanwhile.
    pub(crate) fn wall_ns(&self, then: Time) -> u64 {
        match self {
            Clock::System(origin) => origin.wall_ns.saturating_add(then.0),
            // There is no other clock.
            Clock::Network(_) => then.0,
        }
    }
}

#[cold]
fn now_on(network: &Arc<dyn Network>) -> Time {
    Time(network.now_ns())
}

/// How long it is from `now` to `then`; zero if that is past.
pub(crate) fn until(now: Time, then: Time) -> Duration {
    Duration::from_nanos(then.since_ns(now))
}
