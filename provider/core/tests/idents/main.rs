//! IPv4 Identifications, in virtual time: those of genuine peers, however they number their
//! packets, and those of strangers that send from a peer's address to have its packets refused.

#[path = "../support/mod.rs"]
mod support;

mod direct;
mod genuine;
mod strangers;
mod wire;
