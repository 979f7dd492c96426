//! The communication manager on a virtual wire that loses, repeats and reorders: both sides
//! agree on what became of a connection, and nothing is left.

mod connections;
mod datagrams;
mod flood;
mod handshake;
mod many;
mod numbers;
mod random;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
mod wire;
