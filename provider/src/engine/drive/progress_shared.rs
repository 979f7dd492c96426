//! What other threads and the progress thread tell each other.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use urxe_core::Time;
use urxe_udp::EventFd;

use crate::error::Error;

/// How long an ACK may be held back in the hope of a reply to travel with, and how
/// long packets wait for a full socket. A program that answers does so within
/// microseconds; peers wait for tens of milliseconds at least.
///
/// It is the tick of the progress thread while the program drives by itself, so it costs
/// no wake-up more: `urxe bench send --lat` is 1.4 of the floor, and 3.4 with a tenth
/// of it.
pub(crate) const DEFER_NS: u64 = 1_000_000;

/// What other threads and the progress thread tell each other.
#[derive(Debug)]
pub(crate) struct ProgressShared {
    pub(super) kick: EventFd,
    /// Tells a thread that waits for an event that there are more sockets to watch.
    pub(crate) activated: EventFd,
    /// `kick` was notified, and the thread did not see it yet.
    pub(super) kicked: AtomicBool,
    /// When the thread will wake by itself, in the engine's time.
    pub(super) asleep_until: AtomicU64,
    /// When the program drove the engine last.
    pub(super) driven_at: AtomicU64,
    /// A thread that polls found that another one drives.
    asked: AtomicBool,
    /// A thread waits for an event and drives meanwhile.
    pub(super) watched: AtomicBool,
    /// The thread that waits for an event does so for the sockets of groups too. It may
    /// have gone to sleep before there were any.
    pub(crate) groups_watched: AtomicBool,
    /// How often threads began to.
    pub(super) watches: AtomicU64,
    /// Bells are left to be served by the progress thread.
    pub(super) serve: AtomicBool,
    pub(super) stop: AtomicBool,
    /// How often most of very many QPs or connections were gone.
    pub(in crate::engine) emptied: AtomicU32,
}

impl ProgressShared {
    pub(crate) fn new() -> Result<ProgressShared, Error> {
        Ok(ProgressShared {
            kick: EventFd::new().map_err(Error::io("creating an eventfd"))?,
            activated: EventFd::new().map_err(Error::io("creating an eventfd"))?,
            kicked: AtomicBool::new(false),
            asleep_until: AtomicU64::new(0),
            driven_at: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            groups_watched: AtomicBool::new(false),
            watches: AtomicU64::new(0),
            serve: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            emptied: AtomicU32::new(0),
        })
    }

    /// Makes the thread look around.
    #[cold]
    pub(crate) fn kick(&self) {
        if !self.kicked.swap(true, Ordering::AcqRel) {
            self.kick.notify();
        }
    }

    /// The thread was woken by a kick, and looks around after this.
    pub(super) fn take_kick(&self) {
        // In this order: the other way round, a kick that comes between is drained and leaves `kicked` set, and no later one
        // is notified.
        self.kick.drain();
        self.kicked.swap(false, Ordering::AcqRel);
    }

    /// The thread will sleep until `end` at most, while another one waits for an event. False if no other one does any more.
    pub(super) fn announce_sleep(&self, end: Time) -> bool {
        self.asleep_until.store(end.0, Ordering::Relaxed);
        // The other one has a fence like it between its last word and its look at `asleep_until`.
        fence(Ordering::SeqCst);
        self.is_watched()
    }

    /// Makes the thread take the lock, even if it has to wait for it.
    #[cold]
    pub(crate) fn kick_to_serve(&self) {
        self.serve.store(true, Ordering::Release);
        self.kick();
    }

    /// False if the thread is awake in time for whatever is due from `now` on: most holders of the lock leave while it ticks.
    #[inline]
    pub(super) fn may_oversleep(&self, now: Time) -> bool {
        now.0.saturating_add(DEFER_NS) < self.asleep_until.load(Ordering::Relaxed)
    }

    /// Sees to it that the thread is awake at `due`, give or take a tick. Called with the
    /// engine's lock held, under which the thread decides how long to sleep.
    #[inline]
    pub(crate) fn wake_by(&self, due: Time) {
        if due.0.saturating_add(DEFER_NS) < self.asleep_until.load(Ordering::Relaxed) {
            // Once is enough.
            self.asleep_until.store(0, Ordering::Relaxed);
            self.kick();
        }
    }

    /// The program drove the engine just now.
    #[inline]
    pub(crate) fn note_driven(&self, now: Time) {
        self.driven_at.store(now.0, Ordering::Relaxed);
    }

    /// A thread that polls cannot drive, because another one does. If that is the progress thread, it leaves the engine to a program
    /// that goes on asking.
    #[inline]
    pub(crate) fn ask_for_engine(&self) {
        // Threads of the program that are in each other's way write it once.
        if !self.asked.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// A thread asked since the last call.
    #[inline]
    pub(super) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::Relaxed)
    }

    /// The program drove the engine at most so long ago.
    pub(in crate::engine) fn was_driven(&self, now: Time, within_ns: u64) -> bool {
        let driven_at = Time(self.driven_at.load(Ordering::Relaxed));
        driven_at != Time::ZERO && now.since_ns(driven_at) < within_ns
    }

    /// A thread waits for an event.
    pub(in crate::engine) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// Becomes the one thread that watches the sockets, if there is none.
    pub(crate) fn try_watch(&self) -> Option<Watch<'_>> {
        if self.watched.swap(true, Ordering::AcqRel) {
            return None;
        }
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.groups_watched.store(false, Ordering::Relaxed);
        Some(Watch { progress: self })
    }
}

/// The calling thread watches the sockets.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    progress: &'a ProgressShared,
}

impl Watch<'_> {
    /// Stops watching, at the time `now`. If the progress thread sleeps for long, it is
    /// woken: others may wait for what arrives from now on.
    pub(crate) fn end(self, now: Time) {
        self.progress.note_driven(now);
        self.progress.watched.store(false, Ordering::Release);
        // See `ProgressShared::announce_sleep`.
        fence(Ordering::SeqCst);
        self.progress.wake_by(now + DEFER_NS);
    }
}

impl Drop for Watch<'_> {
    /// For the way out of an error; [`Watch::end`] has done it otherwise.
    fn drop(&mut self) {
        self.progress.watched.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::thread;

    use urxe_udp::{Interest, wait_for};

    use super::*;

    fn is_kicked(progress: &ProgressShared) -> bool {
        let kick = [Interest::readable(progress.kick.as_fd())];
        let ready = wait_for(&kick, Some(std::time::Duration::ZERO));
        ready.expect("polls").is_ready(0)
    }

    /// However the kicks of some threads fall among the looks of the one that is kicked.
    #[test]
    fn a_kick_is_seen_after_any_others() {
        let progress = ProgressShared::new().expect("descriptors");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !progress.stop.load(Ordering::Relaxed) {
                        progress.kick();
                    }
                });
            }
            let mut taken = 0;
            let mut missed = 0;
            while taken < 50_000 && missed < 1_000_000 {
                if is_kicked(&progress) {
                    progress.take_kick();
                    (taken, missed) = (taken + 1, 0);
                } else {
                    missed += 1;
                    thread::yield_now();
                }
            }
            progress.stop.store(true, Ordering::Relaxed);
        });
        if is_kicked(&progress) {
            progress.take_kick();
        }
        progress.kick();
        assert!(is_kicked(&progress), "the thread is never woken again");
    }

    #[test]
    fn a_long_sleep_is_seen_by_the_thread_that_leaves() {
        let progress = ProgressShared::new().expect("descriptors");
        let watch = progress.try_watch().expect("the first");
        assert!(progress.announce_sleep(Time(u64::MAX)));
        watch.end(Time(1));
        assert!(is_kicked(&progress));
        progress.take_kick();
        assert!(!progress.announce_sleep(Time(u64::MAX)));
    }

    #[test]
    fn a_thread_that_polls_asks_once_between_two_looks() {
        let progress = ProgressShared::new().expect("descriptors");
        assert!(!progress.was_asked());
        (0..3).for_each(|_| progress.ask_for_engine());
        assert!(progress.was_asked());
        assert!(!progress.was_asked());
    }
}
