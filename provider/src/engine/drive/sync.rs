//! The primitives under the doorbells, in one place so that the loom test can put its
//! own there.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard, TryLockError};
