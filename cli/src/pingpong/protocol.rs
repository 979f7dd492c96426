//! What the two processes of a ping-pong tell each other over the control connection.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::station::RemoteMemory;
use crate::usage::CpuUse;

/// The four ways to do a ping-pong that introductions to RDMA programming compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Variant {
    /// SEND and RECV, both sides polling their completion queue without a pause
    #[default]
    SendRecvPoll,
    /// SEND and RECV, both sides sleeping until a completion event
    SendRecvNotify,
    /// WRITE to the server's memory, then READ it back, sleeping for each completion
    WriteReadNotify,
    /// WRITE without a completion, then READ, sleeping for the READ's completion
    WriteReadUnsignaled,
}

impl Variant {
    /// Whether the server takes part in each round, rather than only its memory.
    pub(crate) fn is_two_sided(self) -> bool {
        matches!(self, Variant::SendRecvPoll | Variant::SendRecvNotify)
    }

    /// Whether completions are polled for, rather than waited for.
    pub(crate) fn is_polling(self) -> bool {
        self == Variant::SendRecvPoll
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Variant::SendRecvPoll => "SEND/RECV, busy polling",
            Variant::SendRecvNotify => "SEND/RECV, wait for notify",
            Variant::WriteReadNotify => "WRITE/READ, wait for notify",
            Variant::WriteReadUnsignaled => "WRITE unsignaled/READ, notify",
        })
    }
}

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
