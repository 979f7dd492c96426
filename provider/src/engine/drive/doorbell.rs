//! One lock, and a way to leave work with its holder.
//!
//! A thread that finds the lock taken does not wait: it puts its work where the
//! holder can find it, rings a bell, and goes its way. The holder looks at the bells
//! before and *after* it lets the lock go (flat combining), so that no thread waits and
//! no work is left lying.
//!
//! # Why no ring is lost
//!
//! The ringer does, in this order: work is stored; a bit of `pending` is set; `try_lock`. The
//! holder does: unlock; `pending` is counted up. Both change `pending` by reading and
//! writing it in one step, so the two steps have an order, and the later one sees all that
//! came before the earlier one. If the ringer's is first, the holder sees the bit and
//! takes the lock again, or finds that another thread has it, which will do the same. If
//! the holder's is first, the ringer's `try_lock` comes after the unlock: it succeeds and
//! the ringer serves itself, or it fails because of a *later* holder, to which the
//! argument applies again.
//!
//! A fence on each side would do as well, but takes a thread that unlocks seven times as long: 20 ns on an
//! EPYC, beside 6 for lock and unlock.
//!
//! `tests/loom_doorbell.rs` tries every interleaving of small cases.

use core::ops::{Deref, DerefMut};

use super::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering, TryLockError};

/// What is behind the lock.
pub(crate) trait Combined {
    /// Does the work that was left at bell number `index`. The lock is held.
    fn serve(&mut self, index: u32);

    /// Bells were served: the resulting packets are sent.
    fn served(&mut self);

    /// Called before every release of the lock. With `hand_over` the holder has served
    /// others for long enough: a thread that is there for it must be woken, and must
    /// take the lock (waiting for it), whatever the bells say.
    fn leave(&mut self, hand_over: bool);
}

/// Times that a holder takes the lock again for others before it passes that duty on.
/// A hundred rounds are some 100 us: more is contention without end.
const ROUNDS_MAX: u32 = 100;

/// The bit of `pending` that says so, and what is added to the rest at each release.
const RUNG: u32 = 1;
const RELEASE: u32 = 2;

/// The mark of one place where work can be left.
#[derive(Debug)]
pub(crate) struct Bell {
    index: u32,
    /// The bell is in the list, or about to be.
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new(index: u32) -> Bell {
        Bell {
            index,
            rung: AtomicBool::new(false),
        }
    }

    /// Called by the server of the bell before it looks for work, so that a ring from
    /// now on puts the bell into the list again.
    pub(crate) fn silence(&self) {
        // An exchange and not a store: it reads the latest ring, and so everything
        // stored before that ring is seen by the look that follows.
        self.rung.swap(false, Ordering::AcqRel);
    }
}

/// The engine failed: a thread panicked while it held the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Poisoned;

/// What came of an attempt to take the lock.
pub(crate) enum Attempt<'a, T: Combined> {
    /// Taken.
    Held(Guard<'a, T>),
    /// Another thread has it.
    Busy,
}

/// The lock, and the bells.
#[derive(Debug)]
pub(crate) struct Combiner<T> {
    state: Mutex<T>,
    /// There may be something in `rung`; and a count of releases.
    pending: AtomicU32,
    rung: Mutex<Vec<u32>>,
}

impl<T: Combined> Combiner<T> {
    pub(crate) fn new(state: T) -> Self {
        Combiner {
            state: Mutex::new(state),
            pending: AtomicU32::new(0),
            rung: Mutex::new(Vec::new()),
        }
    }

    /// Makes room for so many bells, so that ringing never allocates.
    pub(crate) fn reserve(&self, bells: usize) -> Result<(), Poisoned> {
        let mut rung = self.rung.lock().map_err(|_| Poisoned)?;
        let more = bells.saturating_sub(rung.len());
        rung.reserve(more);
        Ok(())
    }

    /// Fewer bells will ring from now on: gives up room beyond that for so many.
    pub(crate) fn shrink(&self, bells: usize) {
        // The room of a poisoned one is not used.
        if let Ok(mut rung) = self.rung.lock() {
            rung.shrink_to(bells);
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Result<Guard<'_, T>, Poisoned> {
        let state = self.state.lock().map_err(|_| Poisoned)?;
        Ok(Guard {
            combiner: self,
            state: Some(state),
        })
    }

    /// Takes the lock, and says whether another thread had it.
    pub(crate) fn lock_after(&self) -> Result<(Guard<'_, T>, bool), Poisoned> {
        match self.try_lock()? {
            Attempt::Held(guard) => Ok((guard, false)),
            Attempt::Busy => Ok((self.lock()?, true)),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Result<Attempt<'_, T>, Poisoned> {
        match self.state.try_lock() {
            Ok(state) => Ok(Attempt::Held(Guard {
                combiner: self,
                state: Some(state),
            })),
            Err(TryLockError::WouldBlock) => Ok(Attempt::Busy),
            Err(TryLockError::Poisoned(_)) => Err(Poisoned),
        }
    }

    /// Announces work at `bell`, which was stored before, and sees to it that
    /// it is done: by the present holder, or by this thread.
    pub(crate) fn ring(&self, bell: &Bell) -> Result<(), Poisoned> {
        if !bell.rung.swap(true, Ordering::AcqRel) {
            self.rung.lock().map_err(|_| Poisoned)?.push(bell.index);
        }
        // If the bell was in the list already, or another thread is about to put it
        // there, that thread's own bit below covers both.
        self.pending.fetch_or(RUNG, Ordering::AcqRel);
        self.combine();
        Ok(())
    }

    /// Takes a bell out of the list: what it belonged to is gone.
    pub(crate) fn forget(&self, bell: &Bell) {
        if let Ok(mut rung) = self.rung.lock() {
            rung.retain(|&index| index != bell.index);
        }
    }

    /// Changes what is behind the lock, without taking it.
    pub(crate) fn get_mut(&mut self, change: impl FnOnce(&mut T)) {
        if let Ok(state) = self.state.get_mut() {
            change(state);
        }
    }

    /// Serves bells as long as there are any and no other thread does.
    #[inline]
    fn combine(&self) {
        if self.has_rung() {
            self.serve_rounds();
        }
    }

    /// Called after the lock was let go, or a bell rung.
    #[inline]
    fn has_rung(&self) -> bool {
        // Changed and not only read: see the module's documentation.
        self.pending.fetch_add(RELEASE, Ordering::AcqRel) & RUNG != 0
    }

    #[cold]
    fn serve_rounds(&self) {
        for round in 1..=ROUNDS_MAX {
            // A poisoned lock has no holder that could serve.
            let Ok(Attempt::Held(mut guard)) = self.try_lock() else {
                return;
            };
            guard.serve_bells();
            guard.unlock(round == ROUNDS_MAX);
            drop(guard);
            if !self.has_rung() {
                return;
            }
        }
    }
}

/// The lock is held. Dropping it serves the bells and releases.
pub(crate) struct Guard<'a, T: Combined> {
    combiner: &'a Combiner<T>,
    /// Present until the release.
    state: Option<MutexGuard<'a, T>>,
}

impl<T: Combined> Guard<'_, T> {
    /// Does the work that others left so far.
    #[inline]
    pub(crate) fn serve_bells(&mut self) {
        if self.combiner.pending.load(Ordering::Relaxed) & RUNG != 0 {
            self.serve_rung();
        }
    }

    #[cold]
    fn serve_rung(&mut self) {
        let combiner = self.combiner;
        // Cleared before the list is read: a ring from now on sets it again.
        combiner.pending.fetch_and(!RUNG, Ordering::AcqRel);
        // One bell at a time: serving must not keep others from ringing.
        while let Some(index) = combiner.rung.lock().ok().and_then(|mut rung| rung.pop()) {
            self.serve(index);
        }
        self.served();
    }

    #[inline]
    fn unlock(&mut self, hand_over: bool) {
        if let Some(mut state) = self.state.take() {
            state.leave(hand_over);
        }
    }
}

impl<T: Combined> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.state.is_some() {
            self.serve_bells();
            self.unlock(false);
            self.combiner.combine();
        }
    }
}

impl<T: Combined> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.state
            .as_ref()
            .expect("held until the guard is dropped")
    }
}

impl<T: Combined> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.state
            .as_mut()
            .expect("held until the guard is dropped")
    }
}
