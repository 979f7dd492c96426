//! What jobs are, and what a simulation keeps of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use urxe_core::WcStatus;
use urxe_wire::{Lkey, Psn, Qpn, Rkey};

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
    /// a connection to itself, one that is free or a new one; others have one connection for two hosts, or two if either sends before it has
    /// heard of the other.
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
    /// Messages that have ended, if the workload keeps them: by that time, and of one time by their senders.
    pub messages: Vec<Message>,
    /// When all of it was done.
    pub end: Option<Time>,
    /// How it failed, if it did: then it goes on without what failed, and does not end.
    pub failure: Option<WcStatus>,
    /// When, and where.
    pub(crate) failed_at: Option<(Time, HostId)>,
    /// When it will begin.
    pub(crate) begins: Option<Time>,
    /// Its hosts, if they can be in several parts.
    pub(crate) hosts: Option<Vec<HostId>>,
    /// When something of it was done last in a part.
    pub(crate) last: Time,
    /// So many of the messages are in their order.
    pub(crate) ordered: usize,
}

impl Job {
    pub(crate) fn new(spec: JobSpec, begins: Option<Time>) -> Job {
        Job {
            spec,
            arrived: 0,
            bytes: 0,
            messages: Vec::new(),
            end: None,
            failure: None,
            failed_at: None,
            begins,
            hosts: None,
            last: Time::ZERO,
            ordered: 0,
        }
    }

    /// Time from its start to its end.
    pub fn completion(&self) -> Option<Span> {
        Some(self.end?.since(self.spec.start))
    }

    /// Keeps the first failure. At one time that is the one of the first host: so it is the same in parts.
    pub(crate) fn fail(&mut self, status: WcStatus, at: (Time, HostId)) {
        if self.failed_at.is_none_or(|known| at < known) {
            (self.failure, self.failed_at) = (Some(status), Some(at));
        }
    }

    /// Brings the messages that were added into their order.
    pub(crate) fn order_messages(&mut self) {
        let added = &mut self.messages[self.ordered..];
        added.sort_by_key(|message| (message.start + message.took, message.from));
        self.ordered = self.messages.len();
    }
}

/// Work requests from here on are those of jobs: then the place of an end among those of its host.
pub(crate) const OF_JOBS: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) bytes: u32,
    pub(crate) tag: u64,
    pub(crate) since: Time,
}

/// One end of a connection, at its host.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) job: u32,
    pub(crate) qp: QpHandle,
    pub(crate) peer: (HostId, Qpn),
    /// Posted, and not known to have come.
    pub(crate) posted: VecDeque<Posted>,
    pub(crate) waiting: VecDeque<Posted>,
    /// What the peer has posted, and has not come.
    pub(crate) coming: VecDeque<Posted>,
}

/// A connection that a peer has begun, and of which no packet has come.
#[derive(Debug)]
pub(crate) struct Invitation {
    pub(crate) job: u32,
    pub(crate) peer: QpHandle,
    /// The first PSN of this end, and of the peer.
    pub(crate) psns: (Psn, Psn),
    pub(crate) coming: VecDeque<Posted>,
}

/// What peers of a host need to know to begin connections to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door {
    /// QPNs that they give to its ends: the first, and the one behind the last.
    pub(crate) numbers: (u32, u32),
    /// The region that all jobs write to.
    pub(crate) addr: u64,
    pub(crate) rkey: Rkey,
    /// For what the host sends.
    pub(crate) lkey: Lkey,
}

/// What a host says to a peer, beside packets: it is known there before a packet that was sent after it.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) to: HostId,
    /// Of the end there.
    pub(crate) qpn: Qpn,
    pub(crate) news: News,
}

#[derive(Debug)]
pub(crate) enum News {
    /// There is a connection.
    Invited(Invitation),
    /// A message was posted.
    Posted(Posted),
}

/// The jobs' things at one host.
#[derive(Debug, Default)]
pub(crate) struct HostJobs {
    pub(crate) ends: Vec<End>,
    /// By QPN.
    pub(crate) places: BTreeMap<u32, u32>,
    /// Ends that can take a message, by job and peer.
    pub(crate) free: BTreeMap<(u32, HostId), Vec<u32>>,
    /// By QPN.
    pub(crate) invitations: BTreeMap<u32, Invitation>,
    /// Connections that it has begun, by peer.
    pub(crate) begun: BTreeMap<HostId, u32>,
    /// What timers are for: a job, and its tag, or `None` to begin.
    pub(crate) waits: Vec<(u32, Option<u64>)>,
    pub(crate) unused: Vec<u32>,
}

impl HostJobs {
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

/// All jobs of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) all: Vec<Job>,
    /// By host; none before the first job.
    pub(crate) hosts: Vec<HostJobs>,
    /// By host. It changes only while the simulation is whole.
    pub(crate) doors: Arc<Vec<Option<Door>>>,
}
