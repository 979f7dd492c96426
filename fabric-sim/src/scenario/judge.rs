//! Runs a scenario, and judges the outcome.

use crate::Sim;
use crate::check::{Check, Mark};
use crate::engine::{Rate, Time};
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
        let verdict = sim.verdict();
        let mut report = Report::of(sim);
        let violations = verdict.err().map(|violated| violated.violations);
        report.failures = violations
            .into_iter()
            .flatten()
            .map(|violation| violation.to_string())
            .collect();
        let unexpected = self.failures(sim, &report);
        report.failures.extend(unexpected);
        report
    }

    /// What was expected and did not come.
    fn failures(&self, sim: &Sim, report: &Report) -> Vec<String> {
        let expect = &self.file.expect;
        let mut failures = Vec::new();
        let mut check = |holds: bool, text: String| {
            if !holds {
                failures.push(text);
            }
        };
        let drops = sim.fabric().drops();
        let lossless = drops.lossless_overruns();
        if let Some(most) = expect.lossless_drops {
            check(
                lossless <= most,
                format!("{lossless} frames of lossless classes were dropped"),
            );
        }
        if let Some(most) = expect.drops {
            check(
                drops.total() <= most,
                format!("{} frames were dropped", drops.total()),
            );
        }
        if let Some(expected) = expect.deadlock {
            let text = format!("deadlock: {}", report.deadlock.as_deref().unwrap_or("none"));
            check(report.deadlock.is_some() == expected, text);
        }
        if let Some(expected) = expect.complete {
            let all = report.flows.iter().all(|f| f.completion.is_some());
            check(all == expected, format!("all flows complete: {all}"));
        }
        let rates = report
            .flows
            .iter()
            .map(|f| f.goodput.map_or(0.0, Rate::as_gbps_f64));
        let rates: Vec<f64> = rates.collect();
        if let Some(least) = expect.goodput_min {
            let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
            check(
                low >= least.as_gbps_f64(),
                format!("the slowest flow has {low:.3} Gb/s"),
            );
        }
        if let Some(least) = expect.jain_min {
            let jain = report.jain();
            check(jain >= least, format!("Jain's fairness index is {jain:.4}"));
        }
        failures
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
