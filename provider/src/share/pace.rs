//! How often to check that the kernel's steering program is right.
//!
//! A packet that was handed over is a sign that the program is wrong; but where trains hold packets for several owners it is no sign, and
//! comes with every train. So the program is checked at once if the registry changed since the last check. Otherwise the
//! program may still be wrong (a killed process has not been taken out yet, or its sockets were closed after that),
//! and it is checked after a pause that doubles.

use urxe_core::Time;

/// The shortest time between two checks.
const PAUSE_MIN_NS: u64 = 1_000_000;
const PAUSE_MAX_NS: u64 = 1_024_000_000;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// What the registry's generation was, and when.
    last: Option<(u64, Time)>,
    pause_ns: u64,
}

impl Pace {
    /// True if a check is due; `generation` is called only if it decides.
    pub(super) fn is_due(&self, now: Time, generation: impl FnOnce() -> u64) -> bool {
        self.last.is_none_or(|(known, at)| {
            let passed = now.since_ns(at);
            passed >= self.pause_ns || passed >= PAUSE_MIN_NS && generation() != known
        })
    }

    /// Notes that the program was checked, and corrected if it was wrong.
    pub(super) fn note(&mut self, now: Time, generation: u64) {
        let is_news = self.last.is_none_or(|(known, _)| known != generation);
        self.pause_ns = if is_news {
            PAUSE_MIN_NS
        } else {
            (self.pause_ns * 2).min(PAUSE_MAX_NS)
        };
        self.last = Some((generation, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it is asked in so many milliseconds, with a sign in each.
    fn asked(pace: &mut Pace, from_ms: u64, len_ms: u64, generation: u64) -> u64 {
        let times = (from_ms..from_ms + len_ms).map(|ms| Time(1 + ms * 1_000_000));
        let due = times.filter(|&now| {
            let is_due = pace.is_due(now, || generation);
            if is_due {
                pace.note(now, generation);
            }
            is_due
        });
        due.count() as u64
    }

    #[test]
    fn without_changes_it_is_asked_once_a_second_in_the_end() {
        let mut pace = Pace::default();
        let first = asked(&mut pace, 0, 10_000, 7);
        assert!((11..=21).contains(&first), "{first} times in ten seconds");
        // Whatever changes is seen in the millisecond in which it does.
        for n in 0..10 {
            assert_eq!(asked(&mut pace, 10_000 + n, 1, 8 + n), 1);
        }
        assert!(asked(&mut pace, 10_010, 1000, 17) <= 11);
    }
}
