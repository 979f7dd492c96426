//! Every interleaving of small cases of `engine/drive/doorbell.rs`: no work that was left is
//! ever forgotten. The file itself is under test, on loom's primitives.

#![allow(dead_code, reason = "the file has more than is needed here")]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(crate) use std::sync::TryLockError;

    use std::ops::{Deref, DerefMut};

    /// A lock as the standard library's behaves. Loom's own will not do: its release is
    /// no step of its search, so it never tries a `try_lock` between lock and unlock.
    #[derive(Debug)]
    pub(crate) struct Mutex<T> {
        held: AtomicBool,
        /// Never contended: `held` decides.
        value: std::sync::Mutex<T>,
    }

    pub(crate) struct MutexGuard<'a, T> {
        held: &'a AtomicBool,
        value: Option<std::sync::MutexGuard<'a, T>>,
    }

    type Attempt<'a, T> = Result<MutexGuard<'a, T>, TryLockError<()>>;

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex {
                held: AtomicBool::new(false),
                value: std::sync::Mutex::new(value),
            }
        }

        pub(crate) fn try_lock(&self) -> Attempt<'_, T> {
            // A failed attempt orders nothing, as in the standard library.
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            if self
                .held
                .compare_exchange(false, true, success, failure)
                .is_err()
            {
                return Err(TryLockError::WouldBlock);
            }
            let value = self
                .value
                .try_lock()
                .map_err(|_| TryLockError::WouldBlock)?;
            Ok(MutexGuard {
                held: &self.held,
                value: Some(value),
            })
        }

        pub(crate) fn get_mut(&mut self) -> Result<&mut T, TryLockError<()>> {
            self.value.get_mut().map_err(|_| TryLockError::WouldBlock)
        }

        pub(crate) fn lock(&self) -> Attempt<'_, T> {
            loop {
                if let Ok(guard) = self.try_lock() {
                    return Ok(guard);
                }
                loom::thread::yield_now();
            }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.value = None;
            self.held.store(false, Ordering::Release);
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.value.as_ref().expect("held")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.value.as_mut().expect("held")
        }
    }
}
#[path = "../src/engine/drive/doorbell.rs"]
mod doorbell;

use doorbell::{Attempt, Bell, Combined, Combiner};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// A place where a number of jobs can be left.
struct Place {
    bell: Bell,
    left: AtomicU32,
}

struct State {
    places: Arc<Vec<Place>>,
    done: u32,
}

impl Combined for State {
    fn serve(&mut self, index: u32) {
        let place = &self.places[index as usize];
        place.bell.silence();
        // Relaxed on purpose: the bell alone must order it.
        let left = place.left.load(Ordering::Relaxed);
        if left > 0 {
            place.left.fetch_sub(left, Ordering::Relaxed);
            self.done += left;
        }
    }

    fn served(&mut self) {}

    fn leave(&mut self, _hand_over: bool) {}
}

/// What posting does: at once if the lock is free, else left for the holder.
fn post(combiner: &Combiner<State>, place: &Place) {
    match combiner.try_lock().expect("nobody panics") {
        Attempt::Held(mut state) => state.done += 1,
        Attempt::Busy => {
            place.left.fetch_add(1, Ordering::Relaxed);
            combiner.ring(&place.bell).expect("nobody panics");
        }
    }
}

fn all_is_done(threads: u32, places: u32, posts: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let places: Arc<Vec<Place>> = Arc::new(
            (0..places)
                .map(|index| Place {
                    bell: Bell::new(index),
                    left: AtomicU32::new(0),
                })
                .collect(),
        );
        let state = State {
            places: places.clone(),
            done: 0,
        };
        let combiner = Arc::new(Combiner::new(state));
        let run = |thread: u32| {
            let (combiner, places) = (combiner.clone(), places.clone());
            move || {
                for _ in 0..posts {
                    post(&combiner, &places[thread as usize % places.len()]);
                }
            }
        };
        let others: Vec<_> = (1..threads).map(|n| thread::spawn(run(n))).collect();
        run(0)();
        for other in others {
            other.join().expect("no panic");
        }
        // No thread comes again: what is not done by now is lost. Read without
        // `lock()`: its guard would serve what is left.
        let left: u32 = places.iter().map(|p| p.left.load(Ordering::Relaxed)).sum();
        let state = combiner.lock().expect("nobody panics");
        assert_eq!((state.done, left), (threads * posts, 0));
    });
}

#[test]
fn two_threads_two_places() {
    all_is_done(2, 2, 2);
}

#[test]
fn two_threads_one_place() {
    all_is_done(2, 1, 2);
}

#[test]
fn three_threads_two_places() {
    all_is_done(3, 2, 1);
}
