//! A rate: packets leave one after another, and what would wait too long is lost.

use urxe_core::Time;
use urxe_core::congestion::Rate;

use super::spec::FaultSpec;

/// The shortest queue that nothing was said about.
const QUEUE_DEFAULT_MIN: u64 = 100_000;

/// Nanoseconds in which one byte leaves at one bit a second.
const BYTE_NS: u64 = 8_000_000_000;

/// The narrowest place of the way. Its clock runs ahead of the packets: a thread that wakes up late moves later
/// all that was due meanwhile, so the rate is kept.
#[derive(Debug)]
pub(super) struct Bottleneck {
    rate: Rate,
    /// Bytes that may wait.
    queue: u64,
    /// When all that has come so far has left.
    free: Time,
}

impl Bottleneck {
    /// That of a specification, if it has a rate.
    pub(super) fn of(spec: &FaultSpec) -> Option<Bottleneck> {
        let rate = spec.rate?;
        let round_trip_ns = spec.delay.map_or(0, |(_, longest)| 2 * longest.as_nanos());
        let product = u128::from(rate.bps()) * round_trip_ns / u128::from(BYTE_NS);
        let product = u64::try_from(product).unwrap_or(u64::MAX);
        Some(Bottleneck {
            rate,
            queue: spec.queue.unwrap_or(product.max(QUEUE_DEFAULT_MIN)),
            free: Time::ZERO,
        })
    }

    /// A frame of so many bytes comes: when it has left, or `None` if it finds the queue full. One that finds nothing
    /// before it always leaves.
    pub(super) fn pass(&mut self, bytes: u64, now: Time) -> Option<Time> {
        let wait = self.free.since_ns(now);
        let waiting = u128::from(wait) * u128::from(self.rate.bps()) / u128::from(BYTE_NS);
        if wait > 0 && waiting + u128::from(bytes) > u128::from(self.queue) {
            return None;
        }
        // Rounded up: never faster.
        let time = (bytes * BYTE_NS).div_ceil(self.rate.bps());
        self.free = self.free.max(now) + time;
        Some(self.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bottleneck(text: &str) -> Bottleneck {
        let spec = text.parse().expect("a specification");
        Bottleneck::of(&spec).expect("a rate")
    }

    #[test]
    fn frames_leave_one_after_another() {
        let mut one = bottleneck("rate=1G");
        assert_eq!(one.pass(1000, Time(500)), Some(Time(8500)));
        assert_eq!(one.pass(500, Time(600)), Some(Time(12_500)));
        // Time in which nothing comes is not caught up.
        assert_eq!(one.pass(1000, Time(1_000_000)), Some(Time(1_008_000)));
        let mut odd = bottleneck("rate=3G,queue=1M");
        let left = (0..3000).filter_map(|_| odd.pass(100, Time::ZERO)).last();
        let wanted = 1000 * 8 * 100;
        assert!((Time(wanted)..Time(wanted + wanted / 100)).contains(&left.expect("room")));
    }

    #[test]
    fn a_full_queue_takes_nothing_until_there_is_room() {
        let mut one = bottleneck("rate=1G,queue=2500");
        let passed = (0..9).filter(|_| one.pass(1000, Time::ZERO).is_some());
        assert_eq!(passed.count(), 2);
        assert_eq!(one.pass(1000, Time(3990)), None);
        assert_eq!(one.pass(1000, Time(4000)), Some(Time(24_000)));
        // Longer than the queue, but nothing waits.
        let mut short = bottleneck("rate=1G,queue=10");
        assert!(short.pass(1000, Time::ZERO).is_some() && short.pass(1, Time::ZERO).is_none());
        assert!(short.pass(1000, Time(8000)).is_some());
    }

    #[test]
    fn the_queue_holds_what_twice_the_delay_carries() {
        assert_eq!(bottleneck("rate=200M,delay=1ms..10ms").queue, 500_000);
        assert_eq!(bottleneck("rate=200M").queue, 100_000);
        assert_eq!(bottleneck("rate=200M,delay=10ms,queue=7k").queue, 7000);
        let fastest = format!("rate={},delay=10s", u64::MAX);
        assert!(bottleneck(&fastest).queue > 1 << 60);
    }
}
