//! The party that can mend a fault.

use core::fmt;

/// The side that has to do something about an [`Error`](crate::Error).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Blame {
    /// The program: it asked for something that cannot be.
    Caller,
    /// The other end of the connection, or the path to it.
    Peer,
    /// The operating system, or the machine's administrator.
    System,
    /// A limit: it is reached, and something must be freed or raised.
    Limit,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Blame::Caller => "caller",
            Blame::Peer => "peer",
            Blame::System => "system",
            Blame::Limit => "limit",
        })
    }
}
