//! Runs every committed input, and simple changes of it, through its target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use urxe_fuzz::{TARGETS, Target};

/// Targets with long runs.
const SLOW: [&str; 3] = ["scenario", "rsocket", "calls"];

/// What is replayed, printed in case the process ends: no panic leaves a function with C linkage.
static CURRENT: Mutex<String> = Mutex::new(String::new());

fn run(name: &str, file: &str, change: &str, target: Target, data: &[u8]) {
    *CURRENT.lock().expect("it is not held for long") = format!("{name}: {file} {change}");
    let outcome = catch_unwind(AssertUnwindSafe(|| target(data)));
    assert!(
        outcome.is_ok(),
        "{name}: {file} {change} is a finding: {data:02x?}"
    );
}

#[test]
fn corpora() {
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        let current = CURRENT.lock().map(|text| text.clone());
        eprintln!("replaying {}", current.unwrap_or_default());
        before(panic);
    }));
    for &(name, target) in TARGETS {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(name);
        let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let (mut inputs, start) = (0, Instant::now());
        for entry in entries {
            let path = entry.expect("readable").path();
            let data = fs::read(&path).expect("readable");
            let file = path.display().to_string();
            run(name, &file, "as it is", target, &data);
            for len in 0..data.len().min(128) {
                run(name, &file, &format!("cut to {len}"), target, &data[..len]);
            }
            // Of one that makes contexts or runs simulations, one bit of each byte: a run takes milliseconds.
            let step = if SLOW.contains(&name) { 9 } else { 1 };
            for bit in (0..data.len().min(128) * 8).step_by(step) {
                let mut changed = data.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                run(
                    name,
                    &file,
                    &format!("with bit {bit} flipped"),
                    target,
                    &changed,
                );
            }
            inputs += 1;
        }
        println!(
            "{name}: {inputs} inputs in {} ms",
            start.elapsed().as_millis()
        );
        assert!(inputs > 0, "{name} has no corpus");
    }
}

/// Each target has its entry point, and Cargo.toml knows it.
#[test]
fn targets_are_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("readable");
    for (name, _) in TARGETS {
        assert!(
            root.join(format!("fuzz_targets/{name}.rs")).is_file(),
            "{name}"
        );
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
    let files = fs::read_dir(root.join("fuzz_targets"))
        .expect("readable")
        .count();
    assert_eq!(files, TARGETS.len());
}
