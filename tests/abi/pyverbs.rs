//! The test suite of rdma-core (pyverbs), as Debian ships it, on the library.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use self::expected::Expected;
use self::place::{PYTHON, Place};

pub(crate) mod expected;
pub(crate) mod place;

/// A copy of the suite, what is expected of it, and where the modules are that it tests with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite<'a> {
    /// The folder of the tests; larger files may be compressed.
    pub(crate) tests: &'a Path,
    /// The folder of pyverbs, if it is not the distribution's.
    pub(crate) pyverbs: Option<&'a Path>,
    pub(crate) expected: Expected,
    /// Fewer than these passing would mean that the suite did not do what it is there for.
    pub(crate) passing_min: usize,
}

const EXPECTED: Expected = Expected {
    name: "pyverbs/expected.txt",
    text: include_str!("pyverbs/expected.txt"),
};
/// `nobody`, where there is such a user; nothing depends on it.
const ORDINARY_USER: &str = "65534";

/// Debian's; `None`, with the reason printed, where it is not installed.
fn debians() -> Option<Suite<'static>> {
    let tests = Path::new("/usr/share/doc/rdma-core/tests");
    if !tests.exists() {
        let text = tests.display();
        println!("skipped: {text} is missing (apt-get install python3-pyverbs)");
        return None;
    }
    let has_pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs"]).output();
    if !has_pyverbs.is_ok_and(|output| output.status.success()) {
        println!("skipped: pyverbs is missing (apt-get install python3-pyverbs)");
        return None;
    }
    Some(Suite {
        tests,
        pyverbs: None,
        expected: EXPECTED,
        passing_min: 144,
    })
}

#[test]
fn pyverbs_suite() {
    if let Some(suite) = debians() {
        suite.check(None);
    }
}

/// A user without capabilities gets the same, but for what is root's alone.
#[test]
fn pyverbs_suite_as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: this is an ordinary user already, as which pyverbs_suite ran");
        return;
    }
    if let Some(suite) = debians() {
        suite.check(Some(ORDINARY_USER));
    }
}

impl Suite<'_> {
    /// Runs it, as this user or the one that runs the tests: each test must end as expected.
    pub(crate) fn check(&self, user: Option<&str>) {
        let place = Place::new(self, user);
        let mut outcomes = BTreeMap::new();
        for module in place.modules() {
            if let Some(("leave", reason)) = self.expected.line_about(&module) {
                println!("not run: {module}: {reason}");
                continue;
            }
            outcomes.extend(place.run(&module));
        }
        place.remove();

        let is_root = user.is_none() && rustix::process::geteuid().is_root();
        let count = |word: &str| outcomes.values().filter(|o| o.starts_with(word)).count();
        println!("{} passed, {} skipped", count("ok"), count("skipped"));
        let objection =
            |(test, outcome): (&String, &String)| self.expected.objection(test, outcome, is_root);
        let wrong: Vec<String> = outcomes
            .iter()
            .filter_map(objection)
            .chain(self.expected.stale_lines(outcomes.keys()))
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(count("ok") >= self.passing_min, "{outcomes:#?}");
    }
}

/// The judgement itself: each way to be wrong is found.
#[test]
fn an_outcome_without_its_line_is_an_objection() {
    let left_out = "test_flow.FlowTest.test_drop";
    let plain = "test_pd.PDTest.test_alloc_pd";
    let objection = |test, outcome| EXPECTED.objection(test, outcome, true);
    assert_eq!(objection(plain, "ok"), None);
    assert_eq!(objection(left_out, "skipped 'x'"), None);
    for (test, outcome) in [
        (plain, "skipped 'x'"),
        (plain, "FAIL"),
        (plain, "ended early: ..."),
        (left_out, "ok"),
        (left_out, "ERROR"),
    ] {
        assert!(objection(test, outcome).is_some(), "{test} {outcome}");
    }
    let known: Vec<String> = vec![left_out.to_owned()];
    let stale = || EXPECTED.stale_lines(known.iter());
    assert!(stale().any(|line| line.contains("test_odp")));
    assert!(!stale().any(|line| line.contains("test_flow")));
}
