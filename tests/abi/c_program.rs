//! Checks in C, by the distribution's header (`verbs.c`).

use std::path::Path;
use std::process::Command;

use crate::harness::{addresses, program, run};

/// Compiles the program, and runs one of its checks.
fn check(name: &str) {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        println!("skipped: infiniband/verbs.h is missing (apt-get install libibverbs-dev)");
        return;
    }
    let folder = std::env::temp_dir().join(format!("urxe-verbs-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let binary = folder.join("verbs");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/verbs.c");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&binary)
        .arg(source)
        .args(["-libverbs", "-ldl"])
        .output();
    let Ok(compiled) = compiled else {
        println!("skipped: there is no C compiler");
        return;
    };
    let errors = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success(), "{errors}");
    let (device, _) = addresses();
    let binary = binary.to_str().expect("a path in UTF-8");
    let mut command = program(binary, "gcc", device).expect("it was just made");
    command.arg(name);
    let ran = run(command);
    std::fs::remove_dir_all(&folder).expect("it is ours");
    assert_eq!(ran.code, Some(0), "{}", ran.text);
}

#[test]
fn a_batch_is_posted_whole_or_not_at_all() {
    check("batch");
}

#[test]
fn flush_and_atomic_write_through_the_extended_functions() {
    check("placement");
}

#[test]
fn descriptors_are_readable_for_each_event_once() {
    check("events");
}

#[test]
fn functions_of_newer_releases() {
    check("newer");
}

#[test]
fn imported_handles_are_of_the_same_objects() {
    check("import");
}
