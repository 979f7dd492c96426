//! `urxe sim report`: a run as a page.

use std::io::{Write, stdout};

use fabric_sim::observe::html::{self, Title};

use crate::args::SimReportArgs;
use crate::error::CliError;
use crate::output::{NewFile, cannot_write};
use crate::sim::observe::{Looks, Seen, sampling};
use crate::sim::open::{line, open};
use crate::sim::run::verdict;

/// Runs a scenario and writes the page.
pub(super) fn run(args: &SimReportArgs) -> Result<(), CliError> {
    let scenario = open(&args.file, &args.changes)?;
    let seed = args.seed.unwrap_or(scenario.seed());
    let sampling = Some(sampling(args.every.as_deref())?);
    let mut file = NewFile::create(&args.output)?;
    let looks = Looks {
        scenario: &args.file,
        pcap: None,
        sampling,
    };
    let Seen {
        report,
        observation,
    } = looks.run(&scenario, seed)?;
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let title = Title {
        scenario: &name,
        seed,
        again: &line("run", &args.file, seed, &args.changes, &[]),
    };
    if let Some(seen) = observation {
        html::write(&mut file, &title, &report, &seen)
            .map_err(|e| cannot_write(&args.output, e))?;
    }
    file.keep()?;
    writeln!(
        stdout(),
        "seed {seed}, trace {}: {}",
        report.trace,
        args.output.display()
    )?;
    verdict(&report, &args.file, seed, &args.changes)
}
