//! Crates of other people on the library: a small program for each, in a workspace of its own (`tests/abi/crates/`).
//!
//! They generate bindings by bindgen and have rdma-core's headers made by cmake, from a copy that they bring: so they
//! need libclang and cmake, and the first build takes minutes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{addresses, library, program, run};

fn check(name: &str) {
    let Some(binary) = build(name) else { return };
    let (device, _) = addresses();
    let binary = binary.to_str().expect("a path in UTF-8");
    let ran = run(program(binary, name, device).expect("it was just built"));
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert_eq!(ran.text, "urxe0\nreceived\n");
}

/// `None`, with the reason printed, where it cannot be built: the reason is never in this repository's code, but in the
/// machine or the network.
fn build(name: &str) -> Option<PathBuf> {
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !has("cmake") || !clang_is_there() {
        println!(
            "skipped: {name}: cmake or libclang is missing (apt-get install cmake libclang-dev)"
        );
        return None;
    }
    // Beside what cargo builds for this workspace: the next run finds it.
    let target = library()
        .ancestors()
        .nth(2)
        .expect("TARGET/PROFILE/urxe-lib")
        .join("crates");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("abi/crates")
        .join(name)
        .join("Cargo.toml");
    let built = urxe_tests::cargo()
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target)
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&built.stderr);
    if built.status.success() {
        return Some(target.join("debug").join(format!("urxe-try-{name}")));
    }
    // What is wrong with the program itself is a failure.
    let is_ours = errors.contains(&format!("could not compile `urxe-try-{name}`"));
    assert!(!is_ours, "{errors}");
    let tail: Vec<&str> = errors.lines().rev().take(5).collect();
    println!("skipped: {name} cannot be built here: {tail:?}");
    None
}

/// Where distributions have it; what is elsewhere, `LIBCLANG_PATH` names.
fn clang_is_there() -> bool {
    const SEARCH: &str =
        "ls /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* 2>/dev/null";
    let found = Command::new("sh").args(["-c", SEARCH]).output();
    std::env::var_os("LIBCLANG_PATH").is_some() || found.is_ok_and(|found| !found.stdout.is_empty())
}

#[test]
fn the_crate_ibverbs() {
    check("ibverbs");
}

#[test]
fn the_crate_sideway() {
    check("sideway");
}
