//! The page of a run of programs.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::Time;
use crate::fabric::Upcall;
use crate::host::Sim;
use crate::observe::{Observation, Sampler, Sampling, html};
use crate::program::nic::Nic;
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
    /// Of any host: they hear of all flows.
    nic: Arc<Nic>,
}

impl Paging {
    pub(crate) fn begin(sim: &mut Sim, page: &Page, nic: Arc<Nic>) -> Paging {
        Paging {
            page: page.clone(),
            sampler: Sampler::begin(sim, Sampling::AtMost(SAMPLES)),
            nic,
        }
    }

    /// Goes on as [`Sim::step_for_programs`] does, and takes the samples of the time that passes.
    pub(crate) fn step(&mut self, sim: &mut Sim, until: Time) -> Option<Upcall> {
        loop {
            let end = self.sampler.end().min(until);
            let upcall = sim.step_for_programs(end);
            if upcall.is_some() || !self.pass(sim, end, until) {
                return upcall;
            }
        }
    }

    fn pass(&mut self, sim: &mut Sim, end: Time, until: Time) -> bool {
        let arrived = self.nic.with_flows(|flows| flows.arrived());
        self.sampler.more = arrived.unwrap_or_default();
        self.sampler.pass(sim, end, until)
    }

    /// Writes the page of a run that is over; it failed if there are `failures`.
    pub(crate) fn finish(
        mut self,
        sim: &mut Sim,
        seed: u64,
        failures: Vec<String>,
    ) -> Result<(), Cause> {
        let now = sim.now();
        self.pass(sim, now, now);
        let topology = sim.fabric().topology();
        let flows = self.nic.with_flows(|flows| flows.outcomes(topology));
        let mut series = self.sampler.finish(sim);
        let flows = flows.unwrap_or_default();
        let count = sim.flows().len() + sim.streams().len() + flows.len();
        series.flows.resize(count, vec![0; series.len]);
        let mut seen = Observation::of(sim, series);
        seen.flows.extend(flows);
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
