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

/// What empty polls of an engine have cost since something was found.
#[derive(Debug, Default)]
pub(in crate::engine) struct Patience(u32);

impl Patience {
    /// A poll found nothing, at this cost. True if it is time to give the processor away.
    #[inline]
    pub(in crate::engine) fn found_nothing(&mut self, cost: u32) -> bool {
        self.0 += cost;
        let is_over = self.0 >= LIMIT;
        if is_over {
            self.0 = 0;
        }
        is_over
    }

    #[inline]
    pub(in crate::engine) fn found(&mut self) {
        self.0 = 0;
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
                    patience.found_nothing(LOOK)
                })
                .count()
        };
        assert_eq!(polls(usize::MAX), 4);
        assert_eq!(polls(LIMIT as usize - 1), 0);
        assert_eq!(polls(100), 0);
    }
}
