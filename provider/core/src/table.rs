//! The place of a QP, by which everything beside the wire names it.

/// Place of a QP in its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct QpIndex(pub u32);
