//! Whether the shortest round trip is that of a queue which others keep full. A flow that comes late never sees the road empty: it takes what
//! the queue drops for losses of the road, heeds none, and pushes all others aside. So a flow that loses packets on a road of such a length has
//! little under way now and then, for a moment, to see if the road is shorter. (Sixteen hosts that begin 10 ms apart on 1 Gb/s, 0.1 ms, with a queue
//! of 400 kB: Jain's index .48, and .15 without; `some_share_a_short_road_with_a_long_queue` of `tests/road`.)

use core::ops::RangeInclusive;

use crate::time::Time;

/// Round trips that the queue of a switch makes of a short road. Those of longer roads are mostly their own.
const DOUBTFUL_NS: RangeInclusive<u64> = 1_000_000..=8_000_000;
/// Round trips between two looks, as long as they find anything; then twice as many each time.
const EVERY: u64 = 30;
/// Round trips that a look takes.
const LOOK: u64 = 4;
/// From one look to the next, at most.
const MOST_NS: u64 = 1_000_000_000;

/// A round trip that may be a queue's.
pub(super) fn may_be_queue(min_rtt: u64) -> bool {
    DOUBTFUL_NS.contains(&min_rtt)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// When the next look may be, and how long that is after the last.
    at: Time,
    wait: u64,
    /// Packets were lost since the last look.
    has_lost: bool,
    /// The shortest round trip when the look began that goes on.
    looks: Option<u64>,
}

impl Doubt {
    pub(super) fn new(now: Time) -> Doubt {
        Doubt {
            at: now,
            wait: 0,
            has_lost: false,
            looks: None,
        }
    }

    pub(super) fn on_loss(&mut self) {
        self.has_lost = true;
    }

    pub(super) fn is_due(&self, min_rtt: u64, now: Time) -> bool {
        self.has_lost && self.at <= now && may_be_queue(min_rtt)
    }

    pub(super) fn begin(&mut self, min_rtt: u64) {
        self.looks = Some(min_rtt);
    }

    /// How long the look takes that goes on, if there is one.
    pub(super) fn look_ns(&self) -> Option<u64> {
        self.looks.map(|min_rtt| LOOK * min_rtt)
    }

    pub(super) fn end(&mut self, min_rtt: u64, now: Time) {
        let Some(before) = self.looks.take() else {
            return;
        };
        self.wait = match min_rtt < before - before / 16 {
            true => EVERY * min_rtt,
            false => (2 * self.wait).clamp(EVERY * min_rtt, MOST_NS),
        };
        (self.at, self.has_lost) = (now + self.wait, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_find_nothing_become_rare() {
        let (mut doubt, ms) = (Doubt::new(Time(0)), 1_000_000);
        assert!(!doubt.is_due(3 * ms, Time(0)), "nothing was lost");
        let mut now = Time(0);
        for (found, wait) in [(2 * ms, 60), (2 * ms, 120), (2 * ms, 240), (ms, 30)] {
            doubt.on_loss();
            assert!(doubt.is_due(2 * ms, now) && !doubt.is_due(20 * ms, now));
            doubt.begin(if now.0 == 0 { 3 * ms } else { 2 * ms });
            doubt.end(found, now);
            assert_eq!(doubt.look_ns(), None);
            doubt.on_loss();
            now = now + wait * ms;
            assert!(!doubt.is_due(2 * ms, Time(now.0 - 1)) && doubt.is_due(2 * ms, now));
        }
    }
}
