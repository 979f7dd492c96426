//! What people simulate: collectives with dependencies, messages that arrive at random, connection matrices and traces.
//!
//! A [`Workload`] says which messages to send, and is told when they have come. [`Sim::add_job`](crate::Sim::add_job) runs
//! one over the real transport, any number of them at a time.
//!
//! | module | what |
//! |---|---|
//! | [`collective`] | all-reduce and its relatives, step by step |
//! | [`arrivals`] | messages that arrive at random, at a load |
//! | [`sizes`] | sizes of messages as published distributions |
//! | [`matrix`] | htsim's connection matrices (`.cm`) |
//! | [`goal`] | schedules in the GOAL language |

pub mod arrivals;
pub mod collective;
pub mod goal;
pub mod matrix;
mod outcome;
pub mod sizes;

use core::any::Any;
use std::collections::VecDeque;

use crate::engine::{Span, Time};
use crate::topology::HostId;

pub use arrivals::Arriving;
pub use collective::{Algorithm, Collective, CollectiveError, CollectiveKind};
pub use goal::Goal;
pub use matrix::Matrix;
pub use outcome::{Bucket, JobOutcome, MessageOutcome, buckets, job_outcomes, messages};
pub use sizes::Sizes;

/// What a job wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A message shall go from one host to another.
    Send {
        /// The sender.
        from: HostId,
        /// The receiver.
        to: HostId,
        /// Its length, at most [`MESSAGE_MAX`].
        bytes: u32,
        /// Returned when it is gone, and when it has come.
        tag: u64,
    },
    /// Time shall pass at a host.
    Wait {
        /// The host.
        host: HostId,
        /// Until when.
        until: Time,
        /// Returned then.
        tag: u64,
    },
}

/// Bytes of a message at most, as the standard has it.
pub const MESSAGE_MAX: u64 = 1 << 31;

/// What has happened to what a job wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The sender of a message knows that it has come.
    Sent(u64),
    /// A message has come to its receiver.
    Arrived(u64),
    /// The time has come.
    Due(u64),
}

/// The list into which a workload puts what it wants done.
#[derive(Debug, Default)]
pub struct Todo {
    now: Time,
    list: VecDeque<Action>,
}

impl Todo {
    pub(crate) fn at(now: Time) -> Todo {
        Todo {
            now,
            list: VecDeque::new(),
        }
    }

    /// Takes what is in it, in its order.
    pub fn drain(&mut self) -> impl Iterator<Item = Action> {
        core::mem::take(&mut self.list).into_iter()
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Sends a message. Between hosts that are the same, nothing would be simulated.
    pub fn send(&mut self, from: HostId, to: HostId, bytes: u32, tag: u64) {
        self.list.push_back(Action::Send {
            from,
            to,
            bytes,
            tag,
        });
    }

    /// Lets time pass.
    pub fn wait(&mut self, host: HostId, span: Span, tag: u64) {
        let until = self.now + span;
        self.list.push_back(Action::Wait { host, until, tag });
    }
}

/// A job: what its hosts say to each other, and in which order.
pub trait Workload: Any + Send + core::fmt::Debug {
    /// It begins.
    fn start(&mut self, todo: &mut Todo);

    /// Something that it wanted has happened.
    fn on_event(&mut self, event: Event, todo: &mut Todo);

    /// True if all of it is done.
    fn is_complete(&self) -> bool;

    /// What it waits for, if it is not complete: for reports.
    fn waits_for(&self) -> String;

    /// Bytes for its bus bandwidth: those that the slowest link of an ideal network carries each way. 0 if that says nothing of it.
    fn bus_bytes(&self) -> u64 {
        0
    }

    /// True if each of its messages is an outcome of its own, with a slowdown.
    fn keeps_messages(&self) -> bool {
        false
    }

    /// Itself, if its hosts can be in several parts of a simulation, each on a thread of its own.
    fn divisible(&mut self) -> Option<&mut dyn Divisible> {
        None
    }
}

/// A workload of which each host goes by what happens there: when a message has left or come or a time is due, it wants something of that
/// host alone. When it begins it may want something of any.
pub trait Divisible {
    /// Its hosts.
    fn hosts(&self) -> Vec<HostId>;

    /// The same workload for another part: of the same hosts, at which nothing has happened, with all counts at zero.
    fn fork(&self) -> Box<dyn Workload>;

    /// Swaps what it has of some hosts with another one, which was forked from it, and takes over what that has counted.
    fn exchange(&mut self, other: &mut dyn Workload, is_theirs: &dyn Fn(HostId) -> bool);

    /// Grows when, and only when, something ends without which it is not complete.
    fn done(&self) -> u64;
}
