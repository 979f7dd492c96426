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
//! # Where things are
//!
//! | file | what |
//! |---|---|
//! | `shard.rs` | the entry points; checks of identity before anything changes |
//! | `icrc.rs`, `qp/ident.rs`, `qp/source_ident.rs` | is the ICRC right, under an Identification that the sender is likely to use |
//! | `qp/requester.rs`, `qp/completer.rs`, `qp/retry.rs`, `qp/credit.rs`, `qp/window.rs` | sending requests, taking responses, recovery |
//! | `qp/responder.rs`, `qp/execute.rs`, `qp/respond.rs`, `qp/replay.rs` | taking requests, sending responses |
//! | `ack_policy.rs`, `qp/answer.rs`, `qp/ack.rs`, `qp/pair.rs` | when an ACK leaves |
//! | `qp/unreliable.rs`, `qp/uc.rs`, `qp/ud.rs`, `ah.rs`, `multicast.rs` | the services that acknowledge nothing |
//! | `qp/state.rs`, `qp/attr.rs`, `qp/modify.rs` | states, attributes, transitions |
//! | `qp/placement.rs`, `flush.rs` | ATOMIC WRITE and FLUSH, both sides |
//! | `srq.rs`, `xrc.rs` | shared receive queues and their domains |
//! | `congestion/`, `qp/controlled.rs` | how fast a QP sends: rates, windows, notifications |
//! | `mr/`, `memory.rs` | keys and checks; the only door to memory |
//! | `work.rs`, `cq.rs`, `event.rs`, `error.rs`, `wc_status.rs` | work requests, completions, events, reasons |
//! | `detail.rs`, `qp/diagnose.rs` | failures in words: what was expected, what was found |
//! | `turns.rs`, `poll_transmit.rs` | which QP sends next, and how much |
//! | `destinations.rs` | what all QPs may have under way to one address |
//! | `path.rs`, `table.rs`, `permute.rs`, `mix.rs`, `timer.rs`, `transmit.rs`, `stats.rs` | tables, timers, batches, counters |
//! | `cm/` | QP 1: the communication manager |
//! | `marks.rs` | places that the seeded tests must reach |

#![forbid(unsafe_code)]
#![deny(missing_docs)]

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
mod icrc;
pub mod memory;
pub mod mix;
pub mod mr;
pub mod multicast;
mod path;
mod permute;
mod poll_transmit;
pub mod qp;
pub mod qpn_table;
mod shard;
mod shrink;
pub mod srq;
mod stats;
pub mod table;
mod time;
mod timer;
pub mod transmit;
mod turns;
mod wc_status;
pub mod work;
pub mod xrc;

pub use ack_policy::{AckMode, Driver};
pub use config::{QpLimits, ShardConfig};
pub use context::Env;
pub use create_error::CreateQpError;
pub use detail::ErrorDetail;
pub use path::RxPath;
pub use qp::QpInit;
pub use qp::ack::ANSWER_NS;
pub use qp::pair::ends_pair;
pub use qp::report::{QpReport, RequesterCounts, ResponderCounts};
pub use shard::{Foreign, Handled, Shard};
pub use shrink::Places;
pub use stats::Stats;
pub use time::Time;
pub use transmit::SourcePorts;
pub use turns::Sending;
pub use wc_status::WcStatus;
