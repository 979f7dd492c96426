//! The middle of long messages: packets in a row that differ in their PSNs alone.
//!
//! A MIDDLE packet is a path MTU of payload and nothing else, and what is decided for one of a row is decided for all: which QP it is for, where it
//! goes, that it may. So a row is taken at once, and is sent at once behind a packet of its message that went the usual way. Whatever is out
//! of the ordinary about a packet ends the row before it, and the usual way (`requester.rs`, `respond.rs`, `responder.rs`,
//! `completer.rs`) takes it from there: a row does what these would do, or nothing.

mod packets;
mod receive;
mod send;

pub use packets::{MiddlePackets, RxBytes};
