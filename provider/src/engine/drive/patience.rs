//! When a thread that polls and finds nothing gives its processor away.
//!
//! A program may poll with more threads than there are processors. Each of them then waits until the scheduler takes the processor from
//! one that finds nothing: some milliseconds a message. Where no other thread waits, `sched_yield` returns at once.

/// What an empty look at rings counts.
pub(in crate::engine) const LOOK: u32 = 1;
/// What a call to the kernel that finds nothing counts, which takes as long as some looks.
pub(in crate::engine) const RECEIVE: u32 = 16;

/// So many looks are some 15 us.
const LIMIT: u32 = 512;

/// Patience that was in vain before, beside threads that spin.
const SHORT: u32 = LIMIT / 8;

/// Of so many times in a row that it was in vain, one is of full length, in case that something comes that late.
const TRIES: u32 = 4;

/// What empty polls of an engine have cost since something was found.
///
/// Threads that spin may be the ones that have to run before something comes: beside them patience is short when it was in vain twice, until
/// something comes that short patience would have missed, as in a ping-pong.
#[derive(Debug, Default)]
pub(in crate::engine) struct Patience {
    cost: u32,
    /// So many times in a row it ended in vain.
    in_vain: u32,
}

impl Patience {
    /// A poll found nothing, at this cost; other threads spin, or do not. True if it is time to give the processor away.
    #[inline]
    pub(in crate::engine) fn found_nothing(&mut self, cost: u32, is_crowded: bool) -> bool {
        let is_short = is_crowded && self.in_vain > 1 && !self.in_vain.is_multiple_of(TRIES);
        self.cost += cost;
        let is_over = self.cost >= if is_short { SHORT } else { LIMIT };
        if is_over {
            self.cost = 0;
            self.in_vain = self.in_vain.wrapping_add(1);
        }
        is_over
    }

    #[inline]
    pub(in crate::engine) fn found(&mut self) {
        if self.cost > SHORT {
            self.in_vain = 0;
        }
        self.cost = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_again_and_again_and_later_where_something_is_found() {
        let mut patience = Patience::default();
        let mut polls = |found_every: usize| {
            (1..=4 * LIMIT as usize)
                .filter(|poll| {
                    if poll.is_multiple_of(found_every) {
                        patience.found();
                    }
                    patience.found_nothing(LOOK, false)
                })
                .count()
        };
        assert_eq!(polls(usize::MAX), 4);
        assert_eq!(polls(LIMIT as usize - 1), 0);
        assert_eq!(polls(100), 0);
    }

    #[test]
    fn beside_threads_that_spin_it_gets_short_until_something_comes_in_time() {
        let mut patience = Patience::default();
        let length = |patience: &mut Patience, is_crowded| {
            (1..)
                .find(|_| patience.found_nothing(LOOK, is_crowded))
                .expect("it ends")
        };
        let lengths: Vec<u32> = (0..8).map(|_| length(&mut patience, true)).collect();
        assert_eq!(
            lengths,
            [LIMIT, LIMIT, SHORT, SHORT, LIMIT, SHORT, SHORT, SHORT]
        );
        // It came while others had the processor.
        patience.found();
        assert_eq!(length(&mut patience, true), LIMIT);
        assert_eq!(length(&mut patience, true), SHORT);
        assert_eq!(length(&mut patience, false), LIMIT);
        patience.found_nothing(LOOK, true);
        patience.found();
        assert_eq!(
            length(&mut patience, true),
            SHORT,
            "short patience found it"
        );
        while patience.in_vain % TRIES > 0 {
            length(&mut patience, true);
        }
        for _ in 0..=SHORT {
            patience.found_nothing(LOOK, true);
        }
        patience.found();
        let lengths = [0; 3].map(|_| length(&mut patience, true));
        assert_eq!(lengths, [LIMIT, LIMIT, SHORT]);
    }
}
