//! `urxe sim sweep`: many seeds, and many values.

use std::io::{Write, stdout};
use std::time::Instant;

use fabric_sim::Rate;
use fabric_sim::check::Marks;
use fabric_sim::engine::mix64;
use fabric_sim::scenario::{Report, ScenarioError, Setting};

use crate::error::CliError;
use crate::sim::args::SweepArgs;
use crate::sim::parallel::{each, jobs, progress};

/// Failing seeds that are told of each combination of values.
const TOLD: usize = 5;

/// The part of a run that is kept.
struct Outcome {
    seed: u64,
    trace: String,
    hash: u64,
    failures: Vec<String>,
    marks: Marks,
    /// The goodput of the slowest flow, in bits a second.
    goodput: u64,
    /// The completion time of the last flow, in seconds; `None` if one did not end.
    completion: Option<f64>,
}

impl Outcome {
    fn of(seed: u64, report: Report) -> Outcome {
        let flows = || report.flows.iter();
        let rates = flows().map(|flow| flow.goodput.map_or(0, Rate::as_bps));
        let last = flows().map(|flow| flow.completion.map(|span| span.as_secs_f64()));
        let completion = last.reduce(|a, b| Some(a?.max(b?))).flatten();
        Outcome {
            seed,
            trace: report.trace.to_string(),
            hash: mix64(report.trace.value()) ^ report.content.value(),
            marks: report.marks,
            goodput: rates.min().unwrap_or(0),
            completion,
            failures: report.failures,
        }
    }
}

/// Runs all combinations under all seeds.
pub(super) fn sweep(args: &SweepArgs) -> Result<(), CliError> {
    let in_file = |error: ScenarioError| args.scenario.fails(error);
    let scenario = args.scenario.open()?;
    let wanted = scenario.sometimes().iter().copied();
    let mut variants = Vec::new();
    for settings in scenario.variants().map_err(in_file)? {
        let variant = scenario.with(&settings).map_err(in_file)?;
        let variant = args.scenario.with_files(variant)?;
        // What cannot be built under one seed cannot under any: told before hours of work.
        variant.build(args.first).map_err(in_file)?;
        variants.push((settings, variant));
    }
    let seeds = usize::try_from(args.seeds).unwrap_or(usize::MAX);
    let count = variants.len().saturating_mul(seeds);
    let (start, bar) = (Instant::now(), progress(count));
    let outcomes = each(count, jobs(args.jobs), |number| {
        let seed = args.first.wrapping_add((number % seeds) as u64);
        let report = variants[number / seeds].1.run(seed);
        bar.inc(1);
        report.map(|report| Outcome::of(seed, report))
    })?;
    bar.finish_and_clear();
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>();
    let outcomes = outcomes.map_err(in_file)?;
    let mut failed = 0;
    let (mut marks, mut hash) = (Marks::default(), 0);
    for ((settings, _), outcomes) in variants.iter().zip(outcomes.chunks(seeds)) {
        failed += tell(args, settings, outcomes)?;
        for outcome in outcomes {
            marks.merge(&outcome.marks);
            hash = mix64(hash ^ outcome.seed ^ outcome.hash);
        }
    }
    writeln!(stdout(), "seen: {marks}")?;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(
        stdout(),
        "{count} runs in {seconds:.1} s, {failed} failed; hash of all {hash:016x}"
    )?;
    let missed = wanted.filter(|&mark| marks.of(mark) == 0);
    let missed: Vec<&str> = missed.map(|mark| mark.name()).collect();
    for name in &missed {
        writeln!(stdout(), "never seen, though expected sometimes: {name}")?;
    }
    match (failed, missed.len()) {
        (0, 0) => Ok(()),
        (0, n) => Err(CliError::Fault(format!("{n} marks were never seen"))),
        (n, _) => Err(CliError::Fault(format!("{n} of {count} runs failed"))),
    }
}

/// Tells of one combination; returns how many runs failed.
fn tell(args: &SweepArgs, settings: &[Setting], outcomes: &[Outcome]) -> Result<usize, CliError> {
    let mut out = stdout();
    let name: Vec<String> = settings.iter().map(Setting::to_string).collect();
    let name = if name.is_empty() {
        args.scenario.file.display().to_string()
    } else {
        name.join(" ")
    };
    let failed: Vec<&Outcome> = outcomes.iter().filter(|o| !o.failures.is_empty()).collect();
    let count = outcomes.len();
    write!(out, "{name}: {count} seeds, {} failed", failed.len())?;
    let mut rates: Vec<u64> = outcomes.iter().map(|o| o.goodput).collect();
    rates.sort_unstable();
    let [least, median] = [rates[0], rates[count / 2]].map(|rate| rate as f64 * 1e-9);
    write!(out, "; slowest flow {median:.3} Gb/s at the median, ")?;
    write!(out, "{least:.3} at least")?;
    let last = outcomes.iter().map(|o| o.completion);
    match last.reduce(|a, b| Some(a?.max(b?))).flatten() {
        Some(seconds) => writeln!(out, "; complete after {:.3} ms at most", seconds * 1e3)?,
        None => writeln!(out, "; not all complete")?,
    }
    for outcome in failed.iter().take(TOLD) {
        let Outcome { seed, trace, .. } = outcome;
        let again = args.scenario.line("replay", *seed, settings);
        writeln!(out, "  seed {seed}: {}", outcome.failures[0])?;
        writeln!(out, "    again: {again} --trace {trace}")?;
    }
    if failed.len() > TOLD {
        writeln!(out, "  and {} more", failed.len() - TOLD)?;
    }
    Ok(failed.len())
}
