//! Strangers and peers against a communication manager. See
//! `provider/core/tests/support/cm_hostile.rs`.

use crate::cm_hostile;

/// Runs the bytes as a script; panics if the agent does what it must never do.
pub fn target(data: &[u8]) {
    cm_hostile::run(data);
}
