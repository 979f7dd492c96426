//! `urxe sim merge`: the shards of a sweep, put together.

use std::collections::BTreeMap;
use std::io::{Write, stdout};

use crate::error::CliError;
use crate::sim::args::{MergeArgs, ScenarioArgs};
use crate::sim::results::{Outcome, Plan, read, write};
use crate::sim::sweep::judge;

/// Runs that are missing and told by number.
const TOLD: usize = 10;

pub(super) fn merge(args: &MergeArgs) -> Result<(), CliError> {
    let mut all: BTreeMap<u64, Outcome> = BTreeMap::new();
    let mut plan: Option<Plan> = None;
    for path in &args.files {
        let (own, outcomes) = read(path)?;
        let fails = |what: String| CliError::Failed(format!("{}: {what}", path.display()));
        if let Some(plan) = &plan
            && *plan != own
        {
            let what = "it is of another sweep than the files before: other values, seeds, or another scenario";
            return Err(fails(what.to_owned()));
        }
        for outcome in outcomes {
            let run = outcome.run;
            if run >= own.runs() {
                return Err(fails(format!("run {run} of {}", own.runs())));
            }
            // A shard that was run twice says the same twice.
            if let Some(known) = all.insert(run, outcome.clone())
                && known != outcome
            {
                return Err(fails(format!("run {run} came out in another way before")));
            }
        }
        plan = Some(own);
    }
    let plan = plan.ok_or_else(|| CliError::Usage("no file".to_owned()))?;
    let missing: Vec<u64> = (0..plan.runs())
        .filter(|run| !all.contains_key(run))
        .collect();
    if !missing.is_empty() {
        let told: Vec<String> = missing.iter().take(TOLD).map(u64::to_string).collect();
        let more = if missing.len() > TOLD { ", ..." } else { "" };
        return Err(CliError::Failed(format!(
            "{} of {} runs are missing: numbers {}{more}. Shard K of N has those of which the remainder by N is K - 1: run it again",
            missing.len(),
            plan.runs(),
            told.join(", ")
        )));
    }
    let outcomes: Vec<Outcome> = all.into_values().collect();
    if let Some(path) = &args.results {
        write(path, &plan, &outcomes)?;
    }
    let scenario = ScenarioArgs {
        file: plan.file.clone().into(),
        set: plan.set.clone(),
        swarm: plan.swarm,
    };
    if !args.json {
        writeln!(stdout(), "{} shards put together", args.files.len())?;
    }
    judge(&scenario, &plan, &outcomes, None, args.json)
}
