//! `urxe sim report`: a run as a page.

use fabric_sim::observe::html::{self, Title};

use crate::error::CliError;
use crate::output::print_report;
use crate::sim::args::ReportArgs;
use crate::sim::json::{Page, Run};
use crate::sim::new_file::{NewFile, cannot_write};
use crate::sim::observe::{Wanted, look, sampling};

/// Runs a scenario and writes the page.
pub(super) fn run(args: &ReportArgs) -> Result<(), CliError> {
    let (scenario, seed) = args.of.open()?;
    let sampling = sampling(args.every.as_deref())?;
    let mut page = NewFile::create(&args.output)?;
    let file = &args.of.scenario.file;
    let wanted = Wanted {
        sampling: Some(sampling),
        ..Wanted::default()
    };
    let looked = look(file, &scenario, seed, wanted)?;
    let report = looked.report;
    let title = Title {
        scenario: &file.file_name().unwrap_or_default().to_string_lossy(),
        about: &scenario.about(),
        seed,
        again: &args.of.scenario.line("run", seed, &[]),
    };
    if let Some(seen) = looked.observation {
        let written = html::write(&mut page, &title, &report, &seen);
        written.map_err(|e| cannot_write(&args.output, e))?;
    }
    page.keep()?;
    let json = Page {
        run: Run::of(seed, &report),
        page: &args.output,
    };
    let (trace, page) = (report.trace, args.output.display());
    print_report(args.json, &json, || {
        format!("seed {seed}, trace {trace}: {page}\n")
    })?;
    args.of.verdict(&report, seed, args.json)
}
