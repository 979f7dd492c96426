//! Tests that see the whole of urxe, and the examples of the documents.

#![forbid(unsafe_code)]

/// The README, so that its example is compiled and run.
#[doc = include_str!("../../README.md")]
#[cfg(doctest)]
pub struct Readme;

/// cargo, as it is called from a shell: without what cargo tells the tests that it runs. Build scripts of other crates depend on those
/// variables, and all that depends on them would be built again, here and by the cargo that runs the tests.
pub fn cargo() -> std::process::Command {
    let path = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(path);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}
