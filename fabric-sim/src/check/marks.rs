//! Marks: rare things that a set of runs should have seen at least sometimes. A set that never saw a NAK says
//! nothing about NAKs.

use core::fmt;

use strum::VariantArray;

use crate::Sim;
use crate::fabric::DropReason;

/// A rare thing.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    Hash,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum Mark {
    /// A NAK for a missing packet was received.
    Nak,
    /// A NAK for a missing receive was received.
    Rnr,
    /// A response showed that an earlier one was lost.
    ImpliedNak,
    /// No answer came in time.
    Timeout,
    /// Packets were sent again.
    Retransmit,
    /// A request came twice.
    Duplicate,
    /// An atomic came twice: its first result was sent again.
    AtomicReplay,
    /// PSNs went over the end of their 24 bits.
    PsnWrap,
    /// A requester gave up after its retries.
    RetryExhausted,
    /// A requester gave up waiting for a receive.
    RnrExhausted,
    /// The ICRC found damage.
    IcrcDrop,
    /// A packet was marked by a switch.
    Marked,
    /// A congestion notification was received.
    Cnp,
    /// A pause frame stopped a port.
    Pause,
    /// A frame was lost to a fault.
    Loss,
    /// A frame found no room.
    BufferDrop,
    /// A cable was down when a frame left.
    LinkDown,
    /// A host crashed.
    Crash,
    /// The watchdog acted.
    Watchdog,
    /// Queues waited for each other in a circle, if only for a moment.
    CyclicDependency,
    /// The circle of waiting queues did not dissolve.
    Deadlock,
}

impl Mark {
    /// All, in order.
    pub const ALL: &'static [Mark] = Mark::VARIANTS;

    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a counter of a transport shows.
const OF_COUNTERS: [(&str, Mark); 10] = [
    ("rcvd_seq_err", Mark::Nak),
    ("rcvd_rnr_err", Mark::Rnr),
    ("implied_nak", Mark::ImpliedNak),
    ("ack_timeout", Mark::Timeout),
    ("retransmitted_pkts", Mark::Retransmit),
    ("duplicate_request", Mark::Duplicate),
    ("retry_exceeded_err", Mark::RetryExhausted),
    ("retry_rnr_exceeded_err", Mark::RnrExhausted),
    ("drop_icrc", Mark::IcrcDrop),
    ("rcvd_cnp", Mark::Cnp),
];

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

    /// Adds so many of one.
    pub fn add(&mut self, mark: Mark, count: u64) {
        self.0[mark as usize] += count;
    }

    /// Adds what a transport has counted, by the names of its counters.
    pub(crate) fn add_counters<'a>(&mut self, counters: impl Iterator<Item = (&'a str, u64)>) {
        for (name, count) in counters {
            if let Some((_, mark)) = OF_COUNTERS.iter().find(|(counter, _)| *counter == name) {
                self.add(*mark, count);
            }
        }
    }
}

impl fmt::Display for Marks {
    /// Those that were seen: `nak 3, timeout 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self
            .seen()
            .map(|(mark, count)| format!("{} {count}", mark.name()));
        f.write_str(&seen.collect::<Vec<_>>().join(", "))
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
            marks.add_counters(stats.iter());
        }
        for transport in self.drivers.transports.iter().flatten() {
            marks.add(Mark::AtomicReplay, transport.cqs.model.atomic_replays);
            marks.add(Mark::PsnWrap, transport.cqs.model.psn_wraps());
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
            (Mark::LinkDown, DropReason::NoCarrier),
        ] {
            marks.add(mark, fabric.drops().of(reason));
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_marks_are_the_transport_s() {
        let stats = urxe_core::Stats::default();
        for (counter, mark) in OF_COUNTERS {
            let mut names = stats.iter().map(|(name, _)| name);
            assert!(names.any(|name| name == counter), "{counter} of {mark:?}");
        }
    }
}
