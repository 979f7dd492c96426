//! The report of a run.

use core::fmt;

use crate::Sim;
use crate::check::Marks;
use crate::engine::{Rate, Span, Time, TraceHash};
use crate::fabric::DropReason;
use crate::fault::ActiveFault;
use crate::topology::PortName;
use crate::workload::{JobOutcome, job_outcomes};

/// A flow or stream.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowReport {
    /// `h0>h3 write`.
    pub name: String,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Bytes a second.
    pub goodput: Option<Rate>,
    /// How long it took, if it is complete.
    pub completion: Option<Span>,
    /// What went wrong.
    pub failure: Option<String>,
}

/// A fault, and what it did.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultReport {
    /// Kind, choice and window.
    pub name: String,
    /// How often it struck.
    pub hits: u64,
    /// Numbers of the frames that it hit, the first 4096.
    pub numbers: Vec<u64>,
}

impl FaultReport {
    fn of(fault: &ActiveFault) -> FaultReport {
        FaultReport {
            name: fault.fault().to_string(),
            hits: fault.hits(),
            numbers: fault.numbers().to_vec(),
        }
    }
}

/// The outcome of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Everything that happened, as a number.
    pub trace: TraceHash,
    /// The bytes of all packets, as a number; of nothing in `lite` mode.
    pub content: TraceHash,
    /// When it ended.
    pub end: Time,
    /// Events.
    pub events: u64,
    /// Plain flows, then streams.
    pub flows: Vec<FlowReport>,
    /// Jobs.
    pub jobs: Vec<JobOutcome>,
    /// Dropped frames.
    pub drops: Vec<(&'static str, u64)>,
    /// Pause frames that stopped a neighbour, by port.
    pub pauses: Vec<(String, u64)>,
    /// Queues that wait for each other at the end.
    pub deadlock: Option<String>,
    /// Rare things that were seen.
    pub marks: Marks,
    /// What each fault did.
    pub faults: Vec<FaultReport>,
    /// Why it ran on one thread, if it was to run on more.
    pub alone: Option<&'static str>,
    /// What must hold and did not, then what was expected and did not come.
    pub failures: Vec<String>,
}

impl Report {
    /// Looks at a simulation.
    pub fn of(sim: &Sim) -> Report {
        let fabric = sim.fabric();
        let topology = fabric.topology();
        let name = |from, to| format!("{}>{}", topology.name(from), topology.name(to));
        let flows = sim.flows().iter().map(|flow| FlowReport {
            name: format!("{} frames", name(flow.spec.from, flow.spec.to)),
            bytes: flow.delivered_bytes,
            goodput: flow.goodput(),
            completion: flow.completion(),
            failure: None,
        });
        let streams = sim.streams().iter().map(|stream| {
            let op = stream.spec.op.name();
            FlowReport {
                name: format!("{} {op}", name(stream.spec.from, stream.spec.to)),
                bytes: stream.completed * u64::from(stream.spec.len()),
                goodput: stream.goodput(),
                completion: stream.completion(),
                failure: stream.failure.map(|status| status.to_string()),
            }
        });
        let drops = DropReason::ALL.iter();
        let drops = drops.map(|&reason| (reason.name(), fabric.drops().of(reason)));
        let pauses = topology.ports().map(|port| {
            (
                PortName(topology, port).to_string(),
                fabric.port_stats(port).pauses_sent,
            )
        });
        Report {
            trace: fabric.trace(),
            content: fabric.content(),
            end: sim.now(),
            events: fabric.events(),
            flows: flows.chain(streams).collect(),
            jobs: job_outcomes(sim),
            drops: drops.filter(|(_, count)| *count > 0).collect(),
            pauses: pauses.filter(|(_, count)| *count > 0).collect(),
            deadlock: fabric.find_deadlock().map(|d| d.describe(topology)),
            marks: sim.marks(),
            faults: fabric.faults().iter().map(FaultReport::of).collect(),
            alone: sim.alone(),
            failures: Vec::new(),
        }
    }

    /// The flows' rates in Gb/s.
    pub(crate) fn rates(&self) -> impl Iterator<Item = f64> + '_ {
        let rates = self.flows.iter().map(|flow| flow.goodput);
        rates.map(|rate| rate.map_or(0.0, Rate::as_gbps_f64))
    }

    /// Jain's fairness index of the flows' rates: 1 if all are equal.
    pub fn jain(&self) -> f64 {
        let sums = |(sum, squares), rate| (sum + rate, squares + rate * rate);
        match self.rates().fold((0.0, 0.0), sums) {
            (_, 0.0) => 1.0,
            (sum, squares) => sum * sum / (self.flows.len() as f64 * squares),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} events until {}, trace {}",
            self.events, self.end, self.trace
        )?;
        for (flow, goodput) in self.flows.iter().zip(self.rates()) {
            write!(
                f,
                "  {:28} {:>12} B {goodput:>9.3} Gb/s",
                flow.name, flow.bytes
            )?;
            match (&flow.failure, flow.completion) {
                (Some(failure), _) => writeln!(f, "  failed: {failure}")?,
                (None, Some(span)) => writeln!(f, "  complete after {span}")?,
                (None, None) => writeln!(f)?,
            }
        }
        if self.flows.len() > 1 {
            writeln!(f, "  fairness (Jain) {:.4}", self.jain())?;
        }
        self.jobs.iter().try_for_each(|job| write_job(f, job))?;
        for (port, count) in &self.pauses {
            writeln!(f, "  {port} stopped its neighbour {count} times")?;
        }
        for (reason, count) in &self.drops {
            writeln!(f, "  dropped: {count} ({reason})")?;
        }
        for fault in &self.faults {
            writeln!(f, "  fault: {}: {} times", fault.name, fault.hits)?;
        }
        if self.marks.seen().next().is_some() {
            writeln!(f, "  seen: {}", self.marks)?;
        }
        if let Some(cycle) = &self.deadlock {
            writeln!(f, "  deadlock: {cycle}")?;
        }
        match self.alone {
            Some(reason) => writeln!(f, "  on one thread: {reason}"),
            None => Ok(()),
        }
    }
}

fn write_job(f: &mut fmt::Formatter<'_>, job: &JobOutcome) -> fmt::Result {
    let (messages, bytes) = (job.messages, job.bytes);
    write!(
        f,
        "  job {:24} {messages:>9} messages {bytes:>12} B",
        job.name
    )?;
    if let Some(span) = job.completion {
        write!(f, "  complete after {span}")?;
    }
    if let Some(rate) = job.bus_bandwidth {
        write!(f, ", bus bandwidth {:.3} Gb/s", rate.as_gbps_f64())?;
    }
    match &job.failure {
        Some(failure) => writeln!(f, "  not complete: {failure}")?,
        None => writeln!(f)?,
    }
    for bucket in &job.buckets {
        let [half, most, nearly_all] = bucket.slowdown;
        let size = match bucket.up_to {
            u64::MAX => "larger".to_owned(),
            bytes => format!("up to {bytes} B"),
        };
        writeln!(
            f,
            "    {size:20} {:>7} messages, slowdown p50 {half:.2} p95 {most:.2} p99 {nearly_all:.2}",
            bucket.count
        )?;
    }
    Ok(())
}
