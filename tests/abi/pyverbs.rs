//! The test suite of rdma-core (pyverbs), as Debian ships it, on the library.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ends::loopback;
use crate::harness::{LIMIT, addresses, program, run_within, urxe};

/// Where the package `python3-pyverbs` has the suite, with its larger files compressed.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
/// Python of the distribution: its pyverbs is built for no other.
const PYTHON: &str = "/usr/bin/python3";
/// What does not run and pass, and why; the words are explained in the file.
const EXPECTED: &str = include_str!("pyverbs-expected.txt");
/// Tests of the connection manager, which take all addresses of an interface.
const CONNECTING: &str = "test_rdmacm";
/// Fewer than these passing would mean that the suite did not do what it is there for.
const PASSING_MIN: usize = 144;
/// `nobody`, where there is such a user; nothing depends on it.
const ORDINARY_USER: &str = "65534";

#[test]
fn pyverbs_suite() {
    check(None);
}

/// A user without capabilities gets the same, but for what is root's alone.
#[test]
fn pyverbs_suite_as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: this is an ordinary user already, and pyverbs_suite ran as him");
        return;
    }
    check(Some(ORDINARY_USER));
}

fn check(user: Option<&str>) {
    if !Path::new(SUITE).exists() {
        println!("skipped: {SUITE} is missing (apt-get install python3-pyverbs)");
        return;
    }
    let has_pyverbs = Command::new(PYTHON).args(["-c", "import pyverbs"]).output();
    if !has_pyverbs.is_ok_and(|output| output.status.success()) {
        println!("skipped: pyverbs is missing (apt-get install python3-pyverbs)");
        return;
    }
    let place = Place::new(user);
    let mut outcomes = BTreeMap::new();
    for module in place.modules() {
        if let Some(("leave", reason)) = line_about(&module) {
            println!("not run: {module}: {reason}");
            continue;
        }
        outcomes.extend(place.run(&module));
    }
    place.remove();

    let is_root = user.is_none() && rustix::process::geteuid().is_root();
    let count = |word: &str| outcomes.values().filter(|o| o.starts_with(word)).count();
    println!("{} passed, {} skipped", count("ok"), count("skipped"));
    let wrong: Vec<String> = outcomes
        .iter()
        .filter_map(|(test, outcome)| objection(test, outcome, is_root))
        .chain(stale_lines(outcomes.keys()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count("ok") >= PASSING_MIN, "{outcomes:#?}");
}

/// What is wrong with an outcome, if it is not the expected one.
fn objection(test: &str, outcome: &str, is_root: bool) -> Option<String> {
    let line = line_about(test);
    let must_skip = match line {
        None => false,
        Some(("root", _)) => !is_root,
        Some(("pages", _)) => !has_huge_pages(),
        Some(("skip", _)) => true,
        Some((word, _)) => panic!("pyverbs-expected.txt: what is \"{word}\"?"),
    };
    let wanted = if must_skip { "skipped" } else { "ok" };
    (!outcome.starts_with(wanted))
        .then(|| format!("{test}: {outcome}, expected {wanted}: {line:?}"))
}

/// Lines that speak of no test that there is.
fn stale_lines<'a>(
    tests: impl Iterator<Item = &'a String> + Clone,
) -> impl Iterator<Item = String> {
    let stale = lines().filter(move |(word, pattern, _)| {
        *word != "leave" && !tests.clone().any(|test| matches(pattern, test))
    });
    stale.map(|(_, pattern, _)| format!("pyverbs-expected.txt: there is no {pattern}"))
}

/// Word, pattern and reason.
fn lines() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let lines = EXPECTED.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let parts = line.split_once(": ").and_then(|(left, reason)| {
            let (word, pattern) = left.split_once(' ')?;
            Some((word, pattern, reason))
        });
        parts.unwrap_or_else(|| panic!("pyverbs-expected.txt: not \"WORD NAME: REASON\": {line}"))
    })
}

fn line_about(name: &str) -> Option<(&'static str, &'static str)> {
    lines()
        .find(|(_, pattern, _)| matches(pattern, name))
        .map(|(word, _, reason)| (word, reason))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// As the suite itself looks for them.
fn has_huge_pages() -> bool {
    let count = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    count.is_ok_and(|count| count.trim() != "0")
}

/// The judgement itself: each way to be wrong is found.
#[test]
fn an_outcome_without_its_line_is_an_objection() {
    let left_out = "test_flow.FlowTest.test_drop";
    let plain = "test_pd.PDTest.test_alloc_pd";
    assert_eq!(objection(plain, "ok", true), None);
    assert_eq!(objection(left_out, "skipped 'x'", true), None);
    for (test, outcome) in [
        (plain, "skipped 'x'"),
        (plain, "FAIL"),
        (plain, "ended early: ..."),
        (left_out, "ok"),
        (left_out, "ERROR"),
    ] {
        assert!(objection(test, outcome, true).is_some(), "{test} {outcome}");
    }
    let known: Vec<String> = vec![left_out.to_owned()];
    assert!(stale_lines(known.iter()).any(|line| line.contains("test_odp")));
    assert!(!stale_lines(known.iter()).any(|line| line.contains("test_flow")));
}

/// A folder that all users may read: the suite with nothing compressed, and the library. (The build's own folder may be
/// in a user's home.)
struct Place {
    folder: PathBuf,
    user: Option<String>,
}

impl Place {
    fn new(user: Option<&str>) -> Place {
        let name = format!(
            "urxe-pyverbs-{}-{}",
            std::process::id(),
            user.unwrap_or("me")
        );
        let folder = std::env::temp_dir().join(name);
        let status = Command::new("sh")
            .args([
                "-ec",
                "umask 022; mkdir -p \"$1/tests\"; cp -r \"$0\"/. \"$1/tests\"; gunzip -fq \"$1\"/tests/*.gz; \
                 \"$2\" package \"$1/urxe\" >&2",
                SUITE,
            ])
            .arg(&folder)
            .arg(urxe().get_program())
            .status();
        assert!(
            status.expect("a shell").success(),
            "{SUITE} cannot be copied"
        );
        Place {
            folder,
            user: user.map(str::to_owned),
        }
    }

    fn remove(self) {
        fs::remove_dir_all(&self.folder).expect("it is ours");
    }

    fn modules(&self) -> Vec<String> {
        let files = fs::read_dir(self.folder.join("tests")).expect("a folder");
        let mut names: Vec<String> = files
            .filter_map(|file| file.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("test_"))
            .filter_map(|name| name.strip_suffix(".py").map(str::to_owned))
            .collect();
        names.sort();
        names
    }

    /// Python, as the user. Tests of the connection manager look for the device's files and its interface's address,
    /// which `urxe run` shows them.
    fn python(&self, device: Ipv4Addr, module: &str) -> Command {
        let python = match module {
            CONNECTING => vec![self.urxe("urxe"), "run --device lo --".to_owned()],
            _ => Vec::new(),
        };
        let python = python.join(" ") + " " + PYTHON;
        let mut python: Vec<&str> = python.split_whitespace().collect();
        let id = self.user.as_deref().unwrap_or_default();
        if self.user.is_some() {
            let switch = ["setpriv", "--reuid", id, "--regid", id, "--clear-groups"];
            python.splice(0..0, switch);
        }
        let mut command = program(python[0], "util-linux", device)
            .expect("every system with Debian's python has it");
        command.args(&python[1..]);
        if self.user.is_some() {
            // Another user's.
            command.env_remove("XDG_RUNTIME_DIR");
        }
        command
    }

    /// Where a part of the package is.
    fn urxe(&self, part: &str) -> String {
        let path = self.folder.join("urxe").join(part);
        path.to_str().expect("a path in UTF-8").to_owned()
    }

    /// Test ("module.Class.test") and outcome ("ok", "skipped ...", "FAIL", ...) of each. A module that ends early, by
    /// a crash or the time limit, is an outcome of its own.
    fn run(&self, module: &str) -> BTreeMap<String, String> {
        let (device, _) = addresses();
        let _loopback = (module == CONNECTING).then(loopback);
        let mut command = self.python(device, module);
        // A warning would come between a test's name and its outcome.
        command.env("PYTHONWARNINGS", "ignore");
        command.env("LD_LIBRARY_PATH", self.urxe("urxe-lib"));
        command.current_dir(self.folder.join("tests"));
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
        let is_bad =
            |outcome: &String| !outcome.starts_with("ok") && !outcome.starts_with("skipped");
        if outcomes.values().any(is_bad) {
            println!("{}", ran.text);
        }
        outcomes
    }
}
