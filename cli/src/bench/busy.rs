//! Detects that other programs use the CPUs: then a measurement says less.

use std::fs;
use std::thread;
use std::time::Duration;

/// How long to look. The kernel counts in ticks of 10 ms.
const LOOK: Duration = Duration::from_millis(200);

/// Above this share the numbers are worth a warning.
const WORTH_A_NOTE_PERCENT: f64 = 10.0;

/// A note for the reader when this host is not idle before the measurement.
pub(crate) fn note() -> Option<String> {
    let before = CpuTimes::read()?;
    thread::sleep(LOOK);
    let percent = CpuTimes::read()?.busy_percent_since(before)?;
    (percent > WORTH_A_NOTE_PERCENT).then(|| {
        format!(
            "note: other programs use {percent:.0} % of the CPUs: numbers are worse than on a quiet machine, \
             and ratios are not to be trusted"
        )
    })
}

/// The first line of /proc/stat: time of all CPUs, in ticks.
#[derive(Clone, Copy, Debug)]
struct CpuTimes {
    idle: u64,
    all: u64,
}

impl CpuTimes {
    fn read() -> Option<CpuTimes> {
        CpuTimes::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<CpuTimes> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; what follows is in the first two again.
        let all = ticks.iter().take(8).sum();
        Some(CpuTimes {
            idle: ticks.get(3)? + ticks.get(4)?,
            all,
        })
    }

    fn busy_percent_since(self, before: CpuTimes) -> Option<f64> {
        let all = self
            .all
            .checked_sub(before.all)
            .filter(|&ticks| ticks > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(all);
        Some(100.0 * (all - idle) as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_not_idle() {
        let before =
            CpuTimes::parse("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1\n").expect("a stat file");
        let after = CpuTimes::parse("cpu  30 0 10 120 20 10 10 0 9 0\n").expect("a stat file");
        assert_eq!(after.busy_percent_since(before), Some(40.0));
        assert_eq!(before.busy_percent_since(before), None);
        assert!(CpuTimes::parse("intr 1 2").is_none());
    }
}
