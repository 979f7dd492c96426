//! What the two sides of a bench tell each other over the control connection.

use serde::{Deserialize, Serialize};
use urxe_measure::bench::link::Packets;
use urxe_measure::bench::plan::Plan;

use crate::station::RemoteMemory;

/// Measuring side to the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Make a queue pair for this plan, connect it, answer [`Answer::Ready`]. The memory is what the other side
    /// may WRITE its answers to.
    Setup {
        plan: Plan,
        endpoint: String,
        memory: RemoteMemory,
    },
    /// `iters` operations come: post what they need, answer [`Answer::Running`], take part, answer
    /// [`Answer::Done`].
    Run { iters: u64 },
    /// A run in which this side has nothing to do but to let its engine work is over.
    Finished,
    /// Compare the memory with what the operations must have left there; answer [`Answer::Done`].
    Check { expected: Expected },
    /// Answer [`Answer::Packets`].
    Count,
    /// This was all.
    Bye,
}

/// What the target's memory must hold in the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Expected {
    /// Nothing in particular.
    Anything,
    /// The bytes of the message pattern.
    Pattern,
    /// A counter that was added to this often.
    Count(u64),
}

/// The other side's answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Its endpoint, and the memory that one-sided operations may use.
    Ready {
        endpoint: String,
        memory: RemoteMemory,
    },
    Running,
    Packets(Packets),
    Done,
}
