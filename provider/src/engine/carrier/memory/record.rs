//! Kinds of records.

/// The way that packets with a tag take ([`PATH_LEN`] bytes).
pub(super) const PATH: u8 = 1;
/// A packet, or a train of some, without an ICRC.
pub(super) const PACKETS: u8 = 2;
/// A packet, or a train of some, with their ICRCs.
pub(super) const SEALED: u8 = 3;

/// Source, destination, source port, traffic class.
pub(super) const PATH_LEN: usize = 16 + 16 + 2 + 1;
