//! CPU time of this process, all threads together, and as a share of the wall clock.

use std::ops::AddAssign;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

/// A running measurement of CPU time.
#[derive(Debug)]
pub(crate) struct CpuClock {
    started: Instant,
    before: (i64, i64),
}

/// CPU time, and the wall clock's time in which it was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CpuUse {
    user_us: i64,
    sys_us: i64,
    wall_us: i64,
}

impl CpuClock {
    pub(crate) fn start() -> CpuClock {
        let before = cpu_us();
        CpuClock {
            started: Instant::now(),
            before,
        }
    }

    /// The CPU time used since the start.
    pub(crate) fn read(&self) -> CpuUse {
        let wall_us = self.started.elapsed().as_micros() as i64;
        let (user_us, sys_us) = cpu_us();
        CpuUse {
            user_us: user_us - self.before.0,
            sys_us: sys_us - self.before.1,
            wall_us,
        }
    }
}

impl CpuUse {
    /// User time in percent of the wall clock: 100 is one core kept busy.
    pub(crate) fn user_percent(self) -> f64 {
        100.0 * self.user_us as f64 / self.wall_us.max(1) as f64
    }

    /// System time in percent of the wall clock.
    pub(crate) fn sys_percent(self) -> f64 {
        100.0 * self.sys_us as f64 / self.wall_us.max(1) as f64
    }
}

impl AddAssign for CpuUse {
    fn add_assign(&mut self, other: CpuUse) {
        self.user_us += other.user_us;
        self.sys_us += other.sys_us;
        self.wall_us += other.wall_us;
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
        let used = clock.read();
        assert!(used.user_percent() + used.sys_percent() > 0.0, "{used:?}");
        assert!(used.wall_us >= 200_000, "{used:?}");
    }

    #[test]
    fn uses_add_up_to_a_weighted_share() {
        let mut sum = CpuUse {
            user_us: 10,
            sys_us: 0,
            wall_us: 10,
        };
        sum += CpuUse {
            user_us: 0,
            sys_us: 15,
            wall_us: 30,
        };
        assert_eq!((sum.user_percent(), sum.sys_percent()), (25.0, 37.5));
    }
}
