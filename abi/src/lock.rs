//! Locks over what a panic leaves whole.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// Takes a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    whole(mutex.lock())
}

/// What a lock or a condition gave. Nothing behind it is changed half way when a thread panics, so a poisoned one is as
/// good.
pub(crate) fn whole<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
