//! What became of jobs and of their messages.

use crate::Sim;
use crate::engine::{Rate, Span, Time};
use crate::observe::ideal_of_message;

/// A job, and what became of it.
#[derive(Clone, PartialEq, Debug)]
pub struct JobOutcome {
    /// Its name.
    pub name: String,
    /// When it began.
    pub start: Time,
    /// How long it took, if it is complete.
    pub completion: Option<Span>,
    /// Messages that arrived.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// As nccl-tests have it: what each link of an ideal network would have carried, by the time; of a collective that is complete.
    pub bus_bandwidth: Option<Rate>,
    /// How long its messages took, by their size; of a job that keeps them.
    pub buckets: Vec<Bucket>,
    /// What is left to do, or how it failed.
    pub failure: Option<String>,
}

/// A message of a job that keeps them.
#[derive(Clone, PartialEq, Debug)]
pub struct MessageOutcome {
    /// The job's number.
    pub job: u32,
    /// The sender's name.
    pub from: String,
    /// The receiver's name.
    pub to: String,
    /// Its length.
    pub bytes: u32,
    /// When it was to be sent.
    pub start: Time,
    /// Until its sender knew that it had come.
    pub took: Span,
    /// How long it would take alone.
    pub ideal: Span,
}

impl MessageOutcome {
    /// How many times longer it took than alone.
    pub fn slowdown(&self) -> f64 {
        self.took.as_secs_f64() / self.ideal.as_secs_f64()
    }
}

/// Messages of similar size.
#[derive(Clone, PartialEq, Debug)]
pub struct Bucket {
    /// They have at most so many bytes.
    pub up_to: u64,
    /// Their number.
    pub count: usize,
    /// Slowdown that half of them do not exceed, 95 of 100, 99 of 100.
    pub slowdown: [f64; 3],
}

/// Ends of the buckets.
const ENDS: [u64; 7] = [
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    u64::MAX,
];

/// Sorts messages by size, and says how much longer they took than alone.
pub fn buckets(messages: &[MessageOutcome]) -> Vec<Bucket> {
    let mut all: [Vec<f64>; ENDS.len()] = Default::default();
    for message in messages {
        let place = ENDS.partition_point(|&end| end < u64::from(message.bytes));
        all[place].push(message.slowdown());
    }
    let filled = ENDS
        .into_iter()
        .zip(all)
        .filter(|(_, list)| !list.is_empty());
    let bucket = |(up_to, mut list): (u64, Vec<f64>)| {
        list.sort_by(f64::total_cmp);
        // The smallest that so many do not exceed.
        let rank = |percent: usize| list[(list.len() * percent).div_ceil(100).max(1) - 1];
        Bucket {
            up_to,
            count: list.len(),
            slowdown: [50, 95, 99].map(rank),
        }
    };
    filled.map(bucket).collect()
}

/// The messages of all jobs that keep them.
pub fn messages(sim: &Sim) -> Vec<MessageOutcome> {
    (0..)
        .zip(sim.jobs())
        .flat_map(|(job, _)| messages_of(sim, job))
        .collect()
}

fn messages_of(sim: &Sim, number: u32) -> Vec<MessageOutcome> {
    let topology = sim.fabric().topology();
    let job = &sim.jobs()[number as usize];
    let each = job.messages.iter().map(|message| MessageOutcome {
        job: number,
        from: topology.name(message.from).to_owned(),
        to: topology.name(message.to).to_owned(),
        bytes: message.bytes,
        start: message.start,
        took: message.took,
        ideal: ideal_of_message(sim, message, job.spec.options.mtu.bytes()),
    });
    each.collect()
}

/// All jobs of a simulation.
pub fn job_outcomes(sim: &Sim) -> Vec<JobOutcome> {
    let outcome = |(number, job): (u32, &crate::host::Job)| {
        let completion = job.completion();
        let workload = &job.spec.workload;
        let left = || (completion.is_none()).then(|| workload.waits_for());
        JobOutcome {
            name: job.spec.name.clone(),
            start: job.spec.start,
            completion,
            messages: job.arrived,
            bytes: job.bytes,
            bus_bandwidth: completion
                .and_then(|span| Rate::of(workload.bus_bytes(), span))
                .filter(|_| workload.bus_bytes() > 0),
            buckets: buckets(&messages_of(sim, number)),
            failure: match job.failure {
                Some(status) => Some(format!("{status}: {}", workload.waits_for())),
                None => left(),
            },
        }
    };
    (0..).zip(sim.jobs()).map(outcome).collect()
}
