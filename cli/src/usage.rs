//! CPU time of this process, all threads together, and as a share of the wall clock.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

/// A running measurement of CPU time.
#[derive(Debug)]
pub(crate) struct CpuClock {
    started: Instant,
    user_us: i64,
    sys_us: i64,
}

/// CPU time in percent of the wall clock: 100 is one core kept busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CpuShare {
    pub(crate) user: f64,
    pub(crate) sys: f64,
}

impl CpuClock {
    pub(crate) fn start() -> CpuClock {
        let (user_us, sys_us) = cpu_us();
        CpuClock {
            started: Instant::now(),
            user_us,
            sys_us,
        }
    }

    /// The share since the start.
    pub(crate) fn share(&self) -> CpuShare {
        let wall_us = self.started.elapsed().as_secs_f64() * 1e6;
        let (user_us, sys_us) = cpu_us();
        let percent = |cpu_us: i64| 100.0 * cpu_us as f64 / wall_us.max(1.0);
        CpuShare {
            user: percent(user_us - self.user_us),
            sys: percent(sys_us - self.sys_us),
        }
    }
}

fn cpu_us() -> (i64, i64) {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the arguments are constant and valid");
    (
        usage.user_time().num_microseconds(),
        usage.system_time().num_microseconds(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_seen() {
        let clock = CpuClock::start();
        let end = Instant::now() + std::time::Duration::from_millis(200);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        let share = clock.share();
        assert!(share.user + share.sys > 0.0, "{share:?}");
    }
}
