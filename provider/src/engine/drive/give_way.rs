//! How a thread that polled in vain lets others run.
//!
//! `sched_yield` returns at once where no other thread waits, and after the moment that a polite one takes. A thread that spins without
//! calls to the kernel takes a whole turn of the scheduler, some milliseconds; and as the one that yielded has not slept, nothing calls
//! it back before. Or it returns at once, as the thread has had less than the others, which then take their turn when it polls. So where
//! a yield took that long, or the thread had to wait that long for a processor, it sleeps for moments in place of yielding: the scheduler
//! takes the processor from a spinning thread for one that wakes up.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Others that work and wait for each other have run by then; a turn of the scheduler is longer.
const TURN: Duration = Duration::from_micros(250);

/// The kernel adds 50 us, its slack for timers.
const NAP: Duration = Duration::from_micros(10);

/// Sleeps before the next look whether the processors are still taken, at first. It may cost a turn, so it comes ever less often while
/// they are.
const NAPS_MIN: u32 = 64;
const NAPS_MAX: u32 = 1024;

/// Yields before the next look at how long this thread had to wait for a processor: a millisecond, of which the look takes some 4 us.
const YIELDS: u32 = 64;

/// So many attempts at an engine that is taken are some 15 us.
const TAKEN_MAX: u32 = 512;

/// What is known of the other threads on this host.
#[derive(Debug, Default)]
pub(in crate::engine) struct Crowd {
    /// Sleeps until the next look.
    left: AtomicU32,
    /// Sleeps between the last two looks; 0: there was room.
    naps: AtomicU32,
    /// Yields since the last look at what a thread waited.
    yields: AtomicU32,
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

    /// Others take the processors for whole turns.
    #[inline]
    pub(in crate::engine) fn is_there(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
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
        let yields = self.yields.load(Ordering::Relaxed) + 1;
        self.yields.store(yields % YIELDS, Ordering::Relaxed);
        let waits = yields == YIELDS && waits();
        if waits || before.elapsed() >= TURN {
            self.note(true);
        } else if self.naps.load(Ordering::Relaxed) > 0 {
            self.note(false);
        }
    }

    /// Other threads took a turn while this one had something to do.
    fn note(&self, is_crowded: bool) {
        let naps = self.naps.load(Ordering::Relaxed);
        let naps = match is_crowded {
            true => (naps * 2).clamp(NAPS_MIN, NAPS_MAX),
            false if naps <= NAPS_MIN => 0,
            false => naps / 2,
        };
        self.naps.store(naps, Ordering::Relaxed);
        self.left.store(naps, Ordering::Relaxed);
    }
}

thread_local! {
    /// What [`waited`] said at this thread's last look.
    static WAITED: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Whether this thread waited for a processor for as long as a turn of others, in the mean of the times since its last look.
fn waits() -> bool {
    let now = waited();
    let (Some((before, turns_before)), Some((after, turns))) = (WAITED.replace(now), now) else {
        return false;
    };
    let mean = (after - before) / (turns - turns_before).max(1);
    Duration::from_nanos(mean) >= TURN
}

/// How long this thread has waited for a processor so far, in nanoseconds, and how often it had one.
fn waited() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split_whitespace().skip(1);
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_follow_a_turn_of_others_and_looks_get_rare() {
        let crowd = Crowd::default();
        let naps = || crowd.left.load(Ordering::Relaxed);
        crowd.note(false);
        assert_eq!(naps(), 0);
        assert!(!crowd.is_there());
        crowd.note(true);
        assert_eq!(naps(), NAPS_MIN);
        assert!(crowd.is_there());
        crowd.note(true);
        assert_eq!(naps(), 2 * NAPS_MIN);
        (0..10).for_each(|_| crowd.note(true));
        assert_eq!(naps(), NAPS_MAX);
        crowd.give_way();
        assert_eq!(naps(), NAPS_MAX - 1);
        // A yield may return at once though others spin: one that does so takes half of the sleeps away.
        crowd.note(false);
        assert_eq!(naps(), NAPS_MAX / 2);
        (0..10).for_each(|_| crowd.note(false));
        assert_eq!(naps(), 0);
    }

    #[test]
    fn a_thread_knows_how_long_it_waited_for_a_processor() {
        let Some((before, turns)) = waited().filter(|&(_, turns)| turns > 0) else {
            eprintln!("skipped: this kernel does not count it (CONFIG_SCHED_INFO)");
            return;
        };
        thread::sleep(NAP);
        let (after, later) = waited().expect("as before");
        assert!(
            after >= before && later > turns,
            "{before} {after} {turns} {later}"
        );
        assert!(!waits(), "nothing is known of it yet");
    }

    #[test]
    fn an_engine_that_is_taken_for_long_is_waited_for() {
        let crowd = Crowd::default();
        let ways = (0..3 * TAKEN_MAX).filter(|_| crowd.found_taken()).count();
        assert_eq!(ways, 3);
    }
}
