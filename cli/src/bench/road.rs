//! A long, narrow or lossy path between the two processes, by faults on purpose at both ends.

use std::str::FromStr;
use std::time::Duration;

use urxe::FaultSpec;
use urxe::congestion::{Rate, frame_overhead};

use crate::target::LOOPBACK_SERVER;
use crate::wire::{Way, WireName};
use urxe_measure::bench::plan::{Needs, Op, Plan};

/// A road, the same both ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Road {
    /// What packets of one side meet: half the round trip, the rate and the losses.
    faults: FaultSpec,
    rate: Rate,
    pub(super) rtt: Duration,
    seed: u64,
}

/// The names of a road's parts, and those of the faults that make them.
const PARTS: [(&str, &str); 6] = [
    ("rate", "rate"),
    ("rtt", "delay"),
    ("loss", "drop"),
    ("queue", "queue"),
    ("reorder", "reorder"),
    ("seed", "seed"),
];

impl FromStr for Road {
    type Err = String;

    fn from_str(text: &str) -> Result<Road, String> {
        const WANTED: &str = "a road is rate=RATE,rtt=TIME, and loss=N%, queue=SIZE, reorder=N% or seed=N behind that, as in \
                              rate=200M,rtt=20ms,loss=1%";
        let mut parts = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let known = PARTS.iter().find(|(ours, _)| *ours == name.trim());
            let Some((_, fault)) = known else {
                return Err(format!("{part:?}: {WANTED}"));
            };
            parts.push((part, format!("{fault}={}", value.trim())));
        }
        let faults: Vec<&str> = parts.iter().map(|(_, fault)| fault.as_str()).collect();
        let faults = faults.join(",").parse::<FaultSpec>().map_err(|error| {
            let ours = parts.iter().find(|(_, fault)| *fault == error.part);
            let part = ours.map_or(error.part.as_str(), |(part, _)| part);
            format!("{part}: {}", error.reason)
        });
        let mut faults = faults?;
        let (Some(rate), Some((rtt, longest))) = (faults.rate, faults.delay) else {
            return Err(WANTED.to_owned());
        };
        if rtt != longest || rtt < Duration::from_micros(2) {
            return Err("rtt: the round trip of a road is one time, of 2us at least".to_owned());
        }
        // In whole microseconds, as faults are written.
        let each_way = Duration::from_micros(rtt.as_micros() as u64 / 2);
        faults.delay = Some((each_way, each_way));
        let seed = faults.seed.unwrap_or(1);
        Ok(Road {
            faults,
            rate,
            rtt,
            seed,
        })
    }
}

impl Road {
    /// What the packets of this side, or of the other, meet. Each draws losses of its own.
    pub(super) fn way(&self, side: u64) -> Way {
        let mut faults = self.faults;
        faults.seed = Some(self.seed.wrapping_add(side));
        Way {
            wire: Some(WireName::Sockets),
            faults: Some(faults),
        }
    }

    /// Bytes that are under way when the road is full, and no one waits.
    fn product(&self) -> f64 {
        self.rate.bps() as f64 / 8.0 * self.rtt.as_secs_f64()
    }

    pub(super) fn needs(&self) -> Needs {
        // A full queue doubles the round trip, or is as long as was said.
        let queue = self
            .faults
            .queue
            .map_or(self.product().max(100e3), |queue| queue as f64);
        let longest = self.rtt.as_secs_f64() + queue * 8.0 / self.rate.bps() as f64;
        let fits = |timeout: &u8| 4.096e-6 * f64::from(1_u32 << timeout) >= longest;
        Needs {
            bytes: (3.0 * self.product()) as usize,
            timeout: (14..31).find(fits).unwrap_or(31),
        }
    }

    /// Bits of payload per second that messages of the plan have room for, if nothing is lost. None of atomics: what is
    /// narrow for those is how many may be under way.
    pub(super) fn carries(&self, plan: &Plan) -> Option<f64> {
        /// BTH and ICRC.
        const PACKET: usize = 12 + 4;
        if plan.op == Op::Atomic {
            return None;
        }
        let packets = plan.size.div_ceil(plan.mtu as usize).max(1);
        let around = packets * (PACKET + frame_overhead(&LOOPBACK_SERVER) as usize);
        let frames = plan.size.next_multiple_of(4) + plan.first_header_extra() + around;
        Some(self.rate.bps() as f64 * plan.size as f64 / frames as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_road_is_what_packets_meet_at_each_end() {
        let road: Road = "rate=200M, rtt=20ms, loss=1%, queue=1M, reorder=2%, seed=7"
            .parse()
            .expect("a road");
        let faults = |side| road.way(side).faults.expect("faults").to_string();
        assert_eq!(
            faults(0),
            "drop=1%,reorder=2%,delay=10ms,rate=200M,queue=1M,seed=7"
        );
        assert_eq!(
            faults(1),
            "drop=1%,reorder=2%,delay=10ms,rate=200M,queue=1M,seed=8"
        );
        let long: Road = "rate=1G,rtt=100ms".parse().expect("a road");
        assert!(long.needs().bytes >= 25_000_000);
        // 200 ms with a full queue.
        assert_eq!(long.needs().timeout, 16);
    }

    #[test]
    fn what_is_wrong_with_a_road_is_told() {
        for (text, part) in [
            ("", "a road is"),
            ("rate=1G", "a road is"),
            ("rtt=1ms", "a road is"),
            ("rate=1G,rtt=1ms,lose=1%", "\"lose=1%\": a road is"),
            ("rate=1G,rtt=1ms,loss=1", "loss=1: a share"),
            ("rate=1,rtt=1ms", "rate=1: 10k"),
            ("rate=1G,rtt=5", "rtt=5: a time"),
            ("rate=1G,rtt=1us", "rtt: "),
            ("rate=1G,rtt=1ms..2ms", "rtt: "),
            ("rate=1G,rtt=1ms,rtt=2ms", "rtt=2ms: it is there twice"),
            ("rate=1G,rtt=1ms,queue=0", "queue=0: "),
        ] {
            let error = text.parse::<Road>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_road_carries_the_payload_part_of_its_rate() {
        let road: Road = "rate=100M,rtt=1ms".parse().expect("a road");
        let mut plan = Plan {
            op: Op::Write,
            size: 8192,
            mtu: 4096,
            is_latency: false,
            is_event: false,
            is_signaled: false,
            is_one_address: false,
            road: Some(road.needs()),
        };
        let frames = 8192.0 + 16.0 + 2.0 * 82.0;
        assert_eq!(road.carries(&plan), Some(100e6 * 8192.0 / frames));
        assert!(plan.depth() * plan.size >= 3 * 12_500);
        plan.op = Op::Atomic;
        assert_eq!(road.carries(&plan), None);
    }
}
