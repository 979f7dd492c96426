//! `urxe sim sweep`: many seeds, and many values.

use std::time::{Duration, Instant};

use fabric_sim::check::Marks;
use fabric_sim::scenario::{ScenarioError, Setting};

use crate::error::CliError;
use crate::output::print_report;
use crate::sim::args::{ScenarioArgs, Shard, SweepArgs};
use crate::sim::interval::median;
use crate::sim::json::{Combination, Failed, Swept};
use crate::sim::parallel::{each, jobs, progress};
use crate::sim::results::{Outcome, Plan, hash_of, write};

/// Failing seeds that are told of each combination of values.
const TOLD: usize = 5;

/// Runs all combinations under all seeds, or the part of them that is this shard's.
pub(super) fn sweep(args: &SweepArgs) -> Result<(), CliError> {
    let in_file = |error: ScenarioError| args.scenario.fails(error);
    let scenario = args.scenario.open()?;
    let wanted = scenario.sometimes().iter();
    let mut variants = Vec::new();
    let mut combinations = Vec::new();
    for settings in scenario.variants().map_err(in_file)? {
        let variant = scenario.with(&settings).map_err(in_file)?;
        let variant = args.scenario.with_files(variant)?;
        // What cannot be built under one seed cannot under any: told before hours of work.
        variant.build(args.first).map_err(in_file)?;
        variants.push(variant);
        combinations.push(settings.iter().map(Setting::to_string).collect());
    }
    let plan = Plan {
        file: args.scenario.file.display().to_string(),
        set: args.scenario.set.clone(),
        swarm: args.scenario.swarm,
        first: args.first,
        seeds: args.seeds,
        combinations,
        sometimes: wanted.map(|mark| mark.name().to_owned()).collect(),
        scenario: hash_of(&scenario),
    };
    let shard = args.shard.unwrap_or_default();
    let runs: Vec<u64> = (0..plan.runs()).filter(|&run| shard.has(run)).collect();
    let (start, bar) = (Instant::now(), progress(runs.len()));
    let outcomes = each(runs.len(), jobs(args.jobs), |number| {
        let run = runs[number];
        let seed = args.first.wrapping_add(run % args.seeds);
        let variant = usize::try_from(run / args.seeds).unwrap_or(usize::MAX);
        let report = variants[variant].run(seed);
        bar.inc(1);
        report.map(|report| Outcome::of(run, seed, report))
    })?;
    bar.finish_and_clear();
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>();
    let outcomes = outcomes.map_err(in_file)?;
    if let Some(path) = &args.results {
        write(path, &plan, &outcomes)?;
    }
    let plan = match shard {
        Shard { of: 1, .. } => plan,
        // What all shards together must have seen, one alone may not.
        _ => Plan {
            sometimes: Vec::new(),
            ..plan
        },
    };
    let took = Some(start.elapsed());
    judge(&args.scenario, &plan, &outcomes, took, args.json)
}

/// Tells what runs came to, in their order. Fails if one of them did, or a mark was not seen that had to be.
pub(super) fn judge(
    scenario: &ScenarioArgs,
    plan: &Plan,
    outcomes: &[Outcome],
    took: Option<Duration>,
    is_json: bool,
) -> Result<(), CliError> {
    let mut failed = 0;
    let (mut marks, mut hash) = (Marks::default(), 0);
    for (number, settings) in (0..).zip(&plan.combinations) {
        let own = outcomes.iter().filter(|o| o.run / plan.seeds == number);
        failed += tell(scenario, settings, &own.collect::<Vec<_>>(), is_json)?;
    }
    for outcome in outcomes {
        outcome.add_to(&mut marks, &mut hash);
    }
    let is_unseen = |name: &&String| name.parse().is_ok_and(|mark| marks.of(mark) == 0);
    let missed: Vec<&String> = plan.sometimes.iter().filter(is_unseen).collect();
    let json = Swept {
        runs: outcomes.len(),
        failed_runs: failed,
        wall_s: took.map(|took| took.as_secs_f64()),
        hash: format!("{hash:016x}"),
        never_seen: &missed,
    };
    print_report(is_json, &json, || {
        let Swept { runs, hash, .. } = &json;
        let seconds = json.wall_s.map(|seconds| format!(" in {seconds:.1} s"));
        let seconds = seconds.unwrap_or_default();
        let mut text = format!("seen: {marks}\n");
        text += &format!("{runs} runs{seconds}, {failed} failed; hash of all {hash}\n");
        for name in &missed {
            text += &format!("never seen, though expected sometimes: {name}\n");
        }
        text
    })?;
    match (failed, missed.len()) {
        (0, 0) => Ok(()),
        (0, n) => Err(CliError::Fault(format!("{n} marks were never seen"))),
        (n, _) => Err(CliError::Fault(format!(
            "{n} of {} runs failed",
            outcomes.len()
        ))),
    }
}

/// Tells of one combination; returns how many runs failed.
fn tell(
    scenario: &ScenarioArgs,
    settings: &[String],
    outcomes: &[&Outcome],
    is_json: bool,
) -> Result<usize, CliError> {
    let failed = outcomes.iter().filter(|o| !o.failures.is_empty());
    let failed = failed.map(|outcome| {
        let Outcome { seed, trace, .. } = outcome;
        let again = scenario.line_with("replay", *seed, settings);
        Failed {
            seed: *seed,
            trace: trace.clone(),
            failures: outcome.failures.clone(),
            again: format!("{again} --trace {trace}"),
        }
    });
    let rates = outcomes.iter().filter_map(|o| o.goodput_bit_per_s);
    let mut rates: Vec<u64> = rates.collect();
    rates.sort_unstable();
    let lasts: Option<Vec<u64>> = outcomes.iter().map(|o| o.completion_ps).collect();
    let mut lasts = lasts.unwrap_or_default();
    lasts.sort_unstable();
    let (rate, last) = (median(&rates), median(&lasts));
    let between = rate.and_then(|rate| rate.between);
    let last_between = last.and_then(|last| last.between);
    let seconds = |ps: u64| ps as f64 * 1e-12;
    let combination = Combination {
        set: settings.to_vec(),
        seeds: outcomes.len(),
        goodput_median_bit_per_s: rate.map(|rate| rate.value),
        goodput_median_from_bit_per_s: between.map(|(from, _)| from),
        goodput_median_to_bit_per_s: between.map(|(_, to)| to),
        goodput_min_bit_per_s: rates.first().copied(),
        completion_max_s: lasts.last().copied().map(seconds),
        completion_median_s: last.map(|last| seconds(last.value)),
        completion_median_from_s: last_between.map(|(from, _)| seconds(from)),
        completion_median_to_s: last_between.map(|(_, to)| seconds(to)),
        failed: failed.collect(),
    };
    print_report(is_json, &combination, || text(scenario, &combination))?;
    Ok(combination.failed.len())
}

/// In parentheses, between what a median lies; nothing where too few runs know.
fn between(from_to: Option<(f64, f64)>) -> String {
    let text = from_to.map(|(from, to)| format!(" ({from:.3} to {to:.3})"));
    text.unwrap_or_default()
}

fn text(scenario: &ScenarioArgs, of: &Combination) -> String {
    let name = if of.set.is_empty() {
        scenario.file.display().to_string()
    } else {
        of.set.join(" ")
    };
    let (seeds, count) = (of.seeds, of.failed.len());
    let mut text = format!("{name}: {seeds} seeds, {count} failed");
    if seeds == 0 {
        return text + ": all are in other shards\n";
    }
    let gbps = |rate: u64| rate as f64 * 1e-9;
    let rates = of.goodput_min_bit_per_s.zip(of.goodput_median_bit_per_s);
    if let Some((least, median)) = rates {
        let from_to = of
            .goodput_median_from_bit_per_s
            .zip(of.goodput_median_to_bit_per_s);
        text += &format!("; slowest flow {:.3} Gb/s at the median", gbps(median));
        text += &between(from_to.map(|(from, to)| (gbps(from), gbps(to))));
        text += &format!(", {:.3} at least", gbps(least));
    }
    text += "; ";
    let ms = |seconds: f64| seconds * 1e3;
    text += &match of.completion_max_s.zip(of.completion_median_s) {
        Some((most, median)) => {
            let from_to = of.completion_median_from_s.zip(of.completion_median_to_s);
            let from_to = between(from_to.map(|(from, to)| (ms(from), ms(to))));
            let (median, most) = (ms(median), ms(most));
            format!("complete after {median:.3} ms at the median{from_to}, {most:.3} at most\n")
        }
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
