//! A switched, lossless fabric in virtual time, which drives the real RDMA transport.
//!
//! One seed gives one run, event by event: hosts hold the transport of `urxe-core`, the same code
//! that runs over real sockets; their packets travel as real RoCEv2 frames through switches with
//! shared buffers, priority flow control and ECN. [SIMULATION.md](https://github.com/urxe/urxe/blob/main/docs/SIMULATION.md) is the manual.
//!
//! # Where things are
//!
//! | module | what |
//! |---|---|
//! | [`engine`] | time, the queue of events, random streams, the hash of a run |
//! | [`topology`], [`link`] | what is connected to what, by which cable, and the ways through it |
//! | [`frame`] | frames and their bytes, in slabs |
//! | [`qos`] | classes, flow control, shares |
//! | [`switch`] | buffer, thresholds, headroom, marking, watchdog: settings and books |
//! | [`fabric`] | the network that moves frames: ports, pause, credits, deadlocks |
//! | [`fault`] | what goes wrong: loss, damage, delay, cables and hosts that fail |
//! | [`check`] | what must hold in every run, and what a set of runs must have seen |
//! | [`host`] | what sends and receives: plain flows, and the real transport |
//! | [`workload`] | collectives, random arrivals, matrices and traces, over the real transport |
//! | [`congestion`] | congestion control from papers, beside the transport's own |
//! | [`observe`] | captures, tables and pages of a run |
//! | `program` | programs that were written against `urxe`, on simulated hosts (feature `programs`, on by default) |
//! | [`scenario`] | simulations as TOML files |
//! | [`shrink`] | scenarios that fail, made small |
//! | [`experiments`] | known outcomes, and whether they come |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod check;
pub mod congestion;
pub mod engine;
mod envelope;
pub mod experiments;
pub mod fabric;
pub mod fault;
mod flow;
pub mod frame;
pub mod host;
pub mod link;
pub mod observe;
#[cfg(feature = "programs")]
pub mod program;
pub mod qos;
pub mod scenario;
pub mod shrink;
pub mod switch;
pub mod topology;
pub mod workload;

pub use engine::{Rate, Span, Time};
pub use fabric::{Fabric, FabricConfig, Mode};
pub use fault::Fault;
pub use host::Sim;
pub use link::Link;
pub use qos::{FlowControl, Qos};
pub use switch::SwitchConfig;
pub use topology::{HostId, Topology};
#[cfg(feature = "programs")]
pub use urxe_fabric_sim_macros::test;
