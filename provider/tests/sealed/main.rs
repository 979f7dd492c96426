//! Packets in envelopes: what they protect, and what both ends are told when they do not fit together. Over sockets always, as
//! nothing is sealed that goes through memory.

#[path = "../common/capture.rs"]
mod capture;
#[path = "../common/mod.rs"]
mod common;

mod attacks;
mod ends;
mod files;
mod keys;
mod pairs;
mod sniffer;
