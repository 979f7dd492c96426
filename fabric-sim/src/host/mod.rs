//! Hosts: plain flows of frames, and hosts that run the real transport.
//!
//! [`Sim`] is a fabric with hosts. [`Sim::add_flow`] makes frames without a transport, for experiments
//! about the network alone; [`Sim::add_stream`] has two transports talk; [`Sim::with_verbs`] and
//! [`Program`] are for posting work requests directly.

mod drive;
mod flow;
mod memory;
mod sim;
mod stream;
mod transport;
mod wire;

pub use drive::StreamError;
pub use flow::{Arrivals, Flow, FlowId, FlowSpec};
pub use memory::{Contents, HostMemory};
pub use sim::{BuildError, Sim};
pub use stream::{Stream, StreamId, StreamOp, StreamSpec};
pub use transport::{ConnectOptions, Program, QpHandle, Transport, TransportConfig, Verbs};
pub use wire::address_of;
#[cfg(feature = "programs")]
pub(crate) use wire::decode;
pub(crate) use wire::{FLOW_HEADERS_LEN, IP_OFFSET, flow_hash, flow_headers, patch_ipv4};
