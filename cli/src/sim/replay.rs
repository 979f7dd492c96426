//! `urxe sim replay`: repeats a run, and checks that it is the same.

use std::io::{Write, stdout};

use crate::error::CliError;
use crate::sim::args::SimReplayArgs;
use crate::sim::open::open;
use crate::sim::run::verdict;

/// Runs it, and compares its hash with the one that was told.
pub(super) fn replay(args: &SimReplayArgs) -> Result<(), CliError> {
    let scenario = open(&args.file, &args.changes)?;
    let seed = args.seed.unwrap_or(scenario.seed());
    let report = scenario
        .run(seed)
        .map_err(|e| CliError::context(args.file.display(), e))?;
    write!(stdout(), "seed {seed}: {report}")?;
    let trace = report.trace.to_string();
    match &args.trace {
        Some(told) if *told != trace => {
            return Err(CliError::Fault(format!(
                "another run: its hash is {trace}, not {told}; the file or urxe has changed since"
            )));
        }
        Some(_) => writeln!(stdout(), "  the same run, event by event")?,
        None => {}
    }
    verdict(&report, &args.file, seed, &args.changes)
}
