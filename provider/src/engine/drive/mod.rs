//! What moves the core: the lock, the threads that drive, and the state behind the lock.

pub(super) mod clock;
mod combined;
pub(super) mod doorbell;
mod ended;
pub(super) mod give_way;
pub(super) mod parts;
pub(super) mod patience;
pub(super) mod progress;
pub(super) mod progress_shared;
pub(super) mod shard_state;
mod sync;
pub(super) mod vigilance;
pub(super) mod wait;
