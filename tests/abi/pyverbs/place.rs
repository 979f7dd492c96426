//! Where a suite runs, and what comes of each test.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ends::loopback;
use crate::harness::{LIMIT, addresses, program, run_within, urxe};
use crate::pyverbs::Suite;

/// Python of the distribution: pyverbs is built for no other.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// Tests of the connection manager, which take all addresses of an interface.
const CONNECTING: &str = "test_rdmacm";

/// A folder that all users may read: the suite with nothing compressed, and the library. (The build's own folder may be
/// in a user's home.)
pub(crate) struct Place {
    folder: PathBuf,
    /// Where Python looks for modules first.
    pyverbs: Option<PathBuf>,
    user: Option<String>,
}

impl Place {
    pub(crate) fn new(suite: &Suite, user: Option<&str>) -> Place {
        let name = format!(
            "urxe-pyverbs-{}-{}",
            std::process::id(),
            user.unwrap_or("me")
        );
        let folder = std::env::temp_dir().join(name);
        let status = Command::new("sh")
            .args([
                "-ec",
                "umask 022; mkdir -p \"$1/tests\"; cp -r \"$0\"/. \"$1/tests\"; find \"$1/tests\" -name '*.gz' -exec gunzip -fq {} +; \
                 \"$2\" package \"$1/urxe\" >&2",
            ])
            .arg(suite.tests)
            .arg(&folder)
            .arg(urxe().get_program())
            .status();
        assert!(
            status.expect("a shell").success(),
            "{} cannot be copied",
            suite.tests.display()
        );
        Place {
            folder,
            pyverbs: suite.pyverbs.map(Path::to_owned),
            user: user.map(str::to_owned),
        }
    }

    pub(crate) fn remove(self) {
        fs::remove_dir_all(&self.folder).expect("it is ours");
    }

    pub(crate) fn modules(&self) -> Vec<String> {
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
    /// which `urxe run` shows them; and a pyverbs that was built in place finds the libibverbs of its own tree first.
    fn python(&self, device: Ipv4Addr, module: &str) -> Command {
        let python = match (module, &self.pyverbs) {
            (CONNECTING, _) => vec![self.urxe("urxe"), "run --device lo --".to_owned()],
            (_, Some(_)) => vec![self.urxe("urxe"), format!("run --device {device} --")],
            (_, None) => Vec::new(),
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
    pub(crate) fn run(&self, module: &str) -> BTreeMap<String, String> {
        let (device, _) = addresses();
        let _loopback = (module == CONNECTING).then(loopback);
        let mut command = self.python(device, module);
        // A warning would come between a test's name and its outcome.
        command.env("PYTHONWARNINGS", "ignore");
        command.env("LD_LIBRARY_PATH", self.urxe("urxe-lib"));
        if let Some(folder) = &self.pyverbs {
            command.env("PYTHONPATH", folder);
        }
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
