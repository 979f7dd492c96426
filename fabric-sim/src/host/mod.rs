//! Hosts: plain flows of frames, and hosts that run the real transport.
//!
//! [`Sim`] is a fabric with hosts. [`Sim::add_flow`] makes frames without a transport, for experiments
//! about the network alone; [`Sim::add_stream`] has two transports talk; [`Sim::add_job`] runs
//! a whole workload between many; [`Sim::with_verbs`] and [`Program`] are for posting work requests directly.

mod connect;
mod drive;
mod grant;
mod job;
mod job_parts;
mod jobs;
mod lane;
mod letter;
mod memory;
mod parts;
mod road;
mod sim;
mod steer;
mod stream;
mod timer;
mod transport;

pub use crate::envelope::address_of;
pub use crate::flow::{Arrivals, Flow, FlowId, FlowSpec};
pub use connect::{ConnectOptions, QpHandle};
pub use drive::StreamError;
pub use job::{Job, JobId, JobSpec, Message};
pub(crate) use memory::Write;
pub use memory::{Contents, HostMemory};
pub use sim::{BuildError, Sim};
pub use stream::{Stream, StreamId, StreamOp, StreamSpec};
#[cfg(feature = "programs")]
pub(crate) use timer::TimerFor;
pub use transport::{Program, Transport, TransportConfig, Verbs};
