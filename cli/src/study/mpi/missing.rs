//! What a part of the study lacks.

/// What is not installed or not allowed, and how to get it.
#[derive(Debug)]
pub(super) struct Missing(pub(super) String);
