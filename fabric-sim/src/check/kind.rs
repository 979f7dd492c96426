//! The checks by name.

use strum::VariantArray;

/// Something that must hold.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    Hash,
    serde::Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Check {
    /// No switch or adapter drops a frame of a lossless class for want of room.
    Lossless,
    /// What was sent arrived, was dropped, or is there; each node sent on or holds the bytes that it took in.
    Books,
    /// Each message is executed once, in the order of its QP, as it was posted; memory is what it says.
    Delivery,
    /// Each atomic is executed once, and its result is what was there.
    Atomics,
    /// Each work request has one completion, in order, and not before its data is there.
    Completions,
    /// No more lies in a buffer than it promised room for.
    Credits,
    /// No queues wait for each other without end.
    Deadlock,
    /// Requests come to an end in bounded time when all faults are over.
    Progress,
    /// Of two QPs of a host that both can send, each gets its part.
    Fairness,
}

impl Check {
    /// All, in order.
    pub const ALL: &'static [Check] = Check::VARIANTS;

    /// Its name in scenarios and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
