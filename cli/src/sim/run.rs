//! `urxe sim run` and `urxe sim check-determinism`.

use std::fs;
use std::io::{Write, stdout};
use std::path::Path;
use std::thread;

use fabric_sim::engine::mix64;
use fabric_sim::scenario::{Report, Scenario};

use crate::args::{SimDeterminismArgs, SimRunArgs};
use crate::error::CliError;
use crate::sim::observe::{Looks, Seen, Tables, sampling};

/// Runs a scenario and prints what it came to.
pub(super) fn run(args: &SimRunArgs) -> Result<(), CliError> {
    let scenario = read(&args.file)?;
    let seed = args.seed.unwrap_or(scenario.seed());
    let looks = Looks {
        scenario: &args.file,
        pcap: args.pcap.as_deref(),
        sampling: match args.csv {
            Some(_) => Some(sampling(args.every.as_deref())?),
            None => None,
        },
    };
    let tables = args.csv.as_deref().map(Tables::create).transpose()?;
    let Seen {
        report,
        observation,
    } = looks.run(&scenario, seed)?;
    if let (Some(tables), Some(seen)) = (tables, observation) {
        tables.write(&seen)?;
    }
    write!(stdout(), "seed {seed}: {report}")?;
    verdict(&report, &args.file, seed)
}

/// Fails if anything was not as expected, with the line that repeats the run.
pub(super) fn verdict(report: &Report, file: &Path, seed: u64) -> Result<(), CliError> {
    if report.failures.is_empty() {
        return Ok(());
    }
    for failure in &report.failures {
        writeln!(stdout(), "  not as expected: {failure}")?;
    }
    writeln!(
        stdout(),
        "  again: urxe sim run {} --seed {seed}",
        file.display()
    )?;
    Err(CliError::Fault(format!(
        "{} expectations failed",
        report.failures.len()
    )))
}

pub(super) fn read(file: &Path) -> Result<Scenario, CliError> {
    let text = fs::read_to_string(file)
        .map_err(|e| CliError::context(format_args!("cannot read {}", file.display()), e))?;
    Scenario::parse(&text).map_err(|e| CliError::context(file.display(), e))
}

/// Two runs of one seed that were not the same.
struct Difference {
    seed: u64,
    runs: [String; 2],
}

/// What a share of the seeds came to: the hash of all runs, or the first that was not the same twice.
type Share = Result<Vec<(u64, u64)>, Box<dyn std::error::Error + Send + Sync>>;

/// Runs each of many seeds twice and compares the hashes.
pub(super) fn check_determinism(args: &SimDeterminismArgs) -> Result<(), CliError> {
    let scenario = read(&args.file)?;
    let seeds = args.first..args.first.saturating_add(args.seeds);
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    // Threads share nothing but the file: each seed is simulated by one of them.
    let shares: Vec<Share> = thread::scope(|scope| {
        let share = |part: u64| {
            let (scenario, seeds) = (&scenario, seeds.clone());
            scope.spawn(move || {
                seeds
                    .filter(|seed| seed % threads == part)
                    .map(|s| twice(scenario, s))
                    .collect()
            })
        };
        let started: Vec<_> = (0..threads).map(share).collect();
        started
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err("a run panicked".into())))
            .collect()
    });
    let mut hashes = Vec::new();
    for share in shares {
        match share {
            Ok(share) => hashes.extend(share),
            Err(error) => match error.downcast::<Difference>() {
                Ok(difference) => {
                    writeln!(stdout(), "seed {} is not the same twice:", difference.seed)?;
                    for run in &difference.runs {
                        write!(stdout(), "{run}")?;
                    }
                    return Err(CliError::Fault("a run is not deterministic".to_owned()));
                }
                Err(error) => return Err(CliError::context(args.file.display(), error)),
            },
        }
    }
    hashes.sort_unstable();
    let all = hashes
        .iter()
        .fold(0, |all, &(seed, hash)| mix64(all ^ seed ^ hash));
    let mut traces: Vec<u64> = hashes.iter().map(|&(_, hash)| hash).collect();
    traces.sort_unstable();
    traces.dedup();
    writeln!(
        stdout(),
        "{} seeds from {}, each the same twice; {} different runs; hash of all {all:016x}",
        hashes.len(),
        args.first,
        traces.len(),
    )?;
    Ok(())
}

/// The hash of a seed's run, if it is the same twice: events, bytes and outcome.
fn twice(
    scenario: &Scenario,
    seed: u64,
) -> Result<(u64, u64), Box<dyn std::error::Error + Send + Sync>> {
    let (first, second) = (scenario.run(seed)?, scenario.run(seed)?);
    if first != second {
        let runs = [&first, &second].map(Report::to_string);
        return Err(Box::new(Difference { seed, runs }));
    }
    Ok((seed, mix64(first.trace.value()) ^ first.content.value()))
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {} is not the same twice", self.seed)
    }
}

impl std::fmt::Debug for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Difference {}
