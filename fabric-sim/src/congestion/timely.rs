//! TIMELY (Mittal et al., SIGCOMM 2015): a rate by the round trip and by how it changes; with the patch of Zhu et al. (CoNEXT
//! 2016, algorithm 2), without which it has no fixed point: any queue and any shares would do.

use crate::congestion::{Ack, Algorithm, Allowance, Road};
use crate::engine::{Rate, Span};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TimelyParams {
    /// The round trip below which a rate only grows, and the one that the change is weighed against.
    pub low: Span,
    /// The round trip above which it only shrinks.
    pub high: Span,
    /// What a rate grows by at a time.
    pub step: Rate,
    /// Part of a rate that it shrinks by.
    pub beta: f64,
    /// Weight of the newest change among those before.
    pub alpha: f64,
    /// The rate changes once for so many bytes.
    pub segment: u32,
}

impl TimelyParams {
    /// As Zhu et al. have them, for a round trip to aim above.
    pub const fn low(low: Span) -> TimelyParams {
        TimelyParams {
            low,
            high: Span::from_ps(low.ps() * 10),
            step: Rate::mbps(10),
            beta: 0.008,
            alpha: 0.875,
            segment: 16_000,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Timely {
    params: TimelyParams,
    road: Road,
    bps: f64,
    last_rtt: Option<Span>,
    /// Seconds.
    change: f64,
    /// Packets since the last change of the rate.
    packets: u32,
}

impl Timely {
    pub(crate) fn new(params: TimelyParams, road: Road) -> Timely {
        Timely {
            params,
            road,
            bps: road.rate.as_bps() as f64,
            last_rtt: None,
            change: 0.0,
            packets: 0,
        }
    }

    fn allowance(&self) -> Allowance {
        Allowance {
            window: u32::MAX,
            rate: Some(Rate::bps((self.bps as u64).max(1))),
        }
    }

    fn update(&mut self, rtt: Span) {
        let params = &self.params;
        let (rtt, low, high) = (
            rtt.as_secs_f64(),
            params.low.as_secs_f64(),
            params.high.as_secs_f64(),
        );
        let last = self.last_rtt.map_or(rtt, |last| last.as_secs_f64());
        self.change = (1.0 - params.alpha) * self.change + params.alpha * (rtt - last);
        let step = params.step.as_bps() as f64;
        if rtt < low {
            self.bps += step;
        } else if rtt > high {
            self.bps *= 1.0 - params.beta * (1.0 - high / rtt);
        } else {
            let gradient = self.change / self.road.base_rtt.as_secs_f64();
            let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
            let error = (rtt - low) / low;
            self.bps = step * (1.0 - weight) + self.bps * (1.0 - params.beta * weight * error);
        }
        self.bps = self.bps.clamp(step, self.road.rate.as_bps() as f64);
    }
}

impl Algorithm for Timely {
    fn start(&self) -> Allowance {
        self.allowance()
    }

    fn on_ack(&mut self, ack: &Ack<'_>) -> Allowance {
        self.packets += ack.packets;
        if self.packets.saturating_mul(self.road.packet) >= self.params.segment {
            self.packets = 0;
            self.update(ack.rtt);
            self.last_rtt = Some(ack.rtt);
        }
        self.allowance()
    }
}
