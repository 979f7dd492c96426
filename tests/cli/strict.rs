//! The command under `URXE_STRICT=abort`, where the first misuse of verbs would end it: a correct program runs
//! through, and says which seed it ran with.

use crate::harness::{run, urxe};
use crate::loopback_pair;

fn runs_through(args: &[&str]) {
    let _pair = loopback_pair();
    let mut command = urxe();
    command.args(args).arg("--json");
    command.env("URXE_STRICT", "abort").env("URXE_SEED", "11");
    let ran = run(&mut command).expect_success();
    assert!(ran.stderr.contains("URXE_SEED=11"), "{args:?}: {ran:?}");
}

#[test]
fn pingpong_of_all_variants() {
    runs_through(&["pingpong", "--iters", "30"]);
    runs_through(&["pingpong", "--iters", "5", "--size", "65537"]);
}

#[test]
fn bench_of_each_operation() {
    for op in ["send", "write", "read"] {
        runs_through(&["bench", op, "--size", "10000", "--iters", "100"]);
    }
    runs_through(&["bench", "atomic", "--iters", "100"]);
    for op in ["send", "read", "atomic"] {
        runs_through(&["bench", op, "--lat", "--size", "8", "--iters", "50"]);
    }
    runs_through(&[
        "bench", "send", "--lat", "--event", "--size", "64", "--iters", "50",
    ]);
}
