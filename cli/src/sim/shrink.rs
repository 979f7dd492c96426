//! `urxe sim shrink`: the smallest scenario that fails in the same way.

use std::fs;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use fabric_sim::scenario::Scenario;
use fabric_sim::shrink::{ShrinkError, Shrunk, shrink as search};

use crate::error::CliError;
use crate::output::print_report;
use crate::sim::args::ShrinkArgs;
use crate::sim::json::Smallest;
use crate::sim::new_file::{NewFile, cannot_write};
use crate::sim::observe::{Wanted, look};
use crate::sim::parallel::progress;

/// Shrinks a scenario, and writes what is left: the file, its capture, a test.
pub(super) fn shrink(args: &ShrinkArgs) -> Result<(), CliError> {
    let (scenario, seed) = args.of.open()?;
    // Before the work, which would be lost.
    fs::create_dir_all(&args.out).map_err(|e| cannot_write(&args.out, e))?;
    let (start, bar) = (Instant::now(), progress(0));
    let most = Duration::from_secs(args.seconds);
    let mut run = |scenario: &Scenario| {
        bar.inc(1);
        scenario.run(seed)
    };
    let shrunk = search(&scenario, seed, &mut run, &mut || start.elapsed() < most);
    bar.finish_and_clear();
    let shrunk = shrunk.map_err(|error| match error {
        ShrinkError::Passes => CliError::Usage(format!(
            "{} passes under seed {seed}: there is nothing to shrink",
            args.of.scenario.file.display()
        )),
        ShrinkError::Scenario(error) => args.of.scenario.fails(error),
    })?;
    let wall_s = start.elapsed().as_secs_f64();
    let files = write_all(&args.out, &shrunk)?;
    let (faults, flows) = (shrunk.faults(), shrunk.flows());
    let failures = &shrunk.report.failures[..];
    let json = Smallest {
        runs: shrunk.runs,
        wall_s,
        faults,
        flows,
        failures,
        files: &files,
    };
    print_report(args.json, &json, || {
        let runs = shrunk.runs;
        let mut text =
            format!("{runs} runs in {wall_s:.1} s: {faults} faults and {flows} flows are left\n");
        text.extend(
            failures
                .iter()
                .map(|failure| format!("  fails: {failure}\n")),
        );
        text.extend(files.iter().map(|file| format!("  {}\n", file.display())));
        text
    })
}

/// Returns the files.
fn write_all(folder: &Path, shrunk: &Shrunk) -> Result<Vec<PathBuf>, CliError> {
    let scenario = folder.join("scenario.toml");
    let mut texts = vec![
        (scenario.clone(), shrunk.to_toml()),
        (folder.join("test.rs"), shrunk.to_test("scenario.toml")),
    ];
    // Files in other places stay where they are.
    let is_within = |name: &str| {
        let mut parts = Path::new(name).components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    };
    let files = shrunk.scenario.texts().filter(|(name, _)| is_within(name));
    texts.extend(files.map(|(name, text)| (folder.join(name), text.to_owned())));
    for (path, _) in &texts {
        // Files that the scenario names may be in folders beside it.
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|e| cannot_write(parent, e))?;
    }
    let mut files = Vec::new();
    for (path, text) in texts {
        let mut file = NewFile::create(&path)?;
        file.write_all(text.as_bytes())
            .map_err(|e| cannot_write(&path, e))?;
        file.keep()?;
        files.push(path);
    }
    let pcap = folder.join("capture.pcapng");
    let seed = shrunk.scenario.seed();
    let wanted = Wanted {
        pcap: Some(&pcap),
        ..Wanted::default()
    };
    look(&scenario, &shrunk.scenario, seed, wanted)?;
    files.push(pcap);
    Ok(files)
}
