//! A discrete-event engine, which knows nothing of networks: time, a queue of
//! events in a total order, random numbers in streams, and a hash of what happened.

mod queue;
mod rng;
mod time;
mod trace;
mod windows;

pub use queue::EventQueue;
pub use rng::{Entity, Rng};
pub(crate) use time::quantity;
pub use time::{Rate, Span, Time};
pub use trace::TraceHash;
pub use urxe_core::mix::mix64;
pub use windows::Work;
pub(crate) use windows::{Part, in_windows};
