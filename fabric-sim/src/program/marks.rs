//! Marks that at least one run of a set must reach.

use std::collections::BTreeMap;

use crate::program::threads::Shared;

/// By name: whether it was seen.
#[derive(Debug, Default)]
pub(crate) struct Marks(Shared<BTreeMap<String, bool>>);

impl Marks {
    pub(crate) fn note(&self, what: &str, seen: bool) {
        self.0
            .with(|marks| *marks.entry(what.to_owned()).or_default() |= seen);
    }

    /// The marks that were never seen.
    pub(crate) fn missed(&self) -> Vec<String> {
        self.0.with(|marks| {
            let missed = marks.iter().filter(|(_, seen)| !**seen);
            missed.map(|(what, _)| what.clone()).collect()
        })
    }
}
