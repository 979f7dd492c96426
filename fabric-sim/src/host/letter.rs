//! What a part of a simulation has for another.

use crate::fabric::FabricLetter;
use crate::host::job::Note;

/// What has come up in one window for the nodes of another part.
#[derive(Debug)]
pub(crate) struct Letter<T> {
    pub(crate) fabric: FabricLetter,
    /// For the checks: messages of its hosts that were executed.
    pub(crate) told: Vec<T>,
    /// For its jobs.
    pub(crate) notes: Vec<Note>,
}

impl<T> Default for Letter<T> {
    fn default() -> Letter<T> {
        Letter {
            fabric: FabricLetter::default(),
            told: Vec::new(),
            notes: Vec::new(),
        }
    }
}
