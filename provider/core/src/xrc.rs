//! Extended reliable connection: one connection between two processes serves all shared
//! receive queues of the domain at its end.

/// Identity of an XRC domain, given by whoever owns the domains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct XrcdId(pub u32);
