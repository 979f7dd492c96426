//! `urxe sim run` and `urxe sim check-determinism`.

use std::io::{Write, stdout};

use fabric_sim::engine::mix64;
use fabric_sim::scenario::{Report, Scenario, ScenarioError};

use crate::error::CliError;
use crate::output::print_report;
use crate::sim::args::{DeterminismArgs, RunArgs};
use crate::sim::json::Run;
use crate::sim::new_file::{NewFile, cannot_write};
use crate::sim::observe::{Tables, Wanted, look, sampling};
use crate::sim::parallel::{each, jobs};
use crate::sim::perfetto;

/// Runs a scenario and prints what it came to.
pub(super) fn run(args: &RunArgs) -> Result<(), CliError> {
    let (scenario, seed) = args.of.open()?;
    let sampling = sampling(args.every.as_deref())?;
    let sampling = args.csv.as_ref().map(|_| sampling);
    let tables = args.csv.as_deref().map(Tables::create).transpose()?;
    let trace = args.perfetto.as_deref().map(NewFile::create).transpose()?;
    let wanted = Wanted {
        pcap: args.pcap.as_deref(),
        sampling,
        bars: trace.is_some(),
        threads: args.threads.into(),
    };
    let looked = look(&args.of.scenario.file, &scenario, seed, wanted)?;
    if let (Some(tables), Some(seen)) = (tables, looked.observation) {
        tables.write(&seen)?;
    }
    if let (Some(path), Some(mut trace)) = (&args.perfetto, trace) {
        let written = perfetto::write(&mut trace, &looked.bars);
        written.map_err(|e| cannot_write(path, e))?;
        trace.keep()?;
    }
    let report = looked.report;
    let json = Run::of(seed, &report);
    print_report(args.json, &json, || format!("seed {seed}: {report}"))?;
    args.of.verdict(&report, seed, args.json)
}

/// Runs each of many seeds twice and compares the hashes.
pub(super) fn check_determinism(args: &DeterminismArgs) -> Result<(), CliError> {
    let scenario = args.scenario.open()?;
    let count = usize::try_from(args.seeds).unwrap_or(usize::MAX);
    // Threads share nothing but the file: each seed is simulated by one of them.
    let results = each(count, jobs(None), |number| {
        twice(&scenario, args.first.wrapping_add(number as u64))
    })?;
    let mut hashes = Vec::new();
    for result in results {
        let (seed, hash) = result.map_err(|e| args.scenario.fails(e))?;
        match hash {
            Ok(hash) => hashes.push((seed, hash)),
            Err([first, second]) => {
                writeln!(stdout(), "seed {seed} is not the same twice:")?;
                write!(stdout(), "{first}{second}")?;
                return Err(CliError::Fault("a run is not deterministic".to_owned()));
            }
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

/// A seed with the hash of its run, of events, bytes and outcome; or with both runs, if they are not the same.
fn twice(scenario: &Scenario, seed: u64) -> Result<(u64, Result<u64, [String; 2]>), ScenarioError> {
    let (first, second) = (scenario.run(seed)?, scenario.run(seed)?);
    if first != second {
        let runs = [&first, &second].map(Report::to_string);
        return Ok((seed, Err(runs)));
    }
    let hash = mix64(first.trace.value()) ^ first.content.value();
    Ok((seed, Ok(hash)))
}
