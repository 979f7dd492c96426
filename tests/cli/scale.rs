//! `urxe scale`: that it measures what it says. Its numbers are not judged here.

use serde_json::Value;

use crate::harness::{run, urxe};
use crate::loopback_pair;

#[test]
fn many_queue_pairs_are_connected_and_all_used() {
    let _pair = loopback_pair();
    let ran =
        run(urxe().args(["scale", "--qps", "300", "--samples", "1", "--json"])).expect_success();
    let result: Value = serde_json::from_str(&ran.stdout).expect("--json prints JSON");
    assert_eq!(result["qps"], 300);
    assert_eq!(result["few"], 10);
    for name in [
        "resident_bytes_per_qp",
        "queue_bytes_per_qp",
        "msg_per_s_few",
        "msg_per_s",
        "ratio",
    ] {
        assert!(result[name].as_f64() > Some(0.0), "{name}: {result}");
    }
}

#[test]
fn too_many_queue_pairs_are_a_usage_error() {
    for count in ["0", "65537", "many"] {
        let ran = run(urxe().args(["scale", "--qps", count]));
        assert_eq!(ran.code, Some(2), "{count}: {}", ran.stderr);
    }
}
