//! `urxe sim experiments`: what should come out, beside what does.

use std::io::{Write, stdout};
use std::time::Instant;

use fabric_sim::experiments::{EXPERIMENTS, Experiment, Finding};

use crate::error::CliError;
use crate::sim::parallel::{each, jobs};

/// Runs all, or those that are named, on all processors; prints them in their order.
pub(super) fn run(names: &[String]) -> Result<(), CliError> {
    let known: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
    if let Some(name) = names.iter().find(|n| !known.contains(&n.as_str())) {
        return Err(CliError::Usage(format!(
            "no experiment {name}: there are {}",
            known.join(", ")
        )));
    }
    let is_wanted = |e: &&Experiment| names.is_empty() || names.iter().any(|n| n == e.name);
    let wanted: Vec<&Experiment> = EXPERIMENTS.iter().filter(is_wanted).collect();
    let start = Instant::now();
    let results = each(wanted.len(), jobs(None), |place| wanted[place].run())?;
    let (mut count, mut failed) = (0, 0);
    for (experiment, findings) in wanted.iter().zip(results) {
        writeln!(stdout(), "{}: {}", experiment.name, experiment.title)?;
        writeln!(stdout(), "  ({})", experiment.source)?;
        for finding in findings {
            count += 1;
            failed += usize::from(!finding.holds());
            print(&finding)?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    writeln!(
        stdout(),
        "{} of {count} values as expected, in {seconds:.1} s",
        count - failed
    )?;
    match failed {
        0 => Ok(()),
        n => Err(CliError::Fault(format!("{n} values are not as expected"))),
    }
}

fn print(finding: &Finding) -> std::io::Result<()> {
    let mark = if finding.holds() { "ok  " } else { "FAIL" };
    let what = match finding.unit {
        "" => finding.what.clone(),
        unit => format!("{} [{unit}]", finding.what),
    };
    let bound = finding.bound.to_string();
    let (expected, measured) = (number(finding.expected), number(finding.measured));
    writeln!(
        stdout(),
        "  {mark} {what:52} expected {expected:>11} ({bound:8}) measured {measured:>11}"
    )
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value}")
    } else {
        format!("{value:.4}")
    }
}
