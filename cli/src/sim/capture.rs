//! `urxe sim run --pcap`: a run, and every frame of it in a file.

use std::path::Path;

use fabric_sim::observe::captured;
use fabric_sim::scenario::{Report, Scenario};

use crate::args::SimRunArgs;
use crate::error::CliError;
use crate::output::{NewFile, cannot_write};

/// Runs a scenario with every frame as bytes, and writes them.
pub(super) fn run(
    args: &SimRunArgs,
    scenario: &Scenario,
    seed: u64,
    pcap: &Path,
) -> Result<Report, CliError> {
    let scenario = scenario.clone().in_bytes();
    let comment = format!("urxe sim run {} --seed {seed}", args.file.display());
    let mut file = Some(NewFile::create(pcap)?);
    let mut written = Ok(());
    let report = scenario
        .run_by(seed, |sim, until| {
            let Some(out) = file.take() else { return };
            let run = |sim: &mut fabric_sim::Sim| {
                sim.run_until(until);
            };
            match captured(sim, out, &comment, run) {
                Ok(out) => file = Some(out),
                Err(error) => written = Err(error),
            }
        })
        .map_err(|e| CliError::context(args.file.display(), e))?;
    written.map_err(|e| cannot_write(pcap, e))?;
    if let Some(file) = file {
        file.keep()?;
    }
    Ok(report)
}
