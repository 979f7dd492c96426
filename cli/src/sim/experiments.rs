//! `urxe sim experiments`: what should come out, beside what does.

use std::io::{Write, stdout};
use std::time::Instant;

use fabric_sim::experiments::{EXPERIMENTS, Experiment, Finding};
use serde::Serialize;

use crate::error::CliError;
use crate::output::print_report;
use crate::sim::args::ExperimentsArgs;
use crate::sim::parallel::{each, jobs};

/// A number of an experiment, for programs.
#[derive(Debug, Serialize)]
struct Number<'a> {
    experiment: &'a str,
    what: &'a str,
    /// Empty for what has none.
    unit: &'a str,
    expected: f64,
    bound: String,
    measured: f64,
    holds: bool,
}

/// Runs all, or those that are named, on all processors; prints them in their order.
pub(super) fn run(args: &ExperimentsArgs) -> Result<(), CliError> {
    let names = &args.names;
    let known: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
    if let Some(name) = names.iter().find(|n| !known.contains(&n.as_str())) {
        return Err(CliError::Usage(format!(
            "no experiment {name}: there are {}",
            known.join(", ")
        )));
    }
    if args.list {
        for Experiment { name, title, .. } in EXPERIMENTS {
            writeln!(stdout(), "{name}: {title}")?;
        }
        return Ok(());
    }
    let is_wanted = |e: &&Experiment| names.is_empty() || names.iter().any(|n| n == e.name);
    let wanted: Vec<&Experiment> = EXPERIMENTS.iter().filter(is_wanted).collect();
    let start = Instant::now();
    let results = each(wanted.len(), jobs(None), |place| wanted[place].run())?;
    let results: Vec<_> = wanted.into_iter().zip(results).collect();
    let all = || results.iter().flat_map(|(_, findings)| findings);
    let count = all().count();
    let failed = all().filter(|finding| !finding.holds()).count();
    let json = results
        .iter()
        .flat_map(|(experiment, findings)| numbers(experiment, findings));
    let json: Vec<Number<'_>> = json.collect();
    print_report(args.json, &json, || {
        let texts = results
            .iter()
            .map(|(experiment, findings)| text(experiment, findings));
        let (good, seconds) = (count - failed, start.elapsed().as_secs_f64());
        let texts: String = texts.collect();
        format!("{texts}{good} of {count} values as expected, in {seconds:.1} s\n")
    })?;
    match failed {
        0 => Ok(()),
        n => Err(CliError::Fault(format!("{n} values are not as expected"))),
    }
}

fn numbers<'a>(
    experiment: &'a Experiment,
    findings: &'a [Finding],
) -> impl Iterator<Item = Number<'a>> {
    findings.iter().map(|finding| Number {
        experiment: experiment.name,
        what: &finding.what,
        unit: finding.unit,
        expected: finding.expected,
        bound: finding.bound.to_string(),
        measured: finding.measured,
        holds: finding.holds(),
    })
}

fn text(experiment: &Experiment, findings: &[Finding]) -> String {
    let Experiment {
        name,
        title,
        source,
        ..
    } = experiment;
    let head = format!("{name}: {title}\n  ({source})\n");
    findings
        .iter()
        .map(line)
        .fold(head, |text, line| text + &line)
}

fn line(finding: &Finding) -> String {
    let mark = if finding.holds() { "ok  " } else { "FAIL" };
    let what = match finding.unit {
        "" => finding.what.clone(),
        unit => format!("{} [{unit}]", finding.what),
    };
    let bound = finding.bound.to_string();
    let (expected, measured) = (number(finding.expected), number(finding.measured));
    format!("  {mark} {what:52} expected {expected:>11} ({bound:8}) measured {measured:>11}\n")
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value}")
    } else {
        format!("{value:.4}")
    }
}
