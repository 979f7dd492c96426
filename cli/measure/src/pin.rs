//! Which CPU measures.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Keeps this thread, and those that it starts, on one CPU, so that two sides that are compared run on the same ones. Without
/// that CPU (a machine with one core) it stays where it is: false.
pub fn pin(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu).is_ok() && sched_setaffinity(Pid::from_raw(0), &set).is_ok()
}
