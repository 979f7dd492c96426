//! What the runs of a sweep came to, as lines of JSON: the plan, then a line for each run. Shards of a sweep that ran on several machines are put
//! together by them (`urxe sim merge`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use fabric_sim::check::{Mark, Marks};
use fabric_sim::engine::mix64;
use fabric_sim::scenario::{Report, Scenario};
use fabric_sim::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::error::{CliError, Context};
use crate::sim::new_file::{NewFile, cannot_write};

/// Which runs a sweep has, in all of its shards.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    pub(super) file: String,
    pub(super) set: Vec<String>,
    pub(super) swarm: bool,
    pub(super) first: u64,
    pub(super) seeds: u64,
    /// Values of the file's `[sweep]`: each under all seeds.
    pub(super) combinations: Vec<Vec<String>>,
    /// Marks that must have been seen.
    pub(super) sometimes: Vec<String>,
    /// Hash of the scenario with all files that it names: another machine may have another one under the same name.
    pub(super) scenario: String,
}

impl Plan {
    pub(super) fn runs(&self) -> u64 {
        (self.combinations.len() as u64).saturating_mul(self.seeds)
    }
}

/// A hash of all that a scenario is made from.
pub(super) fn hash_of(scenario: &Scenario) -> String {
    let own = scenario.to_toml();
    let texts = scenario.texts().flat_map(|(file, text)| [file, text]);
    let bytes = [own.as_str()].into_iter().chain(texts);
    let bytes = bytes.flat_map(|text| text.bytes().chain([0]));
    let hash = bytes.fold(0, |hash, byte| mix64(hash ^ u64::from(byte)));
    format!("{hash:016x}")
}

/// The part of a run that is kept.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Outcome {
    /// Its place among all runs: combination by combination, seed by seed.
    pub(super) run: u64,
    pub(super) seed: u64,
    pub(super) trace: String,
    /// Of events, bytes and outcome.
    pub(super) hash: String,
    pub(super) failures: Vec<String>,
    pub(super) marks: BTreeMap<String, u64>,
    /// Of the slowest flow; none if there are but jobs.
    pub(super) goodput_bit_per_s: Option<u64>,
    /// Of the last flow or job; none if one did not end.
    pub(super) completion_ps: Option<u64>,
}

impl Outcome {
    pub(super) fn of(run: u64, seed: u64, report: Report) -> Outcome {
        let flows = || report.flows.iter();
        let rates = flows().map(|flow| flow.goodput.map_or(0, Rate::as_bps));
        let jobs = report.jobs.iter().map(|job| job.completion);
        let last = flows().map(|flow| flow.completion).chain(jobs);
        let marks = report.marks.seen();
        Outcome {
            run,
            seed,
            trace: report.trace.to_string(),
            hash: format!(
                "{:016x}",
                mix64(report.trace.value()) ^ report.content.value()
            ),
            marks: marks.map(|(mark, n)| (mark.name().to_owned(), n)).collect(),
            goodput_bit_per_s: rates.min(),
            completion_ps: last
                .map(|span| span.map(Span::ps))
                .reduce(|a, b| Some(a?.max(b?)))
                .flatten(),
            failures: report.failures,
        }
    }

    /// Adds its marks to those of others, and its hash.
    pub(super) fn add_to(&self, marks: &mut Marks, hash: &mut u64) {
        for (name, count) in &self.marks {
            // A mark of another version is counted there, and known there.
            if let Ok(mark) = name.parse::<Mark>() {
                marks.add(mark, *count);
            }
        }
        let own = u64::from_str_radix(&self.hash, 16).unwrap_or(0);
        *hash = mix64(*hash ^ self.seed ^ own);
    }
}

/// Writes the plan and the runs of a shard, all or nothing.
pub(super) fn write(path: &Path, plan: &Plan, outcomes: &[Outcome]) -> Result<(), CliError> {
    let mut file = NewFile::create(path)?;
    let line = |text: serde_json::Result<String>| text.expect("plain data");
    let lines = [line(serde_json::to_string(plan))].into_iter();
    for text in lines.chain(outcomes.iter().map(|o| line(serde_json::to_string(o)))) {
        writeln!(file, "{text}").map_err(|e| cannot_write(path, e))?;
    }
    file.keep()
}

/// Reads what [`write()`] wrote.
pub(super) fn read(path: &Path) -> Result<(Plan, Vec<Outcome>), CliError> {
    let file = fs::File::open(path).context(format_args!("cannot read {}", path.display()))?;
    let mut plan = None;
    let mut outcomes = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let place = format!("{}: line {number}", path.display());
        let line = line.context(&place)?;
        match &plan {
            None => plan = Some(serde_json::from_str::<Plan>(&line).context(&place)?),
            Some(_) => outcomes.push(serde_json::from_str::<Outcome>(&line).context(&place)?),
        }
    }
    let plan = plan.ok_or_else(|| CliError::Failed(format!("{}: is empty", path.display())))?;
    Ok((plan, outcomes))
}
