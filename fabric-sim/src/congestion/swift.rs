//! Swift (Kumar et al., SIGCOMM 2020, algorithm 1): a window that grows by a step in a round trip below the target delay, and
//! shrinks by the excess once in one. The target grows with the hops, and as the window shrinks: many flows need a longer queue.

use crate::congestion::{Ack, Algorithm, Allowance, Road};
use crate::engine::{Span, Time};

/// Parameters, by default near those of the paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SwiftParams {
    /// What queues may add to the empty path, however wide the window.
    pub base_target: Span,
    /// The same for each switch.
    pub per_hop: Span,
    /// What many flows may add.
    pub flow_range: Span,
    /// Windows, in packets, at which flows add all of that, and nothing.
    pub flow_windows: (f64, f64),
    /// Packets that a window grows by in a round trip.
    pub additive_increase: f64,
    /// Weight of the excess.
    pub beta: f64,
    /// The largest part of a window that one round trip takes.
    pub max_decrease: f64,
}

impl SwiftParams {
    /// With so much of queues above the empty path.
    pub const fn target(base_target: Span) -> SwiftParams {
        SwiftParams {
            base_target,
            per_hop: Span::ZERO,
            flow_range: Span::from_ps(base_target.ps() * 4),
            flow_windows: (0.1, 100.0),
            additive_increase: 1.0,
            beta: 0.8,
            max_decrease: 0.5,
        }
    }

    /// The round trip to aim at with such a window.
    pub(crate) fn round_trip(&self, road: &Road, window: f64) -> Span {
        let (narrow, wide) = self.flow_windows;
        let part = |window: f64| 1.0 / window.sqrt();
        let scale = (part(window) - part(wide)) / (part(narrow) - part(wide));
        let added = self.flow_range.ps() as f64 * scale.clamp(0.0, 1.0);
        let hops = self.per_hop * u64::from(road.switches);
        road.base_rtt + self.base_target + hops + Span::from_ps(added as u64)
    }
}

const WINDOW_MIN: f64 = 0.001;

#[derive(Debug)]
pub(crate) struct Swift {
    params: SwiftParams,
    road: Road,
    window: f64,
    rtt: Span,
    shrink_after: Time,
}

impl Swift {
    pub(crate) fn new(params: SwiftParams, road: Road) -> Swift {
        Swift {
            params,
            road,
            window: road.bdp().max(1.0),
            rtt: road.base_rtt,
            shrink_after: Time::ZERO,
        }
    }

    fn allowance(&self) -> Allowance {
        let is_narrow = self.window < 1.0;
        Allowance {
            window: (self.window as u32).max(1),
            rate: is_narrow.then(|| self.road.rate_of(self.window, self.rtt)),
        }
    }
}

impl Algorithm for Swift {
    fn start(&self) -> Allowance {
        self.allowance()
    }

    fn on_ack(&mut self, ack: &Ack<'_>) -> Allowance {
        self.rtt = ack.rtt;
        let target = self.params.round_trip(&self.road, self.window);
        if ack.rtt < target {
            let step = self.params.additive_increase * f64::from(ack.packets);
            self.window += step / self.window.max(1.0);
        } else if self.shrink_after <= ack.now {
            let excess = (ack.rtt.ps() - target.ps()) as f64 / ack.rtt.ps() as f64;
            let part = (self.params.beta * excess).min(self.params.max_decrease);
            self.window *= 1.0 - part;
            self.shrink_after = ack.now + ack.rtt;
        }
        // A window of several round trips would only say that the program had nothing to send.
        self.window = self
            .window
            .clamp(WINDOW_MIN, 16.0 * self.road.bdp().max(16.0));
        self.allowance()
    }
}
