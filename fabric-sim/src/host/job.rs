//! What jobs are, and what a simulation keeps of them.

use std::collections::{BTreeMap, VecDeque};

use urxe_core::WcStatus;
use urxe_wire::{Lkey, Rkey};

use crate::engine::{Span, Time};
use crate::host::connect::{ConnectOptions, QpHandle};
use crate::topology::HostId;
use crate::workload::Workload;

/// A job, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u32);

/// A job to be.
#[derive(Debug)]
pub struct JobSpec {
    /// What reports call it.
    pub name: String,
    /// When it begins.
    pub start: Time,
    /// Its connections. They are made when they are needed first, which takes no time. A job that keeps its messages gives each of them
    /// a connection to itself, one that is free or a new one; others have one connection for two hosts.
    pub options: ConnectOptions,
    /// What it does.
    pub workload: Box<dyn Workload>,
}

/// A message that has ended, of a job that keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The sender.
    pub from: HostId,
    /// The receiver.
    pub to: HostId,
    /// Its length.
    pub bytes: u32,
    /// When it was to be sent.
    pub start: Time,
    /// Until its sender knew that it had come.
    pub took: Span,
}

/// A job, and how far it has come.
#[derive(Debug)]
pub struct Job {
    /// The job as it was requested.
    pub spec: JobSpec,
    /// Messages that have come to their receivers, and their bytes.
    pub arrived: u64,
    /// See above.
    pub bytes: u64,
    /// Messages that have ended, if the workload keeps them.
    pub messages: Vec<Message>,
    /// When all of it was done.
    pub end: Option<Time>,
    /// How it failed, if it did: then it goes on without what failed, and does not end.
    pub failure: Option<WcStatus>,
}

impl Job {
    /// Time from its start to its end.
    pub fn completion(&self) -> Option<Span> {
        Some(self.end?.since(self.spec.start))
    }
}

/// Work requests from here on are those of jobs: then a lane, and its end.
pub(crate) const OF_JOBS: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) bytes: u32,
    pub(crate) tag: u64,
    pub(crate) since: Time,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) qp: QpHandle,
    pub(crate) memory: (u64, Lkey, Rkey),
    /// Posted, and not known to have come; the first so many of them have come.
    pub(crate) posted: VecDeque<Posted>,
    pub(crate) come: usize,
    pub(crate) waiting: VecDeque<Posted>,
}

/// A connection of a job.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) job: u32,
    pub(crate) ends: [End; 2],
}

/// All jobs of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) all: Vec<Job>,
    pub(crate) lanes: Vec<Lane>,
    /// Connections that can take a message, by job and hosts.
    pub(crate) free: BTreeMap<(u32, HostId, HostId), Vec<u32>>,
    /// What timers are for: a job, and its tag, or `None` to begin.
    pub(crate) waits: Vec<(u32, Option<u64>)>,
    pub(crate) unused: Vec<u32>,
    /// The region of each host that all its jobs use.
    pub(crate) regions: BTreeMap<HostId, (u64, Lkey, Rkey)>,
}

impl Jobs {
    pub(crate) fn new_wait(&mut self, job: u32, tag: Option<u64>) -> u32 {
        match self.unused.pop() {
            Some(place) => {
                self.waits[place as usize] = (job, tag);
                place
            }
            None => {
                self.waits.push((job, tag));
                self.waits.len() as u32 - 1
            }
        }
    }
}
