//! `urxe sim sweep`: many seeds, and many values.

use std::time::Instant;

use fabric_sim::Rate;
use fabric_sim::check::Marks;
use fabric_sim::engine::mix64;
use fabric_sim::scenario::{Report, ScenarioError, Setting};

use crate::error::CliError;
use crate::output::print_report;
use crate::sim::args::SweepArgs;
use crate::sim::json::{Combination, Failed, Swept};
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
    let missed = wanted.filter(|&mark| marks.of(mark) == 0);
    let missed: Vec<&str> = missed.map(|mark| mark.name()).collect();
    let json = Swept {
        runs: count,
        failed_runs: failed,
        wall_s: start.elapsed().as_secs_f64(),
        hash: format!("{hash:016x}"),
        never_seen: &missed,
    };
    print_report(args.json, &json, || {
        let Swept { wall_s, hash, .. } = &json;
        let mut text = format!("seen: {marks}\n");
        text += &format!("{count} runs in {wall_s:.1} s, {failed} failed; hash of all {hash}\n");
        for name in &missed {
            text += &format!("never seen, though expected sometimes: {name}\n");
        }
        text
    })?;
    match (failed, missed.len()) {
        (0, 0) => Ok(()),
        (0, n) => Err(CliError::Fault(format!("{n} marks were never seen"))),
        (n, _) => Err(CliError::Fault(format!("{n} of {count} runs failed"))),
    }
}

/// Tells of one combination; returns how many runs failed.
fn tell(args: &SweepArgs, settings: &[Setting], outcomes: &[Outcome]) -> Result<usize, CliError> {
    let failed = outcomes.iter().filter(|o| !o.failures.is_empty());
    let failed = failed.map(|outcome| {
        let Outcome { seed, trace, .. } = outcome;
        let again = args.scenario.line("replay", *seed, settings);
        Failed {
            seed: *seed,
            trace: trace.clone(),
            failures: outcome.failures.clone(),
            again: format!("{again} --trace {trace}"),
        }
    });
    let mut rates: Vec<u64> = outcomes.iter().map(|o| o.goodput).collect();
    rates.sort_unstable();
    let last = outcomes.iter().map(|o| o.completion);
    let combination = Combination {
        set: settings.iter().map(Setting::to_string).collect(),
        seeds: outcomes.len(),
        goodput_median_bit_per_s: rates[outcomes.len() / 2],
        goodput_min_bit_per_s: rates[0],
        completion_max_s: last.reduce(|a, b| Some(a?.max(b?))).flatten(),
        failed: failed.collect(),
    };
    print_report(args.json, &combination, || text(args, &combination))?;
    Ok(combination.failed.len())
}

fn text(args: &SweepArgs, of: &Combination) -> String {
    let name = if of.set.is_empty() {
        args.scenario.file.display().to_string()
    } else {
        of.set.join(" ")
    };
    let [least, median] =
        [of.goodput_min_bit_per_s, of.goodput_median_bit_per_s].map(|rate| rate as f64 * 1e-9);
    let mut text = format!(
        "{name}: {} seeds, {} failed; slowest flow {median:.3} Gb/s at the median, {least:.3} at least; ",
        of.seeds,
        of.failed.len()
    );
    text += &match of.completion_max_s {
        Some(seconds) => format!("complete after {:.3} ms at most\n", seconds * 1e3),
        None => "not all complete\n".to_owned(),
    };
    for Failed {
        seed,
        failures,
        again,
        ..
    } in of.failed.iter().take(TOLD)
    {
        text += &format!("  seed {seed}: {}\n    again: {again}\n", failures[0]);
    }
    if of.failed.len() > TOLD {
        text += &format!("  and {} more\n", of.failed.len() - TOLD);
    }
    text
}
