//! What a bench measures, and how much of it at a time.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::error::CliError;

/// Bytes of a message at most: what fits comfortably into memory a few times.
pub const SIZE_MAX: u64 = 64 << 20;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Messages into receives that the other side posts
    Send,
    /// RDMA WRITE into the other side's memory
    Write,
    /// RDMA READ out of the other side's memory
    Read,
    /// Fetch and add on eight bytes of the other side's memory
    Atomic,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Send => "SEND",
            Op::Write => "RDMA WRITE",
            Op::Read => "RDMA READ",
            Op::Atomic => "atomic fetch and add",
        }
    }

    /// What the number is, in words.
    pub fn measure(self, plan: &Plan) -> String {
        let mut words = match (plan.is_latency, self) {
            (false, _) => "one way, as much as goes",
            (true, Op::Send | Op::Write) => "half a round trip of a ping-pong, both sides ",
            (true, Op::Read | Op::Atomic) => {
                "a whole operation, request to completion, both sides "
            }
        }
        .to_owned();
        if plan.is_latency {
            words += match (plan.is_event, self) {
                (_, Op::Write) => "polling their memory",
                (true, _) => "sleeping for events",
                (false, _) => "polling",
            };
        }
        if plan.is_signaled {
            words += ", each message completed before the answer is looked for";
        }
        if plan.is_one_address {
            words += ", both sides on one address";
        }
        words
    }

    /// Whether the latency is that of both ways: the answer to a READ or atomic is the operation.
    pub fn is_round_trip(self) -> bool {
        matches!(self, Op::Read | Op::Atomic)
    }
}

/// All that both sides have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub op: Op,
    pub size: usize,
    pub mtu: u32,
    pub is_latency: bool,
    pub is_event: bool,
    /// Each message of a ping-pong is completed before the answer is looked for.
    pub is_signaled: bool,
    pub is_one_address: bool,
    pub road: Option<Needs>,
}

/// What a long road needs of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Bytes that fill it.
    pub bytes: usize,
    /// The local ACK timeout, as attributes have it.
    pub timeout: u8,
}

/// Samples of ours and of the floor, each.
pub const PAIRS: usize = 15;

/// How long a sample lasts when neither a number of messages nor a time is given: long against a scheduler's time slice,
/// short against the seconds in which the speed of a shared machine changes.
pub const SAMPLE_TIME: Duration = Duration::from_millis(150);

/// Work requests under way at most: enough small messages that several trains of them are on the way at once.
const DEPTH_MAX: usize = 1024;

/// The same on a road, as far as queues reach: twice that many receives are posted.
const ROAD_DEPTH_MAX: usize = 8192;

/// Longest message that a latency test sends inline.
const INLINE_MAX: usize = 220;

/// Bytes under way at most: enough to keep both sides busy, little enough to stay in the cache's reach.
const BYTES_UNDER_WAY_MAX: usize = 8 << 20;

impl Plan {
    /// For a plan that came over the network, from anything that connects.
    pub fn check(&self) -> Result<(), CliError> {
        if (1..=SIZE_MAX).contains(&(self.size as u64)) {
            return Ok(());
        }
        let text = format!("a message cannot have {} bytes", self.size);
        Err(CliError::Failed(text))
    }

    /// Work requests under way at most; a multiple of [`Plan::list_len`].
    pub fn depth(&self) -> usize {
        let of = |bytes: usize, most| (bytes / self.size.max(1)).clamp(2, most);
        let usual = of(BYTES_UNDER_WAY_MAX, DEPTH_MAX);
        let fitting = self
            .road
            .map_or(usual, |road| usual.max(of(road.bytes, ROAD_DEPTH_MAX)));
        fitting - fitting % self.list_len()
    }

    /// Work requests in one posted list, the last of which is signaled. Long lists are what makes small
    /// messages fast; large ones gain nothing and are taken singly.
    pub fn list_len(&self) -> usize {
        match self.size {
            0..=256 => 128,
            257..=1024 => 32,
            1025..=16384 => 8,
            _ => 1,
        }
    }
}

impl Plan {
    /// Whether messages travel inline: copied by the post, as the usual latency tests do with small ones.
    pub fn is_inline(&self) -> bool {
        self.is_latency && matches!(self.op, Op::Send | Op::Write) && self.size <= INLINE_MAX
    }

    /// Whether only the target's memory and engine take part, so that it has to be told when a run is over.
    pub fn is_target_passive(&self) -> bool {
        match self.op {
            Op::Send => false,
            Op::Write => !self.is_latency,
            Op::Read | Op::Atomic => true,
        }
    }

    /// Bytes of extended headers in the first data packet of a message: RETH in a WRITE, AETH in a READ response,
    /// AtomicETH in an atomic.
    pub fn first_header_extra(&self) -> usize {
        match self.op {
            Op::Send => 0,
            Op::Write => 16,
            Op::Read => 4,
            Op::Atomic => 28,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_two_lists_are_under_way() {
        for size in [1, 8, 256, 257, 1024, 1025, 16384, 16385, 1 << 20, 1 << 26] {
            let plan = Plan {
                op: Op::Write,
                size,
                mtu: 4096,
                is_latency: false,
                is_event: false,
                is_signaled: false,
                is_one_address: false,
                road: None,
            };
            assert!(plan.depth() >= 2 * plan.list_len(), "{plan:?}");
            assert_eq!(plan.depth() % plan.list_len(), 0, "{plan:?}");
            assert!(plan.check().is_ok(), "{plan:?}");
            for size in [0, (64 << 20) + 1, usize::MAX] {
                assert!(Plan { size, ..plan }.check().is_err(), "{size}");
            }
        }
    }
}
