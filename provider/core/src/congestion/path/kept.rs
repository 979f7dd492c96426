//! A rate that answers kept up for a while. Some come late, and together with those behind them, as hosts are busy: for a moment that looks like
//! a faster path.

use crate::time::Time;

/// The part of a round trip for which a rate must be kept up.
const PART: u64 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    least: f64,
    until: Time,
}

impl Kept {
    pub(super) fn new(now: Time) -> Kept {
        Kept {
            least: f64::INFINITY,
            until: now,
        }
    }

    /// The lowest rate of a part of a round trip, at its end.
    pub(super) fn take(&mut self, rate: f64, min_rtt: u64, now: Time) -> Option<f64> {
        self.least = self.least.min(rate);
        if now < self.until {
            return None;
        }
        self.until = now + min_rtt / PART;
        Some(core::mem::replace(&mut self.least, f64::INFINITY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_counts_that_is_kept_for_a_third_of_a_round_trip() {
        let mut kept = Kept::new(Time(0));
        let mut take = |rate, at| kept.take(rate, 30, Time(at));
        assert_eq!(take(4.0, 0), Some(4.0));
        assert_eq!((take(9.0, 3), take(4.5, 8)), (None, None));
        assert_eq!(take(9.0, 10), Some(4.5));
        assert_eq!(take(9.0, 40), Some(9.0));
    }
}
