//! What the two sides tell each other over the control connection.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Create so many queue pairs; their peers' endpoints follow.
    Create { qps: usize },
    /// Announces so many messages.
    Run { messages: u64 },
    /// The end.
    Bye,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Ready for messages.
    Running,
    /// All messages have arrived.
    Done,
}
