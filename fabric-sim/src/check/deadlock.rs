//! When a circle of waiting queues is a deadlock: none of them has sent a frame for a while.

use crate::Fabric;
use crate::engine::{Span, Time};
use crate::fabric::Deadlock;
use crate::fault::ActiveFault;
use crate::qos::PauseTimes;

/// The circle that was seen last.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    seen: Option<(Deadlock, Time)>,
}

impl Fabric {
    /// How long queues can stand still without being stuck: until pauses that are not repeated run out, and
    /// the watchdog has acted.
    pub(super) fn patience(&self) -> Span {
        let slowest = self.ports.iter().map(|port| port.link.rate).min();
        let pause = self.qos.pause_times().zip(slowest);
        let pause = pause.map_or(Span::ZERO, |(times, rate)| {
            PauseTimes::of_quanta(times.quanta, rate)
        });
        let detect = self.config.switch.watchdog.map(|watchdog| watchdog.detect);
        (pause * 2).max(detect.unwrap_or_default() * 2)
    }

    /// When the last fault ended that keeps a port from sending; `None` if one never does.
    pub(super) fn free_since(&self) -> Option<Time> {
        let stops = |fault: &&ActiveFault| !fault.fault().kind.is_about_frames();
        let ends = self.faults.list.iter().filter(stops).map(|f| f.fault().to);
        let last = ends.max().unwrap_or(Time::ZERO);
        (last != Time::NEVER).then_some(last)
    }
}

impl Stuck {
    /// Queues that wait for each other now, and whether they have stood still for long.
    pub(super) fn look(
        &mut self,
        fabric: &Fabric,
        now: Time,
        patience: Span,
    ) -> Option<(Deadlock, bool)> {
        let seen = self.seen.take();
        if !fabric.is_any_blocked() {
            // Nearly always nothing waits, and nothing need be searched.
            return None;
        }
        let cycle = fabric.find_deadlock()?;
        let has_moved = |since: Time| {
            let mut queues = cycle.cycle.iter();
            queues.any(|&queue| fabric.last_sent(queue) > since)
        };
        let since = match seen {
            Some((known, since)) if known == cycle && !has_moved(since) => since,
            _ => now,
        };
        self.seen = Some((cycle.clone(), since));
        Some((cycle, now.since(since) >= patience))
    }
}
