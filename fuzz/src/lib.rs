//! The bodies of the fuzz targets, as plain functions: libFuzzer calls them from
//! `fuzz_targets/`, and `tests/replay.rs` runs the committed corpora through them on
//! stable Rust.
//!
//! To add a target: a module here with `pub fn target(data: &[u8])`, a line in
//! [`TARGETS`], a file in `fuzz_targets/` and a `[[bin]]` in Cargo.toml, and a few inputs
//! in `corpus/<name>/`.

#![forbid(unsafe_code)]

pub mod calls;
pub mod cm;
pub mod cm_agent;
pub mod decode;
pub mod fault_spec;
pub mod frame;
pub mod icrc;
mod lan;
pub mod parse;
pub mod responder;
pub mod ring;
pub mod roundtrip;
pub mod rsocket;
pub mod rsocket_wire;
pub mod sack;
pub mod scenario;
pub mod seal;
pub mod shared;

// The core's own test harness, from where it lives.
#[path = "../../provider/core/tests/support/claims.rs"]
mod claims;
#[path = "../../provider/core/tests/support/cm_hostile.rs"]
mod cm_hostile;
#[path = "../../provider/core/tests/support/hostile.rs"]
mod hostile;
#[path = "../../provider/core/tests/support/mod.rs"]
mod support;

/// A target's body. It panics on a finding.
pub type Target = fn(&[u8]);

/// Every target by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("parse", parse::target),
    ("roundtrip", roundtrip::target),
    ("icrc", icrc::target),
    ("cm", cm::target),
    ("cm_agent", cm_agent::target),
    ("frame", frame::target),
    ("responder", responder::target),
    ("sack", sack::target),
    ("fault_spec", fault_spec::target),
    ("decode", decode::target),
    ("scenario", scenario::target),
    ("rsocket_wire", rsocket_wire::target),
    ("rsocket", rsocket::target),
    ("calls", calls::target),
    ("registry", shared::registry),
    ("ports", shared::ports),
    ("farewells", shared::farewells),
    ("hand_over", shared::hand_over),
    ("ring", ring::target),
    ("seal", seal::target),
];
