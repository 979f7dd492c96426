//! When a circle of waiting queues is a deadlock: none of them has sent a frame for a while.

use crate::Fabric;
use crate::engine::{Span, Time};
use crate::fabric::Deadlock;
use crate::fault::ActiveFault;
use crate::qos::{FlowControl, PauseTimes};

/// The circle that was seen last.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    seen: Option<(Deadlock, Time)>,
}

/// The result of a look.
pub(super) struct Found {
    /// Queues wait for each other, now.
    pub(super) is_cycle: bool,
    /// The circle of queues that have stood still for long.
    pub(super) deadlock: Option<Deadlock>,
}

impl Fabric {
    /// How long queues can stand still without being stuck: until pauses that are not repeated run out, and
    /// the watchdog has acted.
    pub(super) fn patience(&self) -> Span {
        let slowest = self.ports.iter().map(|port| port.link.rate).min();
        let pause = match (self.qos.flow_control, slowest) {
            (FlowControl::Pfc(times) | FlowControl::Pause(times), Some(rate)) => {
                PauseTimes::of_quanta(times.quanta, rate)
            }
            _ => Span::ZERO,
        };
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
    pub(super) fn look(&mut self, fabric: &Fabric, now: Time, patience: Span) -> Found {
        // Nearly always nothing waits, and nothing need be searched.
        let cycle = fabric
            .is_any_blocked()
            .then(|| fabric.find_deadlock())
            .flatten();
        let Some(cycle) = cycle else {
            self.seen = None;
            return Found {
                is_cycle: false,
                deadlock: None,
            };
        };
        let has_moved = |since: Time| {
            let mut queues = cycle.cycle.iter();
            queues.any(|&queue| fabric.last_sent(queue) > since)
        };
        let since = match &self.seen {
            Some((known, since)) if *known == cycle && !has_moved(*since) => *since,
            _ => now,
        };
        let is_long = now.since(since) >= patience;
        self.seen = Some((cycle.clone(), since));
        Found {
            is_cycle: true,
            deadlock: is_long.then_some(cycle),
        }
    }
}
