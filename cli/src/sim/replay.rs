//! `urxe sim replay`: repeats a run, and checks that it is the same.

use crate::error::CliError;
use crate::output::print_report;
use crate::sim::args::ReplayArgs;
use crate::sim::json::{Replay, Run};

/// Runs it, and compares its hash with the one that was told.
pub(super) fn replay(args: &ReplayArgs) -> Result<(), CliError> {
    let (scenario, seed) = args.of.open()?;
    let report = scenario.run(seed).map_err(|e| args.of.scenario.fails(e))?;
    let trace = report.trace.to_string();
    let is_same = args.trace.as_ref().map(|told| *told == trace);
    let json = Replay {
        run: Run::of(seed, &report),
        is_same,
    };
    print_report(args.json, &json, || {
        let same = match is_same {
            Some(true) => "  the same run, event by event\n",
            _ => "",
        };
        format!("seed {seed}: {report}{same}")
    })?;
    if let (Some(told), Some(false)) = (&args.trace, is_same) {
        return Err(CliError::Fault(format!(
            "another run: its hash is {trace}, not {told}; the file or urxe has changed since"
        )));
    }
    args.of.verdict(&report, seed, args.json)
}
