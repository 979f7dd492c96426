//! The measuring side's connection to the other process, and one sample over it.

use std::time::Duration;

use urxe_measure::bench::link::{Link, Packets};
use urxe_measure::bench::plan::{Op, Plan};
use urxe_measure::bench::{bandwidth, latency};

use super::protocol::{Answer, Expected, Request};
use crate::control::ANSWER_MAX;
use crate::error::CliError;
use crate::station::{RemoteMemory, Station};
use crate::target::{LOOPBACK_CLIENT, LOOPBACK_SERVER, Measurement, Target};
use crate::wire::Way;

/// What one sample gave: Gbit/s, or microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) value: f64,
    pub(super) p99: Option<f64>,
}

/// A connected pair of processes.
#[derive(Debug)]
pub(super) struct Session {
    link: Link,
    remote: RemoteMemory,
    /// Operations since the start: what an atomic counter must show.
    total: u64,
    target: Target,
}

impl Session {
    /// Starts the other side on this host. The way of the packets of this side, and of the other's.
    pub(super) fn start(plan: Plan, ways: [Way; 2]) -> Result<Session, CliError> {
        let [ours, theirs] = ways;
        let target = Target::start(Measurement::Bench, theirs)?;
        let address = if plan.is_one_address {
            LOOPBACK_SERVER
        } else {
            LOOPBACK_CLIENT
        };
        Session::with(target, &Station::open(address, ours)?, plan)
    }

    /// With the other side that is there, by a device of this host.
    pub(super) fn with(
        mut target: Target,
        station: &Station,
        plan: Plan,
    ) -> Result<Session, CliError> {
        let control = &mut target.control;
        let link = Link::new(station, plan)?;
        if matches!(plan.op, Op::Send | Op::Write) {
            link.fill(0);
        }
        control.send(&Request::Setup {
            plan,
            endpoint: link.endpoint(),
            memory: link.window(),
        })?;
        let remote = match control.recv(Some(ANSWER_MAX))? {
            Answer::Ready { endpoint, memory } => {
                link.connect(&endpoint)?;
                memory
            }
            other => return Err(control.out_of_turn(&other)),
        };
        Ok(Session {
            link,
            remote,
            total: 0,
            target,
        })
    }

    /// How many operations take about `time`. This run also warms everything up.
    pub(super) fn calibrate(&mut self, time: Duration) -> Result<u64, CliError> {
        let plan = self.link.plan;
        // About a tenth of a second at a guess that is on the slow side.
        let bytes_guess = (256 << 20) / plan.size as u64;
        let guess = if plan.is_latency {
            1_000
        } else {
            bytes_guess.clamp(16, 100_000)
        };
        let sample = self.sample(guess)?;
        let per_second = if !plan.is_latency {
            sample.value * 1e9 / (8.0 * plan.size as f64)
        } else {
            let ways = if plan.op.is_round_trip() { 1.0 } else { 2.0 };
            1e6 / (ways * sample.value)
        };
        Ok(((per_second * time.as_secs_f64()) as u64).clamp(16, 50_000_000))
    }

    /// Whether packets went through memory that the two processes share.
    pub(super) fn is_in_memory(&self) -> Result<bool, CliError> {
        Ok(self.link.counter("tx_records")? > 0)
    }

    /// What became of the packets of this side, and of the other's.
    pub(super) fn packets(&mut self) -> Result<[Packets; 2], CliError> {
        let control = &mut self.target.control;
        control.send(&Request::Count)?;
        match control.recv(Some(ANSWER_MAX))? {
            Answer::Packets(theirs) => Ok([self.link.packets()?, theirs]),
            other => Err(control.out_of_turn(&other)),
        }
    }

    /// One sample of this many operations.
    pub(super) fn sample(&mut self, iters: u64) -> Result<Sample, CliError> {
        self.target.control.send(&Request::Run { iters })?;
        self.target.control.expect(&Answer::Running)?;
        let plan = self.link.plan;
        let check = &mut || self.target.control.check();
        let sample = if plan.is_latency {
            let mut samples = latency::measure(&self.link, self.remote, iters, check)?;
            Sample {
                value: samples.percentile_us(50.0),
                p99: Some(samples.percentile_us(99.0)),
            }
        } else {
            let skip = plan.road.map_or(0, |_| iters / 5);
            let (count, time) = bandwidth::stream(&self.link, self.remote, (skip, iters), check)?;
            let bits = 8.0 * (plan.size as u64 * count) as f64;
            Sample {
                value: bits / time.as_secs_f64() / 1e9,
                p99: None,
            }
        };
        self.total += iters;
        if plan.is_target_passive() {
            self.target.control.send(&Request::Finished)?;
        }
        self.target.control.expect(&Answer::Done)?;
        Ok(sample)
    }

    /// Verifies what the operations left behind, and ends the other side.
    pub(super) fn finish(mut self) -> Result<(), CliError> {
        let plan = self.link.plan;
        let expected = match (plan.op, plan.is_latency) {
            (Op::Send, _) | (Op::Write, false) => Expected::Pattern,
            // The last byte of each WRITE of a ping-pong was its mark, which each side has waited for.
            (Op::Write, true) => Expected::Anything,
            (Op::Read, _) => {
                self.link.verify()?;
                Expected::Anything
            }
            (Op::Atomic, _) => Expected::Count(self.total),
        };
        self.target.control.send(&Request::Check { expected })?;
        self.target.control.expect(&Answer::Done)?;
        self.target.control.send(&Request::Bye)?;
        self.target.wait()
    }
}
