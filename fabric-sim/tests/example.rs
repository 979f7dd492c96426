//! The crate that users copy, `examples/simulated-program`: its program, on simulated hosts and over sockets, and its manifest.

extern crate self as simulated_program;

#[path = "../../examples/simulated-program/src/lib.rs"]
mod program;
pub use program::{LIMIT, add, serve};

#[path = "../../examples/simulated-program/tests/simulated.rs"]
mod simulated;

use std::path::Path;
use std::process::Command;

use fabric_sim::program::spawn;

#[test]
fn the_program_runs_over_sockets() {
    let pid = std::process::id();
    let at = format!("127.{}.{}.1:7471", 30 + pid / 250 % 50, pid % 250);
    let at = at.parse().expect("an address");
    let server = spawn(move || serve(at, 2));
    let client = |times| spawn(move || add(at, times));
    for client in [30, 40].map(client) {
        client.join().expect("adds");
    }
    let sum = server.join().expect("serves");
    assert_eq!(sum, 70);
}

/// Cargo resolves it, outside of the workspace and without a network, by the versions that this tree is built with.
#[test]
fn the_manifest_stands_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let copy = std::env::temp_dir().join(format!("urxe-example-{}", std::process::id()));
    let from = root.join("examples/simulated-program");
    for file in [
        "Cargo.toml",
        "src/lib.rs",
        "src/main.rs",
        "tests/simulated.rs",
    ] {
        let to = copy.join(file);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        let text = std::fs::read_to_string(from.join(file)).expect("it is there");
        let tree = root.canonicalize().expect("it is there");
        let text = text.replace("../..", tree.to_str().expect("a name"));
        std::fs::write(to, text).expect("is written");
    }
    std::fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock")).expect("is copied");
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = [
        "metadata",
        "--offline",
        "--format-version",
        "1",
        "--filter-platform",
        &platform,
    ];
    let output = Command::new(env!("CARGO"))
        .args(metadata)
        .current_dir(&copy)
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let metadata: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    for name in ["simulated-program", "urxe", "urxe-fabric-sim"] {
        assert!(packages.iter().any(|p| p["name"] == name), "{name}");
    }
    std::fs::remove_dir_all(&copy).expect("is removed");
}
