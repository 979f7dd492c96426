//! The test suite of rdma-core (pyverbs), as Debian ships it, on the library.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{LIMIT, addresses, program, run_within};

/// Where the package `python3-pyverbs` has the suite, with its larger files compressed.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
/// Python of the distribution: its pyverbs is built for no other.
const PYTHON: &str = "/usr/bin/python3";
/// One a line: a module that is not run, or a test that fails, and why.
const EXPECTED: &str = include_str!("pyverbs-expected.txt");
/// Fewer than these passing would mean that the suite did not do what it is there for.
const PASSING_MIN: usize = 115;

#[test]
fn pyverbs_suite_passes() {
    if !Path::new(SUITE).exists() {
        println!("skipped: {SUITE} is missing (apt-get install python3-pyverbs)");
        return;
    }
    let has_pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs"]).output();
    if !has_pyverbs.is_ok_and(|output| output.status.success()) {
        println!("skipped: pyverbs is missing (apt-get install python3-pyverbs)");
        return;
    }
    let suite = unpack();
    let mut outcomes = BTreeMap::new();
    for module in modules(&suite) {
        if let Some(reason) = expected(&module) {
            println!("not run: {module}: {reason}");
            continue;
        }
        outcomes.extend(run_module(&suite, &module));
    }
    fs::remove_dir_all(&suite).expect("it is ours");

    let count = |word: &str| outcomes.values().filter(|o| o.starts_with(word)).count();
    println!("{} passed, {} skipped", count("ok"), count("skipped"));
    for (test, outcome) in &outcomes {
        let may_fail = expected(test).is_some();
        let is_good = outcome.starts_with("ok") || outcome.starts_with("skipped");
        assert!(is_good || may_fail, "{test}: {outcome}");
        assert!(
            !(outcome.starts_with("ok") && may_fail),
            "{test} passes: take it off pyverbs-expected.txt"
        );
    }
    assert!(count("ok") >= PASSING_MIN, "{outcomes:#?}");
}

fn expected(name: &str) -> Option<&'static str> {
    let lines = EXPECTED.lines().filter(|line| !line.starts_with('#'));
    let mut pairs = lines.filter_map(|line| line.split_once(": "));
    pairs
        .find(|(pattern, _)| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => *pattern == name,
        })
        .map(|(_, reason)| reason)
}

/// A copy with nothing compressed.
fn unpack() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("urxe-pyverbs-{}", std::process::id()));
    let suite = folder.join("tests");
    fs::create_dir_all(&suite).expect("a folder");
    let status = Command::new("sh")
        .args([
            "-c",
            "cp -r \"$0\"/. \"$1\" && gunzip -fq \"$1\"/*.gz",
            SUITE,
        ])
        .arg(&suite)
        .status();
    assert!(
        status.expect("a shell").success(),
        "{SUITE} cannot be copied"
    );
    suite
}

fn modules(suite: &Path) -> Vec<String> {
    let files = fs::read_dir(suite).expect("a folder");
    let mut names: Vec<String> = files
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("test_"))
        .filter_map(|name| name.strip_suffix(".py").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// Test ("module.Class.test") and outcome ("ok", "skipped ...", "FAIL", ...) of each. A module that ends early, by a
/// crash or the time limit, is an outcome of its own.
fn run_module(suite: &Path, module: &str) -> BTreeMap<String, String> {
    let (device, _) = addresses();
    let mut command = program(PYTHON, "python3", device).expect("it was there a moment ago");
    // A warning would come between a test's name and its outcome.
    command.current_dir(suite).env("PYTHONWARNINGS", "ignore");
    command.args(["run_tests.py", "--dev", "urxe0", "--gid", "0", "-v"]);
    command.arg(format!("tests.{module}"));
    let ran = run_within(command, 4 * LIMIT);
    let mut outcomes = BTreeMap::new();
    let mut test = String::new();
    for line in ran.text.lines() {
        // "test_x (tests.module.Class.test_x)", and then on this line or the next "... ok".
        if let Some((_, rest)) = line.split_once("(tests.")
            && line.starts_with("test_")
        {
            let id = rest.split(')').next().unwrap_or_default();
            test = id.to_owned();
        }
        if let Some((_, outcome)) = line.split_once(" ... ") {
            outcomes.insert(test.clone(), outcome.trim().to_owned());
        }
    }
    if ![Some(0), Some(1)].contains(&ran.code) || !ran.text.contains("\nRan ") {
        outcomes.insert(module.to_owned(), format!("ended early: {ran:?}"));
    }
    outcomes
}
