//! Runs a scenario, and judges the outcome.

use crate::Sim;
use crate::check::{Check, Mark};
use crate::engine::Time;
use crate::scenario::file::Scenario;
use crate::scenario::{Report, ScenarioError};

type Result<T> = core::result::Result<T, ScenarioError>;

impl Scenario {
    /// Builds and runs it, and reports.
    ///
    /// # Errors
    /// As [`Scenario::build`].
    pub fn run(&self, seed: u64) -> Result<Report> {
        self.run_by(seed, |sim, until| {
            sim.run_until(until);
        })
    }

    /// Runs it with a driver that looks at it, or interferes: `drive` has to run the simulation until that
    /// time.
    ///
    /// # Errors
    /// As [`Scenario::build`].
    pub fn run_by(&self, seed: u64, drive: impl FnOnce(&mut Sim, Time)) -> Result<Report> {
        let mut sim = self.build(seed)?;
        drive(&mut sim, self.until());
        Ok(self.conclude(&mut sim))
    }

    /// What a simulation that [`Scenario::build`] made, and that has run, came to.
    pub fn conclude(&self, sim: &mut Sim) -> Report {
        let violated = sim.verdict().err().into_iter();
        let mut report = Report::of(sim);
        let unexpected = self.failures(sim, &report);
        let violations = violated.flat_map(|violated| violated.violations);
        let violations = violations.map(|violation| violation.to_string());
        report.failures = violations.chain(unexpected).collect();
        report
    }

    /// What was expected and did not come.
    fn failures(&self, sim: &Sim, report: &Report) -> Vec<String> {
        let expect = &self.file.expect;
        let drops = sim.fabric().drops();
        let (drops, lossless) = (drops.total(), drops.lossless_overruns());
        let deadlock = report.deadlock.as_deref();
        let flows = report.flows.iter().map(|flow| flow.completion);
        let times: Vec<_> = flows
            .chain(report.jobs.iter().map(|job| job.completion))
            .collect();
        let is_complete = times.iter().all(Option::is_some);
        let last = times.into_iter().flatten().max().unwrap_or_default();
        let low = report.rates().fold(f64::INFINITY, f64::min);
        let jain = report.jain();
        let checks = [
            (
                expect.lossless_drops.is_none_or(|most| lossless <= most),
                format!("{lossless} frames of lossless classes were dropped"),
            ),
            (
                expect.drops.is_none_or(|most| drops <= most),
                format!("{drops} frames were dropped"),
            ),
            (
                expect.deadlock.is_none_or(|is| deadlock.is_some() == is),
                format!("deadlock: {}", deadlock.unwrap_or("none")),
            ),
            (
                expect.complete.is_none_or(|is| is_complete == is),
                format!("all flows complete: {is_complete}"),
            ),
            (
                expect.goodput_min.is_none_or(|r| low >= r.as_gbps_f64()),
                format!("the slowest flow has {low:.3} Gb/s"),
            ),
            (
                expect.jain_min.is_none_or(|least| jain >= least),
                format!("Jain's fairness index is {jain:.4}"),
            ),
            (
                expect
                    .completion_max
                    .is_none_or(|most| is_complete && last <= most),
                format!("complete: {is_complete}, the last after {last}"),
            ),
        ];
        let failed = checks.into_iter().filter(|(holds, _)| !holds);
        failed.map(|(_, text)| text).collect()
    }

    pub(super) fn set_checks(&self, sim: &mut Sim) {
        let (expect, checks) = (&self.file.expect, &self.file.checks);
        for &check in &checks.skip {
            sim.skip_check(check);
        }
        // What the file says about these is compared at the end.
        if expect.deadlock == Some(true) {
            sim.skip_check(Check::Deadlock);
            sim.skip_check(Check::Progress);
        }
        if expect.lossless_drops.is_some_and(|most| most > 0) {
            sim.skip_check(Check::Lossless);
        }
        if let Some(bound) = checks.progress {
            sim.set_progress_bound(bound);
        }
    }

    /// The marks that a set of runs must have seen, by the file.
    pub fn sometimes(&self) -> &[Mark] {
        &self.file.expect.sometimes
    }
}
