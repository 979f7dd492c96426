//! UCX's own tests (`test/gtest`) of the transports over verbs, and of what programs see that use those.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::built::tree;
use crate::ends::alone;
use crate::expected::{lines, matches};
use crate::harness::{addresses, run_within, urxe};

/// What is not run or skips itself, and why; the words are explained in the file.
const EXPECTED: &str = include_str!("ucx-expected.txt");
/// Far more than the tests of one run take on a machine that does nothing else.
const LIMIT: Duration = Duration::from_secs(900);

#[test]
fn transports() {
    check("rc_verbs/*:ud_verbs/*", 250);
}

#[test]
fn protocols_over_rc() {
    check("rc/*", 870);
}

#[test]
fn protocols_over_ud() {
    check("ud/*", 790);
}

/// Runs the tests that a filter of names takes. As many have to pass: fewer mean that they skip what they did before.
fn check(filter: &str, passing_min: usize) {
    let Some(tree) = tree("ucx") else { return };
    let _alone = alone();
    let outcomes = outcomes(&tree, filter);
    let skipped = outcomes
        .values()
        .filter(|o| matches!(o, Outcome::Skipped(_)));
    let passed = outcomes.values().filter(|o| **o == Outcome::Passed).count();
    println!("{filter}: {passed} passed, {} skipped", skipped.count());
    let wrong: Vec<String> = outcomes
        .iter()
        .filter(|(_, outcome)| !outcome.is_expected())
        .map(|(test, outcome)| format!("{test}: {outcome:?}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(passed >= passing_min, "{passed} of {passing_min} pass");
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    /// In UCX's words.
    Skipped(String),
    Failed,
    /// It crashed, or took too long.
    NotEnded,
}

impl Outcome {
    fn is_expected(&self) -> bool {
        match self {
            Outcome::Passed => true,
            Outcome::Skipped(reason) => {
                let mut all = lines(EXPECTED);
                all.any(|(word, pattern, _)| word == "skip" && matches(pattern, reason))
            }
            Outcome::Failed | Outcome::NotEnded => false,
        }
    }
}

fn outcomes(tree: &Path, filter: &str) -> BTreeMap<String, Outcome> {
    let left = lines(EXPECTED).filter(|(word, ..)| *word == "leave");
    let left: Vec<&str> = left.map(|(_, name, _)| name).collect();
    let (address, _) = addresses();
    let mut command = urxe();
    command.args(["run", "--device", &address.to_string(), "--"]);
    command.arg(tree.join("test/gtest/gtest"));
    command.arg(format!("--gtest_filter={filter}:-{}", left.join(":")));
    command.stdin(Stdio::null());
    let ran = run_within(command, LIMIT);
    let outcomes = read(&ran.text);
    if ran.code != Some(0) {
        println!("{}", ran.text);
    }
    outcomes
}

/// Outcomes by the names of tests, of what gtest prints.
fn read(text: &str) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::new();
    let (mut test, mut reason) = (String::new(), None);
    for line in text.lines() {
        let Some((word, rest)) = line.strip_prefix('[').and_then(|l| l.split_once(']')) else {
            continue;
        };
        let name = rest.split([' ', ',']).find(|part| !part.is_empty());
        match (word.trim(), name) {
            ("RUN", Some(name)) => {
                test = name.to_owned();
                outcomes.insert(test.clone(), Outcome::NotEnded);
                reason = None;
            }
            ("SKIP", _) => {
                let words = rest.trim();
                let words = words.strip_prefix('(').unwrap_or(words);
                let words = words.strip_suffix(')').unwrap_or(words);
                reason = Some(if words.is_empty() { "-" } else { words }.to_owned());
            }
            ("OK", Some(name)) if name == test => {
                let outcome = reason.take().map_or(Outcome::Passed, Outcome::Skipped);
                outcomes.insert(test.clone(), outcome);
            }
            ("FAILED", Some(name)) if name == test => {
                outcomes.insert(test.clone(), Outcome::Failed);
            }
            _ => {}
        }
    }
    outcomes
}

/// The judgement itself: each way to be wrong is found.
#[test]
fn outcomes_are_read_and_judged() {
    let text = "\
[==========] Running 5 tests from 1 test suite.
[ RUN      ] rc/x.passes/0 <rc_v>
[     INFO ] some words
[       OK ] rc/x.passes/0 (3 ms)
[ RUN      ] rc/x.skips/0 <rc_v>
[     SKIP ] (!check_caps(SOME))
[       OK ] rc/x.skips/0 (0 ms)
[ RUN      ] rc/x.says_nothing/0 <rc_v>
[     SKIP ] 
[       OK ] rc/x.says_nothing/0 (0 ms)
[ RUN      ] rc/x.fails/0 <rc_v>
[     SKIP ] (for a new reason)
file.cc:1: Failure
[  FAILED  ] rc/x.fails/0, where GetParam() = rc_v (8 ms)
[ RUN      ] rc/x.new/0 <rc_v>
[     SKIP ] (for a new reason)
[       OK ] rc/x.new/0 (0 ms)
[ RUN      ] rc/x.crashes/0 <rc_v>
";
    let read = read(text);
    let skipped = |words: &str| Outcome::Skipped(words.to_owned());
    for (test, outcome, is_expected) in [
        ("passes", Outcome::Passed, true),
        ("skips", skipped("!check_caps(SOME)"), true),
        ("says_nothing", skipped("-"), true),
        ("fails", Outcome::Failed, false),
        ("new", skipped("for a new reason"), false),
        ("crashes", Outcome::NotEnded, false),
    ] {
        assert_eq!(read.get(&format!("rc/x.{test}/0")), Some(&outcome));
        assert_eq!(outcome.is_expected(), is_expected, "{test}");
    }
    assert_eq!(read.len(), 6);
}
