//! What of the machine, and of how the program was started, the engine is told by.

pub(crate) mod environment;
pub(crate) mod probe;
pub(crate) mod random;
