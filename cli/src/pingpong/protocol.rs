//! What the two processes of a ping-pong tell each other over the control connection.

use serde::{Deserialize, Serialize};
pub(crate) use urxe_measure::pingpong::Variant;

use crate::station::RemoteMemory;
use crate::usage::CpuUse;

/// Client to server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Make a queue pair for this variant, connect it to the endpoint and answer [`Answer::Ready`].
    Setup {
        variant: Variant,
        size: usize,
        endpoint: String,
    },
    /// Begin `iters` rounds, the first of them number `first`; answer [`Answer::Running`] once the receives
    /// are posted, and [`Answer::Report`] at the end.
    Run { first: u64, iters: u64 },
    /// The rounds of a one-sided variant are over: the message with their count was sent.
    Finished,
    /// This was all.
    Bye,
}

/// Server to client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The server's end, and the memory that WRITE and READ may use.
    Ready {
        endpoint: String,
        memory: RemoteMemory,
    },
    Running,
    /// The rounds are over on this side.
    Report {
        cpu: CpuUse,
    },
}
