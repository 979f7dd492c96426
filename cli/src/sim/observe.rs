//! Runs with output: `urxe sim run --pcap` and `--csv`, and `urxe sim report`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fabric_sim::observe::{Bar, Observation, Sampling, captured, csv, observed, timeline};
use fabric_sim::scenario::{Report, Scenario};
use fabric_sim::{Sim, Span};

use crate::error::{CliError, Context};
use crate::sim::new_file::{NewFile, cannot_write};

/// Samples of a run without a given interval.
pub(super) const SAMPLES: usize = 512;

/// How often to look, if an interval is given.
pub(super) fn sampling(every: Option<&str>) -> Result<Sampling, CliError> {
    let Some(text) = every else {
        return Ok(Sampling::AtMost(SAMPLES));
    };
    match text.parse::<Span>() {
        Ok(span) if span > Span::ZERO => Ok(Sampling::Every(span)),
        Ok(_) => Err(CliError::Usage(
            "--every 0: an interval has a length".to_owned(),
        )),
        Err(error) => Err(CliError::Usage(format!("--every: {error}"))),
    }
}

/// What else a run shall give.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    /// A capture of every frame; it is in its place afterwards.
    pub(super) pcap: Option<&'a Path>,
    /// Notes of queues and rates, so often.
    pub(super) sampling: Option<Sampling>,
    /// Bars on a time axis.
    pub(super) bars: bool,
    /// Threads that it may have; 0 is one, too.
    pub(super) threads: usize,
}

/// What a run gave.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) report: Report,
    pub(super) observation: Option<Observation>,
    pub(super) bars: Vec<Bar>,
}

/// Runs a scenario of a file.
pub(super) fn look(
    file: &Path,
    scenario: &Scenario,
    seed: u64,
    wanted: Wanted<'_>,
) -> Result<Looked, CliError> {
    let mut capture = wanted.pcap.map(NewFile::create).transpose()?;
    let scenario = match capture {
        Some(_) => &scenario.clone().in_bytes(),
        None => scenario,
    };
    let comment = format!("urxe sim run {} --seed {seed}", file.display());
    let (mut observation, mut bars) = (None, Vec::new());
    let mut written = Ok(());
    let report = scenario.run_by(seed, |sim, until| {
        sim.set_threads(wanted.threads);
        let mut sampled = |sim: &mut Sim| match wanted.sampling {
            Some(sampling) => observation = Some(observed(sim, until, sampling)),
            None => {
                sim.run_until(until);
            }
        };
        let mut run = |sim: &mut Sim| match wanted.bars {
            true => bars = timeline(sim, &mut sampled),
            false => sampled(sim),
        };
        match capture.take() {
            None => run(sim),
            Some(out) => match captured(sim, out, &comment, run) {
                Ok(out) => capture = Some(out),
                Err(error) => written = Err(error),
            },
        }
    });
    let report = report.context(file.display())?;
    if let Some(pcap) = wanted.pcap {
        written.map_err(|e| cannot_write(pcap, e))?;
    }
    capture.map_or(Ok(()), NewFile::keep)?;
    Ok(Looked {
        report,
        observation,
        bars,
    })
}

type Writer = fn(&mut NewFile, &Observation) -> io::Result<()>;

const TABLES: [(&str, Writer); 5] = [
    ("ports.csv", |out, seen| csv::write_ports(out, seen)),
    ("rates.csv", |out, seen| csv::write_rates(out, seen)),
    ("flows.csv", |out, seen| csv::write_flows(out, seen)),
    ("jobs.csv", |out, seen| csv::write_jobs(out, seen)),
    ("messages.csv", |out, seen| csv::write_messages(out, seen)),
];

/// Files in a folder that are being written: all of them come to their places, or none.
#[derive(Debug)]
pub(super) struct Tables {
    files: Vec<(PathBuf, NewFile)>,
    /// The folder, if it was made for them.
    made: Option<PathBuf>,
}

impl Tables {
    /// Begins the files of a folder, which is made if it is not there.
    pub(super) fn create(folder: &Path) -> Result<Tables, CliError> {
        let mut tables = Tables {
            files: Vec::new(),
            made: None,
        };
        if !folder.is_dir() {
            fs::create_dir(folder).map_err(|e| cannot_write(folder, e))?;
            tables.made = Some(folder.to_owned());
        }
        for (name, _) in TABLES {
            let path = folder.join(name);
            let file = NewFile::create(&path)?;
            tables.files.push((path, file));
        }
        Ok(tables)
    }

    pub(super) fn write(mut self, seen: &Observation) -> Result<(), CliError> {
        for ((path, file), (_, write)) in self.files.iter_mut().zip(TABLES) {
            write(file, seen)
                .and_then(|()| file.flush())
                .map_err(|e| cannot_write(path, e))?;
        }
        for (_, file) in self.files.drain(..) {
            file.keep()?;
        }
        self.made = None;
        Ok(())
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        self.files.clear();
        if let Some(folder) = &self.made {
            // Not empty: another program has put something there.
            let _ = fs::remove_dir(folder);
        }
    }
}
