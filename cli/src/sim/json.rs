//! What runs of simulations came to, for programs. Times are in seconds, rates in bits a second.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fabric_sim::Rate;
use fabric_sim::scenario::{FaultReport, FlowReport, Report};
use fabric_sim::workload::JobOutcome;
use serde::Serialize;

/// A run under one seed.
#[derive(Debug, Serialize)]
pub(super) struct Run<'a> {
    seed: u64,
    trace: String,
    end_s: f64,
    events: u64,
    flows: Vec<Flow<'a>>,
    jobs: Vec<Job<'a>>,
    /// Dropped frames, by reason.
    drops: BTreeMap<&'a str, u64>,
    /// Pause frames that stopped a neighbour, by port.
    pauses: BTreeMap<&'a str, u64>,
    deadlock: Option<&'a str>,
    faults: Vec<Fault<'a>>,
    /// Why it ran on one thread, if it was to run on more.
    #[serde(skip_serializing_if = "Option::is_none")]
    alone: Option<&'a str>,
    failures: &'a [String],
}

/// A run that was repeated.
#[derive(Debug, Serialize)]
pub(super) struct Replay<'a> {
    #[serde(flatten)]
    pub(super) run: Run<'a>,
    /// Whether it is the run that was told; `None` when none was.
    pub(super) is_same: Option<bool>,
}

/// A run that a page shows.
#[derive(Debug, Serialize)]
pub(super) struct Page<'a> {
    #[serde(flatten)]
    pub(super) run: Run<'a>,
    pub(super) page: &'a Path,
}

/// Programs of the system's, under a seed.
#[derive(Debug, Serialize)]
pub(super) struct Executed<'a> {
    pub(super) seed: u64,
    pub(super) trace: String,
    pub(super) end_s: f64,
    /// Whether the second run of the seed was the same; `None` if there was none.
    pub(super) is_same: Option<bool>,
    pub(super) programs: Vec<ExecutedProgram<'a>>,
    /// What went wrong, of the run and of programs.
    pub(super) failures: &'a [String],
}

/// One of them.
#[derive(Debug, Serialize)]
pub(super) struct ExecutedProgram<'a> {
    pub(super) host: String,
    pub(super) command: &'a [String],
    /// What it printed.
    pub(super) output: Cow<'a, str>,
    /// What it tried that is not simulated.
    pub(super) refused: &'a [String],
    pub(super) failure: Option<&'a str>,
}

/// What is left of a scenario that fails.
#[derive(Debug, Serialize)]
pub(super) struct Smallest<'a> {
    pub(super) runs: u64,
    pub(super) wall_s: f64,
    pub(super) faults: usize,
    pub(super) flows: usize,
    pub(super) failures: &'a [String],
    pub(super) files: &'a [PathBuf],
}

/// One combination of values, under all seeds.
#[derive(Debug, Serialize)]
pub(super) struct Combination {
    /// The values, each as `--set` takes it.
    pub(super) set: Vec<String>,
    pub(super) seeds: usize,
    /// Of each run's slowest flow. `None` when there are but jobs, or all runs are in other shards.
    pub(super) goodput_median_bit_per_s: Option<u64>,
    /// Between these the median of all seeds lies with 95 % confidence. `None` of fewer than 6 seeds.
    pub(super) goodput_median_from_bit_per_s: Option<u64>,
    pub(super) goodput_median_to_bit_per_s: Option<u64>,
    pub(super) goodput_min_bit_per_s: Option<u64>,
    /// `None` when a flow or a job was not complete.
    pub(super) completion_max_s: Option<f64>,
    /// The same of the runs' last flows.
    pub(super) completion_median_s: Option<f64>,
    pub(super) completion_median_from_s: Option<f64>,
    pub(super) completion_median_to_s: Option<f64>,
    pub(super) failed: Vec<Failed>,
}

/// A run of a sweep that failed.
#[derive(Debug, Serialize)]
pub(super) struct Failed {
    pub(super) seed: u64,
    pub(super) trace: String,
    pub(super) failures: Vec<String>,
    /// The command line that repeats it.
    pub(super) again: String,
}

/// A sweep as a whole.
#[derive(Debug, Serialize)]
pub(super) struct Swept<'a> {
    pub(super) runs: usize,
    pub(super) failed_runs: usize,
    /// `None` when shards were put together.
    pub(super) wall_s: Option<f64>,
    pub(super) hash: String,
    /// Marks that were expected sometimes.
    pub(super) never_seen: &'a [&'a String],
}

#[derive(Debug, Serialize)]
struct Flow<'a> {
    name: &'a str,
    bytes: u64,
    goodput_bit_per_s: Option<u64>,
    completion_s: Option<f64>,
    failure: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Job<'a> {
    name: &'a str,
    messages: u64,
    bytes: u64,
    completion_s: Option<f64>,
    bus_bandwidth_bit_per_s: Option<u64>,
    failure: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Fault<'a> {
    name: &'a str,
    hits: u64,
}

impl<'a> Run<'a> {
    pub(super) fn of(seed: u64, report: &'a Report) -> Run<'a> {
        let drops = report.drops.iter();
        let pauses = report.pauses.iter();
        Run {
            seed,
            trace: report.trace.to_string(),
            end_s: report.end.as_secs_f64(),
            events: report.events,
            flows: report.flows.iter().map(Flow::of).collect(),
            jobs: report.jobs.iter().map(Job::of).collect(),
            drops: drops.map(|&(reason, count)| (reason, count)).collect(),
            pauses: pauses
                .map(|(port, count)| (port.as_str(), *count))
                .collect(),
            deadlock: report.deadlock.as_deref(),
            faults: report.faults.iter().map(Fault::of).collect(),
            alone: report.alone,
            failures: &report.failures,
        }
    }
}

impl<'a> Flow<'a> {
    fn of(flow: &'a FlowReport) -> Flow<'a> {
        Flow {
            name: &flow.name,
            bytes: flow.bytes,
            goodput_bit_per_s: flow.goodput.map(Rate::as_bps),
            completion_s: flow.completion.map(|span| span.as_secs_f64()),
            failure: flow.failure.as_deref(),
        }
    }
}

impl<'a> Job<'a> {
    fn of(job: &'a JobOutcome) -> Job<'a> {
        Job {
            name: &job.name,
            messages: job.messages,
            bytes: job.bytes,
            completion_s: job.completion.map(|span| span.as_secs_f64()),
            bus_bandwidth_bit_per_s: job.bus_bandwidth.map(Rate::as_bps),
            failure: job.failure.as_deref(),
        }
    }
}

impl<'a> Fault<'a> {
    fn of(fault: &'a FaultReport) -> Fault<'a> {
        Fault {
            name: &fault.name,
            hits: fault.hits,
        }
    }
}
