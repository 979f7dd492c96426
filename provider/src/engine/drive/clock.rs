//! The engine's clock: the only one.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
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
    monotonic_ns: u64,
    wall_ns: u64,
}

impl Origin {
    /// Of several attempts the one that took the shortest time: in a longer one another process ran between the clocks.
    fn now() -> Origin {
        let attempt = |_| {
            let monotonic_ns = monotonic_ns();
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let wall_ns = since.map_or(0, |since| since.as_nanos() as u64);
            let took_ns = self::monotonic_ns() - monotonic_ns;
            let origin = Origin {
                monotonic_ns,
                wall_ns,
            };
            (took_ns, origin)
        };
        let attempts = (0..4).map(attempt);
        let (_, origin) = attempts
            .min_by_key(|(took_ns, _)| *took_ns)
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
            Clock::System(origin) => Time(monotonic_ns().saturating_sub(origin.monotonic_ns)),
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

/// The system's clock that is never set. Every turn reads it, and half of an `Instant`'s time would go into seconds.
#[inline]
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has this clock");
    // 584 years fit.
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

#[cold]
fn now_on(network: &Arc<dyn Network>) -> Time {
    Time(network.now_ns())
}

/// How long it is from `now` to `then`; zero if that is past.
pub(crate) fn until(now: Time, then: Time) -> Duration {
    Duration::from_nanos(then.since_ns(now))
}
