//! A ring between processes: what both sides do, and what is done to its memory beside them. See
//! `provider/ring/src/fuzzing.rs`.

/// Input: how large the ring is, and a script.
pub fn target(data: &[u8]) {
    urxe_ring::fuzzing::script(data);
}
