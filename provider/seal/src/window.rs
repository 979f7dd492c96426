//! Which counters of a sender have been seen: the newest one, and a window of bits below it (RFC 6479).

const WORDS: usize = 64;
const BITS: u64 = u64::BITS as u64;

/// Counters of one sender under one key.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The largest one that was seen; none so far.
    top: Option<u64>,
    /// One bit for each of the last counters, in a ring of words.
    seen: [u64; WORDS],
}

/// Why a counter is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    /// It was seen.
    Seen,
    /// It is so far below the newest that it may have been.
    Old,
}

impl Window {
    /// Counters below the newest that are told apart, at least: the words are emptied one by one, so one is never whole. As many
    /// packets of one sender may overtake another.
    pub(crate) const LEN: u64 = (WORDS as u64 - 1) * BITS;

    pub(crate) fn new() -> Window {
        Window {
            top: None,
            seen: [0; WORDS],
        }
    }

    /// Refuses a counter that was seen, or may have been. The packet must open before it is noted.
    #[inline]
    pub(crate) fn check(&self, counter: u64) -> Result<(), Stale> {
        let Some(top) = self.top else { return Ok(()) };
        if counter > top {
            return Ok(());
        }
        if top - counter >= Window::LEN {
            return Err(Stale::Old);
        }
        let (word, bit) = place(counter);
        if self.seen[word] & bit != 0 {
            return Err(Stale::Seen);
        }
        Ok(())
    }

    /// Notes a counter that was checked.
    #[inline]
    pub(crate) fn note(&mut self, counter: u64) {
        let top = self.top.unwrap_or(counter);
        if counter > top {
            let (from, to) = (top / BITS, counter / BITS);
            let emptied = (to - from).min(WORDS as u64);
            for word in 0..emptied {
                self.seen[((to - word) % WORDS as u64) as usize] = 0;
            }
        }
        self.top = Some(top.max(counter));
        let (word, bit) = place(counter);
        self.seen[word] |= bit;
    }
}

#[inline]
fn place(counter: u64) -> (usize, u64) {
    let word = (counter / BITS % WORDS as u64) as usize;
    (word, 1 << (counter % BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn take(window: &mut Window, counter: u64) -> Result<(), Stale> {
        window.check(counter)?;
        window.note(counter);
        Ok(())
    }

    proptest! {
        /// Beside a set of all counters: none is taken twice, and what is within the window is taken once.
        #[test]
        fn none_is_taken_twice_and_none_within_is_lost(
            start in prop_oneof![Just(0), any::<u64>().prop_map(|n| n >> 2), Just(u64::MAX - 10_000)],
            steps in proptest::collection::vec(prop_oneof![
                10 => -70_i64..70, 3 => -4200_i64..4200, 1 => -100_000_i64..100_000,
            ], 1..800),
        ) {
            let mut window = Window::new();
            let (mut seen, mut top) = (HashSet::new(), None::<u64>);
            let mut at = start;
            for step in steps {
                at = at.saturating_add_signed(step);
                let fresh = !seen.contains(&at);
                let within = top.is_none_or(|top| at > top || top - at < Window::LEN);
                prop_assert_eq!(take(&mut window, at).is_ok(), fresh && within, "{} below {:?}", at, top);
                if fresh && within {
                    seen.insert(at);
                    top = Some(top.map_or(at, |top| top.max(at)));
                }
            }
        }

        /// Trains that overtake each other lose nothing, and nothing of them is taken again.
        #[test]
        fn trains_in_any_order(order in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut window = Window::new();
            for _ in 0..2 {
                let again = window.top.is_some();
                for train in &order {
                    for place in 0..64 {
                        prop_assert_eq!(take(&mut window, 1000 + train * 64 + place).is_ok(), !again);
                    }
                }
            }
        }
    }

    #[test]
    fn refusals_say_which() {
        let mut window = Window::new();
        assert_eq!(take(&mut window, 10_000), Ok(()));
        assert_eq!(take(&mut window, 10_000), Err(Stale::Seen));
        assert_eq!(take(&mut window, 10_001 - Window::LEN), Ok(()));
        assert_eq!(take(&mut window, 10_000 - Window::LEN), Err(Stale::Old));
        assert_eq!(take(&mut window, u64::MAX), Ok(()));
        assert_eq!(take(&mut window, 10_001), Err(Stale::Old));
    }
}
