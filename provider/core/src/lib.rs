//! The InfiniBand transport as a sans-IO state machine: reliable and unreliable
//! connections, and datagrams.
//!
//! A [`Shard`] holds queue pairs and everything that belongs to them. It has no
//! sockets, threads, locks, clock or randomness: packets, time, registered memory
//! and completion queues are arguments. The engine of the `urxe` crate drives it
//! over UDP sockets; tests and the simulator drive it in virtual time.
//!
//! # The run loop
//!
//! The owner of a shard does, in any order and as often as there is reason to:
//!
//! * [`Shard::handle_packet`] for every datagram that arrives;
//! * [`Shard::post_send`] and [`Shard::post_recv`] for the application;
//! * [`Shard::handle_timeout`] when [`Shard::next_timeout`] has come;
//!
//! and after any of these [`Shard::poll_transmit`] until it returns false, sending
//! the [`transmit::TxBatch`] each time. Extra calls do nothing and are cheap.
//!
//! [ARCHITECTURE.md](https://github.com/urxe/urxe/blob/main/docs/ARCHITECTURE.md) says where things are.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
mod bits;
#[macro_use]
mod tell;
#[macro_use]
pub mod marks;

mod ack_policy;
pub mod ah;
pub mod cm;
mod config;
pub mod congestion;
mod context;
pub mod cq;
mod create_error;
mod destinations;
mod detail;
pub mod error;
pub mod event;
pub mod flush;
mod handle_middle;
mod handle_packet;
mod icrc;
mod late;
pub mod loan;
pub mod memory;
pub mod mix;
pub mod mr;
pub mod multicast;
mod path;
mod permute;
mod poll_transmit;
pub mod qp;
pub mod qpn_table;
mod refusing;
mod shard;
mod shrink;
pub mod srq;
mod stats;
pub mod table;
mod time;
mod timer;
pub mod tm;
pub mod transmit;
mod turns;
mod wc_status;
pub mod work;
pub mod xrc;

pub use ack_policy::{AckMode, Driver};
pub use config::{QpLimits, Recovery, ShardConfig};
pub use context::Env;
pub use create_error::CreateQpError;
pub use detail::ErrorDetail;
pub use late::LateReceives;
pub use path::RxPath;
pub use qp::QpInit;
pub use qp::ack::ANSWER_NS;
pub use qp::last_ack::LAST_ACK_COPIES;
pub use qp::middle::{MiddlePackets, RxBytes};
pub use qp::pair::{ACK_LEN, ends_pair};
pub use qp::report::{PathReport, QpReport, RequesterCounts, ResponderCounts};
pub use shard::{Foreign, Handled, Shard};
pub use shrink::Places;
pub use stats::Stats;
pub use time::Time;
pub use transmit::SourcePorts;
pub use turns::Sending;
pub use wc_status::WcStatus;
