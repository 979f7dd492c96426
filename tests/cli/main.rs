//! The `urxe` command from the outside: what it prints, how it ends, and that it ends.
//!
//! The loopback addresses that `pingpong` and `bench` use by default can serve one measurement at a time, so
//! those tests take a lock.

mod bench;
mod decode;
mod harness;
mod json;
mod key;
mod launch;
mod learn;
mod pingpong;
mod scale;
mod sim;
mod sim_many;
mod sim_ray;
mod sim_report;
mod strict;
mod study;
mod usage;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by a test that uses 127.0.0.1 and 127.0.0.2 as RDMA devices.
fn loopback_pair() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    // A test that failed has left nothing behind: its processes ended with it.
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
