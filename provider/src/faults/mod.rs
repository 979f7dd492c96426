//! Faults on the wire, on purpose (`URXE_FAULTS`): packets that are lost, doubled,
//! overtaken, late or damaged on their way out, or too many for a rate, as on a network that does such things.
//!
//! docs/FAULTS.md describes them. Decisions follow from a seed ([`fate`]), and packets that
//! are held back wait in a queue of this module ([`path`]), which stands before whatever
//! carries packets (`engine/carrier/faulty.rs`): without faults none of this runs.

mod bottleneck;
mod fate;
mod path;
mod spec;

use core::fmt;

pub(crate) use path::{FaultCounts, FaultyPath};
pub use spec::{FaultSpec, FaultSpecError, Share};

/// The line that is printed in the end.
pub(crate) struct Summary<'a> {
    pub(crate) spec: &'a FaultSpec,
    pub(crate) counts: FaultCounts,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultCounts {
            packets,
            dropped,
            duplicated,
            reordered,
            corrupted,
            delayed,
            queue_full,
            overflowed,
        } = self.counts;
        write!(
            f,
            "faults {}: of {packets} packets {dropped} dropped, {duplicated} duplicated, {reordered} reordered, \
             {corrupted} corrupted, {delayed} delayed",
            self.spec
        )?;
        if self.spec.rate.is_some() {
            write!(f, ", {queue_full} lost because the queue was full")?;
        }
        if overflowed > 0 {
            write!(f, ", {overflowed} lost because too many were delayed")?;
        }
        Ok(())
    }
}
