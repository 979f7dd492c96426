//! Marks: rare things that a set of runs should have seen at least sometimes. A set that never saw a NAK says
//! nothing about NAKs.

use core::fmt;

use urxe_core::Stats;
use urxe_core::error::DropReason as PacketDrop;

use crate::Sim;
use crate::fabric::DropReason;

macro_rules! marks {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// A rare thing.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        #[non_exhaustive]
        pub enum Mark { $($(#[doc = $doc])* $name,)* }

        impl Mark {
            /// All, in order.
            pub const ALL: &'static [Mark] = &[$(Mark::$name,)*];

            /// Its name in scenarios.
            pub fn name(self) -> &'static str {
                match self { $(Mark::$name => $text,)* }
            }
        }
    };
}

marks! {
    /// A NAK for a missing packet was received.
    Nak = "nak",
    /// A NAK for a missing receive was received.
    Rnr = "rnr",
    /// A response showed that an earlier one was lost.
    ImpliedNak = "implied-nak",
    /// No answer came in time.
    Timeout = "timeout",
    /// Packets were sent again.
    Retransmit = "retransmit",
    /// A request came twice.
    Duplicate = "duplicate",
    /// An atomic came twice: its first result was sent again.
    AtomicReplay = "atomic-replay",
    /// PSNs went over the end of their 24 bits.
    PsnWrap = "psn-wrap",
    /// A requester gave up after its retries.
    RetryExhausted = "retry-exhausted",
    /// A requester gave up waiting for a receive.
    RnrExhausted = "rnr-exhausted",
    /// The ICRC found damage.
    IcrcDrop = "icrc-drop",
    /// A packet was marked by a switch.
    Marked = "marked",
    /// A congestion notification was received.
    Cnp = "cnp",
    /// A pause frame stopped a port.
    Pause = "pause",
    /// A frame was lost to a fault.
    Loss = "loss",
    /// A frame found no room.
    BufferDrop = "buffer-drop",
    /// A cable was down when a frame left.
    LinkDown = "link-down",
    /// A host crashed.
    Crash = "crash",
    /// The watchdog acted.
    Watchdog = "watchdog",
    /// Queues waited for each other in a circle, if only for a moment.
    CyclicDependency = "cyclic-dependency",
    /// The circle of waiting queues did not dissolve.
    Deadlock = "deadlock",
}

/// How often each was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks([u64; Mark::ALL.len()]);

impl Default for Marks {
    fn default() -> Marks {
        Marks([0; Mark::ALL.len()])
    }
}

impl Marks {
    /// How often one was seen.
    pub fn of(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }

    /// Those that were seen, with how often.
    pub fn seen(&self) -> impl Iterator<Item = (Mark, u64)> + '_ {
        let all = Mark::ALL.iter().map(|&mark| (mark, self.of(mark)));
        all.filter(|(_, count)| *count > 0)
    }

    /// Adds those of another run.
    pub fn merge(&mut self, other: &Marks) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    pub(crate) fn add(&mut self, mark: Mark, count: u64) {
        self.0[mark as usize] += count;
    }

    pub(crate) fn add_transport(&mut self, stats: &Stats) {
        let icrc = stats.dropped_for(PacketDrop::Icrc);
        for (mark, count) in [
            (Mark::Nak, stats.rcvd_seq_err),
            (Mark::Rnr, stats.rcvd_rnr_err),
            (Mark::ImpliedNak, stats.implied_nak),
            (Mark::Timeout, stats.ack_timeout),
            (Mark::Retransmit, stats.retransmitted_pkts),
            (Mark::Duplicate, stats.duplicate_request),
            (Mark::RetryExhausted, stats.retry_exceeded_err),
            (Mark::RnrExhausted, stats.retry_rnr_exceeded_err),
            (Mark::IcrcDrop, icrc),
            (Mark::Cnp, stats.rcvd_cnp),
        ] {
            self.add(mark, count);
        }
    }
}

impl core::str::FromStr for Mark {
    type Err = UnknownMark;

    fn from_str(text: &str) -> Result<Mark, UnknownMark> {
        let found = Mark::ALL.iter().find(|mark| mark.name() == text);
        found.copied().ok_or_else(|| UnknownMark(text.to_owned()))
    }
}

/// A text that is the name of no mark.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct UnknownMark(String);

impl fmt::Display for UnknownMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<&str> = Mark::ALL.iter().map(|mark| mark.name()).collect();
        write!(f, "{:?} is none of {}", self.0, known.join(", "))
    }
}

impl Sim {
    /// What was seen so far.
    pub fn marks(&self) -> Marks {
        let mut marks = self.checks.marks;
        for (_, stats) in self.transport_stats() {
            marks.add_transport(stats);
        }
        for transport in self.drivers.transports.iter().flatten() {
            marks.add(Mark::AtomicReplay, transport.cqs.model.atomic_replays);
            marks.add(Mark::PsnWrap, transport.cqs.model.psn_wraps);
        }
        let fabric = &self.fabric;
        for port in fabric.topology().ports() {
            let stats = fabric.port_stats(port);
            marks.add(Mark::Marked, stats.marked);
            marks.add(Mark::Pause, stats.pauses_sent);
            marks.add(Mark::Watchdog, stats.storms);
        }
        for (mark, reason) in [
            (Mark::Loss, DropReason::Fault),
            (Mark::BufferDrop, DropReason::Buffer),
            (Mark::LinkDown, DropReason::LinkDown),
        ] {
            marks.add(mark, fabric.drops().of(reason));
        }
        marks
    }
}
