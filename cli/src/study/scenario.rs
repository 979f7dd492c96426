//! Measurements by simulated networks.

use fabric_sim::scenario::{FlowReport, Report, Scenario};

use super::book::Cell;
use crate::error::{CliError, Context as _};

/// Runs a scenario under its seed. An expectation that does not hold is an error.
pub(super) fn run(text: &str) -> Result<Report, CliError> {
    let what = "a scenario of the study cannot be run";
    let scenario = Scenario::parse(text).context(what)?;
    let report = scenario.run(scenario.seed()).context(what)?;
    match report.failures.first() {
        Some(failure) => Err(CliError::Fault(format!("the simulation failed: {failure}"))),
        None => Ok(report),
    }
}

/// Payload of a flow in Gb/s; 0 if nothing arrived.
pub(super) fn gbps(flow: &FlowReport) -> f64 {
    flow.goodput.map_or(0.0, |rate| rate.as_bps() as f64 / 1e9)
}

/// How a flow ended, in words.
pub(super) fn outcome(flow: &FlowReport) -> Cell {
    Cell::text(match (&flow.failure, flow.completion) {
        (Some(failure), _) => failure.clone(),
        (None, Some(_)) => "complete".to_owned(),
        (None, None) => "not complete".to_owned(),
    })
}

/// Frames that were dropped, for whatever reason.
pub(super) fn drops(report: &Report) -> u64 {
    report.drops.iter().map(|(_, count)| count).sum()
}
