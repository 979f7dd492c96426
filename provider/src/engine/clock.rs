//! The only clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use urxe_core::Time;

use crate::network::Network;

/// Counts nanoseconds: since it was made, or as a network counts them.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    System(Instant),
    Network(Arc<dyn Network>),
}

impl Clock {
    pub(crate) fn new(network: Option<&Arc<dyn Network>>) -> Clock {
        match network {
            None => Clock::System(Instant::now()),
            Some(network) => Clock::Network(network.clone()),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        match self {
            // 584 years fit.
            Clock::System(origin) => Time(origin.elapsed().as_nanos() as u64),
            Clock::Network(network) => now_on(network),
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
