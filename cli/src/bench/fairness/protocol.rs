//! What the two sides tell each other over the control connection.

use serde::{Deserialize, Serialize};
use urxe_measure::fairness::Plan;

use crate::station::RemoteMemory;

/// Measuring side to the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Make the queue pairs of this plan; their peers' endpoints follow, that of the small one first.
    Create(Plan),
    /// Answer small messages, until [`Request::Finished`].
    Run,
    /// No more come.
    Finished,
    /// Compare the memory with what the WRITEs must have left there.
    Check,
    /// This was all.
    Bye,
}

/// The other side's answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Memory for the WRITEs.
    Memory(RemoteMemory),
    Running,
    Done,
}
