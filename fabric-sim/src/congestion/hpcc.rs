//! HPCC (Li et al., SIGCOMM 2019, algorithm 1): switches write queue, bytes sent and time into each packet, the receiver sends it
//! back, and the window follows the use of the busiest link.

use crate::congestion::{Ack, Algorithm, Allowance, Road};
use crate::engine::Span;
use crate::fabric::Hop;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HpccParams {
    /// Use of a link to aim at.
    pub eta: f64,
    /// Round trips of slow growth before a fast one.
    pub stages: u32,
    /// Part of a full window that is added at a time.
    pub additive: f64,
}

impl Default for HpccParams {
    /// 95 %, five stages, and the additive part for 100 flows on a link: (1 - eta) / 100.
    fn default() -> Self {
        HpccParams {
            eta: 0.95,
            stages: 5,
            additive: 0.05 / 100.0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Hpcc {
    params: HpccParams,
    road: Road,
    /// In packets: now, and at the last update in a round trip.
    window: f64,
    reference: f64,
    stage: u32,
    /// Use of the busiest link, smoothed.
    usage: f64,
    hops: Vec<Hop>,
    /// The next update for a round trip comes when so many packets are acknowledged.
    update_after: u64,
}

impl Hpcc {
    pub(crate) fn new(params: HpccParams, road: Road) -> Hpcc {
        let window = road.bdp().max(1.0);
        Hpcc {
            params,
            road,
            window,
            reference: window,
            stage: 0,
            usage: 1.0,
            hops: Vec::with_capacity(8),
            update_after: 0,
        }
    }

    fn allowance(&self) -> Allowance {
        Allowance {
            window: (self.window.ceil() as u32).max(1),
            rate: Some(self.road.rate_of(self.window, self.road.base_rtt)),
        }
    }

    /// The use of the busiest link; `None` if nothing is known of it.
    fn measure(&mut self, hops: &[Hop]) -> Option<f64> {
        let round = self.road.base_rtt.as_secs_f64();
        let same_way = self.hops.len() == hops.len()
            && self.hops.iter().zip(hops).all(|(a, b)| a.port == b.port);
        let mut busiest: Option<(f64, Span)> = None;
        for (old, new) in self.hops.iter().zip(hops).filter(|_| same_way) {
            let span = new.at.since(old.at);
            if span == Span::ZERO {
                continue;
            }
            let link = new.rate.as_bps() as f64 / 8.0;
            let queue = old.queue.min(new.queue) as f64;
            let sent = new.sent.saturating_sub(old.sent) as f64;
            let usage = queue / (link * round) + sent / span.as_secs_f64() / link;
            if busiest.is_none_or(|(most, _)| usage > most) {
                busiest = Some((usage, span));
            }
        }
        self.hops.clear();
        self.hops.extend_from_slice(hops);
        let (usage, span) = busiest?;
        let part = (span.as_secs_f64() / round).min(1.0);
        self.usage = (1.0 - part) * self.usage + part * usage;
        Some(self.usage)
    }
}

impl Algorithm for Hpcc {
    fn start(&self) -> Allowance {
        self.allowance()
    }

    fn on_ack(&mut self, ack: &Ack<'_>) -> Allowance {
        let Some(usage) = self.measure(ack.hops) else {
            return self.allowance();
        };
        let (full, params) = (self.road.bdp().max(1.0), &self.params);
        let step = params.additive * full;
        let is_round = ack.acked > self.update_after;
        if usage >= params.eta || self.stage >= params.stages {
            self.window = self.reference / (usage / params.eta) + step;
            self.stage = if is_round { 0 } else { self.stage };
        } else {
            self.window = self.reference + step;
            self.stage += u32::from(is_round);
        }
        self.window = self.window.clamp(0.01, full);
        if is_round {
            self.reference = self.window;
            self.update_after = ack.sent;
        }
        self.allowance()
    }
}
