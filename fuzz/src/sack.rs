//! A hostile peer against a live QP that takes its word for which packets arrived. See
//! `provider/core/tests/support/hostile.rs`, and `claims.rs` beside it.

use crate::{claims, hostile};

/// Runs the bytes as a script; panics if the QP does what it must never do.
pub fn target(data: &[u8]) {
    hostile::run_selective(data);
    claims::run(data);
}
