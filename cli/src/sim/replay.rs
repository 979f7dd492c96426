//! `urxe sim replay`: repeats a run, and checks that it is the same.

use std::io::{Write, stdout};

use crate::error::CliError;
use crate::sim::args::ReplayArgs;

/// Runs it, and compares its hash with the one that was told.
pub(super) fn replay(args: &ReplayArgs) -> Result<(), CliError> {
    let (scenario, seed) = args.of.open()?;
    let report = scenario.run(seed).map_err(|e| args.of.scenario.fails(e))?;
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
    args.of.verdict(&report, seed)
}
