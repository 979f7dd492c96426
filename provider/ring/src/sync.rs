//! The primitives under the ring, in one place so that the loom tests can put their own there.

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
