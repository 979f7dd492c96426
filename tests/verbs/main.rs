//! The verbs: one file a family, positive and negative tests beside each other, each
//! body written once and run on every arm that exists. docs/VERBS.md says which rule of
//! the standard each test is for.

mod arm;
#[path = "../../provider/tests/common/mod.rs"]
mod common;
#[path = "../../provider/core/tests/support/mod.rs"]
mod support;
mod verbs;

mod atomic;
mod credits;
mod flags;
mod inline;
mod key_access;
mod local_faults;
mod read;
mod rnr;
mod segmentation;
mod send_recv;
mod states;
mod uc;
mod write;
