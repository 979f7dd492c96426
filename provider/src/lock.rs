//! Locks over what a panic leaves whole.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. Nothing behind it is changed half way when a thread panics, so a poisoned one is as good.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
