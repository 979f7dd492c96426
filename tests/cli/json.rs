//! What `--json` prints is JSON, and docs/JSON.md has every field of it.

use serde_json::Value;

use crate::harness::{project_file, run, urxe};
use crate::loopback_pair;

/// Commands with `--json`, and the place of each in the document.
const COMMANDS: [(&str, &[&str]); 10] = [
    ("pingpong", &["pingpong", "--iters", "20"]),
    ("bench OP", &["bench", "write", "-s", "8k", "-n", "50"]),
    (
        "bench OP --road",
        &["bench", "write", "-n", "20", "--road", "rate=1G,rtt=1ms"],
    ),
    (
        "bench fairness",
        &["bench", "fairness", "--qps", "1", "-s", "4k", "-n", "50"],
    ),
    ("devices", &["devices"]),
    ("stat", &["stat"]),
    ("explain", &["explain", "12"]),
    ("decode", &["decode", "wire/tests/captures/rc_send.pcap"]),
    (
        "sim run",
        &["sim", "run", "fabric-sim/scenarios/incast.toml"],
    ),
    ("sim experiments", &["sim", "experiments", "share"]),
];

#[test]
fn the_document_has_every_field() {
    let _pair = loopback_pair();
    for (command, args) in COMMANDS {
        let mut urxe = urxe();
        urxe.args(args).arg("--json").current_dir(project_file("."));
        documented(command, &run(&mut urxe).expect_success().stdout);
    }
}

/// What a command printed, each line as JSON. The document has a row with all of its fields.
pub(crate) fn documented(command: &str, printed: &str) -> Vec<Value> {
    let document = std::fs::read_to_string(project_file("docs/JSON.md")).expect("it is there");
    let row = format!("| `urxe {command}` |");
    let row = document.lines().find(|line| line.starts_with(&row));
    let row = row.unwrap_or_else(|| panic!("no row of urxe {command}"));
    assert!(!printed.is_empty(), "{command}");
    let values = printed.lines().map(|line| {
        let value: Value = serde_json::from_str(line).expect("each line is JSON");
        for field in fields(&value) {
            assert!(row.contains(&format!("`{field}`")), "{command}: no {field}");
        }
        value
    });
    values.collect()
}

/// The names of fields; not those of counters, ports and reasons, which are data.
fn fields(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.iter().flat_map(fields).collect(),
        Value::Object(object) => object
            .iter()
            .flat_map(|(name, value)| {
                let are_data = ["counters", "drops", "pauses"].contains(&name.as_str());
                let inner = if are_data { Vec::new() } else { fields(value) };
                [name.clone()].into_iter().chain(inner)
            })
            .collect(),
        _ => Vec::new(),
    }
}
