//! Runs the `urxe` command the way a shell does, with a time limit on everything.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{env, thread};

/// No command of these tests takes near this long; one that does hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The command, built in the profile that this test was built in.
pub(crate) fn urxe() -> Command {
    Command::new(binary())
}

/// The command with no signal ignored, whatever this test was started from: a shell that puts a job into the
/// background has it ignore Ctrl-C, and its children inherit that.
pub(crate) fn urxe_that_listens_to_signals() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(binary());
    command
}

/// Its path.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(build)
}

fn build() -> PathBuf {
    // .../target/PROFILE/deps/cli-HASH: two folders up is where cargo puts programs.
    let test = env::current_exe().expect("a test knows its own path");
    let folder = test
        .ancestors()
        .nth(2)
        .expect("tests lie in a profile's deps folder");
    let profile = folder
        .file_name()
        .expect("named after the profile")
        .to_string_lossy();
    let profile = if profile == "debug" { "dev" } else { &profile };
    let status = urxe_tests::cargo()
        .args([
            "build",
            "--quiet",
            "--package",
            "urxe-cli",
            "--profile",
            profile,
        ])
        .args([
            "--target-dir".as_ref(),
            folder.parent().expect("the target folder").as_os_str(),
        ])
        .status();
    assert!(status.expect("cargo runs").success(), "urxe does not build");
    folder.join("urxe")
}

/// A file of the project.
pub(crate) fn project_file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("in the project")
        .join(path)
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// `None` when a signal ended it.
    pub(crate) code: Option<i32>,
}

impl Ran {
    fn from(output: Output) -> Ran {
        Ran {
            stdout: String::from_utf8(output.stdout).expect("urxe prints UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("urxe prints UTF-8"),
            code: output.status.code(),
        }
    }

    #[track_caller]
    pub(crate) fn expect_success(self) -> Ran {
        assert_eq!(
            self.code,
            Some(0),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }
}

/// Runs to the end.
pub(crate) fn run(command: &mut Command) -> Ran {
    Running::start(command).finish()
}

/// A command that runs; killed when the test is done with it.
pub(crate) struct Running {
    child: Option<Child>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running {
            child: Some(command.spawn().expect("urxe starts")),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child().id()
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("taken only by finish")
    }

    /// The next bytes that it prints while it runs; waits for the first. What [`Running::finish`] gives comes after them.
    pub(crate) fn next_output(&mut self) -> String {
        let stdout = self.child.as_mut().and_then(|child| child.stdout.as_mut());
        let mut bytes = [0; 4096];
        let count = stdout.expect("a pipe").read(&mut bytes);
        String::from_utf8_lossy(&bytes[..count.expect("a pipe can be read")]).into_owned()
    }

    /// Waits for the end, within [`LIMIT`].
    pub(crate) fn finish(mut self) -> Ran {
        let child = self.child.take().expect("taken only here");
        let id = child.id();
        // wait_with_output reads both pipes, so a chatty command cannot block on a full one; the watchdog
        // ends a command that hangs.
        let waiter = thread::spawn(move || child.wait_with_output());
        let end = Instant::now() + LIMIT;
        while !waiter.is_finished() {
            if Instant::now() > end {
                kill(id, rustix::process::Signal::KILL);
                panic!("the command did not end within {LIMIT:?}");
            }
            thread::sleep(Duration::from_millis(2));
        }
        let output = waiter.join().expect("the waiter does not panic");
        Ran::from(output.expect("the command can be waited for"))
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        kill(self.id(), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Fails only when it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn kill(id: u32, signal: rustix::process::Signal) {
    let id = rustix::process::Pid::from_raw(id.cast_signed()).expect("a child's id is not 0");
    // It may have ended already.
    let _ = rustix::process::kill_process(id, signal);
}

/// The children of a process, by the `--server` or `--connect` in their command line.
pub(crate) fn children(parent: u32) -> Vec<(u32, String)> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let ids = std::fs::read_to_string(path).unwrap_or_default();
    let ids = ids.split_whitespace().filter_map(|id| id.parse().ok());
    let with_args = |id: u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        (id, String::from_utf8_lossy(&line).replace('\0', " "))
    };
    ids.map(with_args).collect()
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_alive(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits until the condition holds, within [`LIMIT`].
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "waited {LIMIT:?} until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
