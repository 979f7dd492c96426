//! What sends and receives: plain flows of frames, and hosts that run the real transport.

mod flow;
mod sim;
mod wire;

pub use flow::{Arrivals, Flow, FlowId, FlowSpec};
pub use sim::{BuildError, Sim};
pub use wire::address_of;
pub(crate) use wire::{IP_OFFSET, patch_ipv4};
