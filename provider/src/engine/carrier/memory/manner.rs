//! How the long records of a ring are taken: where they lie, or out of a copy.
//!
//! To take them where they lie is one copy less, and faster by a third where both processors have one cache. Between processors that have none in
//! common it is slower by half: there a copy of a whole record fetches more lines at once than one of each packet does. Which of the
//! two it is no system says reliably, and threads move; so both are timed, again and again, and the faster one is used until the next time.
//! `urxe bench write --mtu 1024` has 118 to 155 Gbit/s if packets are taken where they lie and 94 to 109 if out of copies in one case, 16 and 31 in the other.

use std::time::Instant;

/// After so many records both are timed again.
const PERIOD: u32 = 256;
/// Records that are taken in each manner then. The first one is not counted: what it needs is in no cache.
const TRIES: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Manner {
    /// Records since the last trial began.
    count: u32,
    is_copied: bool,
    /// The shortest time of each manner in this trial, in picoseconds a byte.
    best: [u64; 2],
}

/// How one record is taken.
#[derive(Debug)]
pub(super) struct Taking {
    pub(super) is_copied: bool,
    /// It is timed.
    since: Option<Instant>,
}

impl Taking {
    /// Not as it pleases: there is something about the record.
    pub(super) const COPIED: Taking = Taking {
        is_copied: true,
        since: None,
    };
}

impl Manner {
    /// The next record is about to be taken.
    #[inline]
    pub(super) fn begin(&mut self) -> Taking {
        let number = self.count;
        self.count = (self.count + 1) % PERIOD;
        if number >= 2 * TRIES {
            return Taking {
                is_copied: self.is_copied,
                since: None,
            };
        }
        self.try_out(number)
    }

    #[cold]
    fn try_out(&mut self, number: u32) -> Taking {
        if number == 0 {
            self.best = [u64::MAX; 2];
        }
        Taking {
            is_copied: number >= TRIES,
            since: (!number.is_multiple_of(TRIES)).then(Instant::now),
        }
    }

    /// A record of so many bytes was taken.
    #[inline]
    pub(super) fn end(&mut self, taking: &Taking, bytes: usize) {
        if let Some(since) = taking.since {
            self.note(taking.is_copied, since.elapsed().as_nanos() as u64, bytes);
        }
    }

    #[cold]
    fn note(&mut self, is_copied: bool, ns: u64, bytes: usize) {
        let best = &mut self.best[usize::from(is_copied)];
        *best = (*best).min(ns * 1000 / bytes.max(1) as u64);
        let [in_place, copied] = self.best;
        self.is_copied = copied < in_place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of which each manner takes so many nanoseconds; how many were copied.
    fn take(manner: &mut Manner, records: u32, ns: [u64; 2]) -> u32 {
        let mut copied = 0;
        for _ in 0..records {
            let taking = manner.begin();
            copied += u32::from(taking.is_copied);
            if taking.since.is_some() {
                manner.note(taking.is_copied, ns[usize::from(taking.is_copied)], 65_536);
            }
        }
        copied
    }

    #[test]
    fn the_faster_manner_is_used_between_trials() {
        let mut manner = Manner::default();
        assert_eq!(take(&mut manner, PERIOD, [4_000, 5_000]), TRIES);
        assert_eq!(take(&mut manner, PERIOD, [18_000, 10_000]), PERIOD - TRIES);
        assert_eq!(take(&mut manner, PERIOD, [4_000, 5_000]), TRIES);
    }

    #[test]
    fn one_that_was_interrupted_decides_nothing() {
        let mut manner = Manner::default();
        let mut slow = 0;
        for _ in 0..PERIOD {
            let taking = manner.begin();
            if taking.since.is_some() {
                // The second one of each manner is interrupted.
                slow += 1;
                let ns = if slow % 3 == 2 { 4_000_000 } else { 4_000 };
                manner.note(taking.is_copied, ns + u64::from(taking.is_copied), 65_536);
            }
        }
        assert!(!manner.is_copied);
    }
}
