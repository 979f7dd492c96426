//! How a run ended.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::check::{self, Mark, Violation};
use crate::engine::{Time, TraceHash, mix64};
use crate::fabric::Drops;
use crate::program::marks::Marks;
use crate::qos::PRIORITIES;
use crate::topology::HostId;

/// How the program of a host ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostEnd {
    /// The program returned, at that time.
    Finished(Time),
    /// Its host crashed, and did not start again with it.
    Crashed,
}

/// A run in which every program came to its end.
#[derive(Clone, Debug)]
pub struct Report {
    pub(crate) seed: u64,
    pub(crate) ended_at: Time,
    pub(crate) trace: TraceHash,
    pub(crate) order: TraceHash,
    pub(crate) ends: Vec<Option<HostEnd>>,
    pub(crate) counters: BTreeMap<&'static str, u64>,
    pub(crate) drops: Drops,
    pub(crate) sent: [u64; PRIORITIES],
    pub(crate) marks: Arc<Marks>,
    pub(crate) seen: BTreeSet<Mark>,
}

impl Report {
    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// When the last program ended.
    pub fn ended_at(&self) -> Time {
        self.ended_at
    }

    /// Stands for the run: every arrival of a frame, and the order in which programs had their turns. Equal seeds
    /// have equal traces. Addresses of memory, which differ from process to process, are not in it.
    pub fn trace(&self) -> u64 {
        mix64(self.trace.value() ^ mix64(self.order.value()))
    }

    /// How the program of a host ended; `None` if it had none.
    pub fn end_of(&self, host: HostId) -> Option<HostEnd> {
        self.ends.get(host.index()).copied().flatten()
    }

    /// A counter, over all contexts of all hosts; the names are those of
    /// [`Context::counters`](urxe::Context::counters). One that there is not is 0.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// All counters that counted anything.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = self.counters.iter().map(|(name, count)| (*name, *count));
        all.filter(|(_, count)| *count > 0)
    }

    /// Frames that did not arrive, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Frames that hosts sent, by class.
    pub fn sent_by_class(&self) -> [u64; PRIORITIES] {
        self.sent
    }

    /// Says that some run of a set must see this happen: see [`Report::saw`]. A test over many seeds
    /// fails in the end if none did. Of a run alone nothing is demanded.
    pub fn assert_sometimes(&self, what: &str) -> &Report {
        self.marks.note(what, self.saw(what));
        self
    }

    /// Whether it happened in this run: a [`Mark`] by its name (`nak`, `timeout`, `retransmit`, `loss`, `crash` ...),
    /// or a counter by its.
    pub fn saw(&self, what: &str) -> bool {
        match what.parse::<Mark>() {
            Ok(mark) => self.seen.contains(&mark),
            Err(_) => self.counter(what) > 0,
        }
    }
}

/// What was seen: by the network, and by the transports of the programs. (What only the simulator's own
/// transports are watched for, replayed atomics and PSNs that wrap, is not among it.)
pub(crate) fn seen(
    mut marks: check::Marks,
    counters: &BTreeMap<&'static str, u64>,
) -> BTreeSet<Mark> {
    marks.add_counters(counters.iter().map(|(name, count)| (*name, *count)));
    marks.seen().map(|(mark, _)| mark).collect()
}

/// Why a run did not come to its end.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The simulation cannot be set up so.
    #[error("the simulation cannot be: {0}")]
    Setup(String),
    /// The program of a host panicked.
    #[error("{host} panicked: {words}")]
    Panicked {
        /// The host.
        host: String,
        /// What it said.
        words: String,
    },
    /// All that is left waits, and nothing is left to happen.
    #[error("all wait for ever:{}", list(.0.iter().cloned()))]
    Deadlock(Vec<String>),
    /// The time was up.
    #[error("not all programs have ended by {until}:{}", list(.waiting.iter().cloned()))]
    TimeLimit {
        /// The limit.
        until: Time,
        /// Programs that have not ended, and what they do.
        waiting: Vec<String>,
    },
    /// A program kept its turn for so long in real time that it must be waiting for something that is not
    /// simulated.
    #[error(
        "{0} does not come back: it waits for something that is not simulated (a lock, a socket, a thread, \
         memory that it reads without a call), or goes round without end"
    )]
    Stuck(String),
    /// Something that must hold in every run did not.
    #[error("{}", list(.0.iter().map(Violation::to_string)))]
    Violated(Vec<Violation>),
}

fn list(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| format!("\n  {line}")).collect()
}

/// A run that did not come to its end.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    pub(crate) seed: u64,
    pub(crate) at: Time,
    pub(crate) cause: Cause,
    pub(crate) trace: u64,
    /// Programs that could not even be ended.
    pub(crate) left: Vec<String>,
    /// What faults did last, and what each host called last.
    pub(crate) before: Vec<String>,
}

impl Failure {
    /// Why.
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// When.
    pub fn at(&self) -> Time {
        self.at
    }

    /// The seed that does it again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What came before, a line each: the last frames that each fault hit, and the last calls of each host's programs.
    pub fn before(&self) -> &[String] {
        &self.before
    }

    /// Stands for the run up to here: see [`Report::trace`].
    pub fn trace(&self) -> u64 {
        self.trace
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}, at {}: {}", self.seed, self.at, self.cause)?;
        for line in &self.before {
            write!(f, "\n  {line}")?;
        }
        for name in &self.left {
            write!(f, "\n  a thread of {name} could not be ended")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
