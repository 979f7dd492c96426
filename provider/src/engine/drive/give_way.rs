//! How a thread that polled in vain lets others run.
//!
//! `sched_yield` returns at once where no other thread waits, and after the moment that a polite one takes. A thread that spins without
//! calls to the kernel takes a whole turn of the scheduler, some milliseconds; and as the one that yielded has not slept, nothing calls
//! it back before. So where a yield took that long, the thread sleeps for moments in place of it: the scheduler takes the processor
//! from a spinning thread for one that wakes up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Others that work and wait for each other have run by then; a turn of the scheduler is longer.
const TURN: Duration = Duration::from_millis(1);

/// The kernel adds 50 us, its slack for timers.
const NAP: Duration = Duration::from_micros(10);

/// Sleeps before the next look whether the processors are still taken, at first. It may cost a turn, so it comes ever less often while
/// they are.
const NAPS_MIN: u32 = 16;
const NAPS_MAX: u32 = 1024;

/// So many attempts at an engine that is taken are some 15 us.
const TAKEN_MAX: u32 = 512;

/// What is known of the other threads on this host.
#[derive(Debug, Default)]
pub(in crate::engine) struct Crowd {
    /// Sleeps until the next look.
    left: AtomicU32,
    /// Sleeps between the last two looks; 0: there was room.
    naps: AtomicU32,
    /// Polls that found another thread in the engine.
    taken: AtomicU32,
}

impl Crowd {
    /// Another thread has the engine. True if it is time to give the processor away: that thread may wait for this one's.
    pub(in crate::engine) fn found_taken(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed) + 1;
        self.taken.store(taken % TAKEN_MAX, Ordering::Relaxed);
        taken == TAKEN_MAX
    }

    pub(in crate::engine) fn give_way(&self) {
        // Threads that poll at once may lose each other's changes: then they look sooner or later.
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
            return thread::sleep(NAP);
        }
        let before = Instant::now();
        thread::yield_now();
        self.note(before.elapsed());
    }

    /// So long did a yield take.
    fn note(&self, took: Duration) {
        let naps = if took < TURN {
            0
        } else {
            (self.naps.load(Ordering::Relaxed) * 2).clamp(NAPS_MIN, NAPS_MAX)
        };
        self.naps.store(naps, Ordering::Relaxed);
        self.left.store(naps, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_follow_a_turn_of_others_and_looks_get_rare() {
        let crowd = Crowd::default();
        let naps = || crowd.left.load(Ordering::Relaxed);
        crowd.note(Duration::from_micros(20));
        assert_eq!(naps(), 0);
        crowd.note(TURN);
        assert_eq!(naps(), NAPS_MIN);
        crowd.note(TURN);
        assert_eq!(naps(), 2 * NAPS_MIN);
        (0..10).for_each(|_| crowd.note(TURN));
        assert_eq!(naps(), NAPS_MAX);
        crowd.give_way();
        assert_eq!(naps(), NAPS_MAX - 1);
        crowd.note(Duration::ZERO);
        assert_eq!(naps(), 0);
    }

    #[test]
    fn an_engine_that_is_taken_for_long_is_waited_for() {
        let crowd = Crowd::default();
        let ways = (0..3 * TAKEN_MAX).filter(|_| crowd.found_taken()).count();
        assert_eq!(ways, 3);
    }
}
