//! Counters of ports and switches.

use strum::VariantArray;

use crate::engine::Span;
use crate::qos::PRIORITIES;

/// Why a frame went no further.
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
pub enum DropReason {
    /// The buffer of a switch was full for it.
    Buffer,
    /// The frame check sequence was wrong: a bit error.
    BitError,
    /// It was longer than the cable's MTU.
    TooLong,
    /// It passed too many switches.
    #[strum(serialize = "ttl")]
    TimeToLive,
    /// No way leads to its destination.
    NoRoute,
    /// The cable was down.
    LinkDown,
    /// It waited in a switch for a port that lost its carrier, or was to wait there.
    NoCarrier,
    /// The watchdog emptied its queue.
    Watchdog,
    /// A fault took it.
    Fault,
    /// It came to a host that it was not for.
    Stray,
    /// Its host had crashed.
    HostDown,
}

impl DropReason {
    /// All, in order.
    pub const ALL: &'static [DropReason] = DropReason::VARIANTS;

    /// True if the frame never came out of the cable.
    pub(crate) fn is_on_cable(self) -> bool {
        matches!(
            self,
            DropReason::BitError | DropReason::LinkDown | DropReason::Fault
        )
    }

    /// A word for it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// A longer explanation.
    pub fn explanation(self) -> &'static str {
        match self {
            DropReason::Buffer => "the buffer has no room for it",
            DropReason::BitError => "a bit error, found by the check sequence",
            DropReason::TooLong => "longer than the cable's MTU",
            DropReason::TimeToLive => "it came by too many switches",
            DropReason::NoRoute => "no way leads to its destination",
            DropReason::LinkDown => "the cable is down",
            DropReason::NoCarrier => "its port has no carrier",
            DropReason::Watchdog => "the watchdog empties a queue that is stuck",
            DropReason::Fault => "a fault on the cable took it",
            DropReason::Stray => "it is not for this host",
            DropReason::HostDown => "its host has crashed",
        }
    }
}

/// Dropped frames by reason, those of lossless classes apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops {
    lossless: [u64; DropReason::ALL.len()],
    lossy: [u64; DropReason::ALL.len()],
}

impl Drops {
    pub(crate) fn count(&mut self, reason: DropReason, is_lossless: bool) {
        let counts = if is_lossless {
            &mut self.lossless
        } else {
            &mut self.lossy
        };
        counts[reason as usize] += 1;
    }

    /// Adds those that another part of the network has counted.
    pub(crate) fn join(&mut self, other: &Drops) {
        for (counts, more) in [
            (&mut self.lossless, &other.lossless),
            (&mut self.lossy, &other.lossy),
        ] {
            for (count, more) in counts.iter_mut().zip(more) {
                *count += more;
            }
        }
    }

    /// The number of frames dropped for this reason, in any class.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.lossless[reason as usize] + self.lossy[reason as usize]
    }

    /// Frames of lossless classes that found no room in a switch: never, if the fabric is what it
    /// promises to be.
    pub fn lossless_overruns(&self) -> u64 {
        self.lossless[DropReason::Buffer as usize]
    }

    /// All.
    pub fn total(&self) -> u64 {
        self.lossless.iter().chain(&self.lossy).sum()
    }
}

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Frames sent, by class; without pause frames and credits.
    pub sent_frames: [u64; PRIORITIES],
    /// Bytes sent, by class.
    pub sent_bytes: [u64; PRIORITIES],
    /// Frames that arrived.
    pub received_frames: u64,
    /// Bytes that arrived, without pause frames and credits.
    pub received_bytes: u64,
    /// Frames that ended here.
    pub dropped: u64,
    /// Bytes of frames that ended in the node, not on its cable; without pause frames and credits.
    pub dropped_bytes: u64,
    /// Frames that were marked on their way into this port's queues.
    pub marked: u64,
    /// Pause frames sent that stop a neighbour.
    pub pauses_sent: u64,
    /// Pause frames sent that let a neighbour go on.
    pub resumes_sent: u64,
    /// Pause frames that arrived.
    pub pauses_received: u64,
    /// Credit updates sent.
    pub credits_sent: u64,
    /// How long each class was paused, up to its last release.
    pub paused: [Span; PRIORITIES],
    /// Longest queue of each class in bytes.
    pub queue_max: [u64; PRIORITIES],
    /// Times that the watchdog found a queue stuck.
    pub storms: u64,
}
