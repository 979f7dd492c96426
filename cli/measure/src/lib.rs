//! What the command `urxe` times: loops of verbs between two processes, and the [`floor`]s beside them.
//!
//! It is for that command alone, and changes with it. The command reads arguments, starts the processes, lets them talk to each
//! other and prints reports: none of that needs to be fast. What is here runs between two looks at the clock, and is optimised
//! in every profile that measures.

#![forbid(unsafe_code)]

pub mod bench;
pub mod error;
pub mod fairness;
pub mod fleet;
pub mod floor;
pub mod pattern;
pub mod pin;
pub mod pingpong;
pub mod samples;
pub mod shards;
pub mod station;
pub mod wire;
