//! The page of a run of programs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::engine::Time;
use crate::fabric::Upcall;
use crate::host::Sim;
use crate::observe::{Observation, Sampler, Sampling, html};
use crate::program::report::Cause;
use crate::scenario::Report;

/// Samples of a page at most.
const SAMPLES: usize = 512;

/// Where a page goes, and what it says of the run.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) path: PathBuf,
    /// What runs.
    pub(crate) name: String,
    /// The line that runs it again.
    pub(crate) again: String,
}

/// A run that is sampled for its page.
pub(crate) struct Paging {
    page: Page,
    sampler: Sampler,
}

impl Paging {
    pub(crate) fn begin(sim: &mut Sim, page: &Page) -> Paging {
        Paging {
            page: page.clone(),
            sampler: Sampler::begin(sim, Sampling::AtMost(SAMPLES)),
        }
    }

    /// Goes on as [`Sim::step_for_programs`] does, and takes the samples of the time that passes.
    pub(crate) fn step(&mut self, sim: &mut Sim, until: Time) -> Option<Upcall> {
        loop {
            let end = self.sampler.end().min(until);
            let upcall = sim.step_for_programs(end);
            if upcall.is_some() || !self.sampler.pass(sim, end, until) {
                return upcall;
            }
        }
    }

    /// Writes the page of a run that is over; it failed if there are `failures`.
    pub(crate) fn finish(
        mut self,
        sim: &mut Sim,
        seed: u64,
        failures: Vec<String>,
    ) -> Result<(), Cause> {
        let now = sim.now();
        self.sampler.pass(sim, now, now);
        let series = self.sampler.finish(sim);
        let seen = Observation::of(sim, series);
        let report = Report {
            failures,
            ..Report::of(sim)
        };
        let title = html::Title {
            scenario: &self.page.name,
            about: "",
            seed,
            again: &self.page.again,
        };
        let write = || -> io::Result<()> {
            let mut file = BufWriter::new(File::create(&self.page.path)?);
            html::write(&mut file, &title, &report, &seen)?;
            file.flush()
        };
        write().map_err(|error| cannot(&self.page.path, &error))
    }
}

fn cannot(path: &Path, error: &io::Error) -> Cause {
    Cause::Setup(format!("the page {}: {error}", path.display()))
}
