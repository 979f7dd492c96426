//! What the two sides tell each other over the control connection.

use serde::{Deserialize, Serialize};

/// Endpoints that fit one line of the control connection.
pub(super) const ENDPOINTS_A_LINE: usize = 200;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Create so many queue pairs; their peers' endpoints follow.
    Create { qps: usize },
    /// The next endpoints, in order.
    Endpoints(Vec<String>),
    /// Announces so many messages.
    Run { messages: u64 },
    /// The end.
    Bye,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The next endpoints, in order.
    Endpoints(Vec<String>),
    /// Ready for messages.
    Running,
    /// All messages have arrived.
    Done,
    /// The other side failed.
    Fault { text: String },
}
