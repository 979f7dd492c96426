//! Processes that a command starts from its own executable, and that never outlive it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

use crate::error::CliError;

/// A child that is killed when this value goes away.
#[derive(Debug)]
pub(crate) struct ChildGuard {
    child: Child,
    name: &'static str,
}

impl ChildGuard {
    /// Starts this executable again with the given arguments. `--parent` tells the child which process it must not
    /// outlive (see [`die_with`]).
    pub(crate) fn spawn(
        name: &'static str,
        args: &[String],
        stdout: Stdio,
    ) -> Result<ChildGuard, CliError> {
        let fail = |error| CliError::context(format!("cannot start the {name} process"), error);
        let program = std::env::current_exe().map_err(fail)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .arg("--parent")
            .arg(std::process::id().to_string());
        command.stdin(Stdio::null()).stdout(stdout);
        Ok(ChildGuard {
            child: command.spawn().map_err(fail)?,
            name,
        })
    }

    /// The first line that the child prints; an error when it ends without one.
    pub(crate) fn first_line(&mut self) -> Result<String, CliError> {
        let stdout = self
            .child
            .stdout
            .take()
            .expect("spawned with a pipe, read once");
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        match read {
            Ok(len) if len > 0 => Ok(line.trim_end().to_owned()),
            // It has said on stderr why.
            _ => Err(CliError::Failed(format!(
                "the {} process did not start",
                self.name
            ))),
        }
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, CliError> {
        let name = self.name;
        self.child
            .wait()
            .map_err(|error| CliError::context(format!("lost the {name}"), error))
    }

    /// Waits for the end up to `limit`; `None` when the child still runs.
    pub(crate) fn wait_up_to(&mut self, limit: Duration) -> Result<Option<ExitStatus>, CliError> {
        let name = self.name;
        let end = Instant::now() + limit;
        loop {
            let status = self.child.try_wait();
            let status =
                status.map_err(|error| CliError::context(format!("lost the {name}"), error))?;
            if status.is_some() || Instant::now() >= end {
                return Ok(status);
            }
            // A wait with a time limit does not exist; the end of a child is not urgent.
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both fail only when the child has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the kernel end this process when its parent ends, however that ends.
pub(crate) fn die_with(parent: u32) -> Result<(), CliError> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)
        .map_err(|error| CliError::context("cannot follow the parent process", error))?;
    // The parent may have ended before the call above: then this process has a new one.
    if getppid() != Pid::from_raw(parent.cast_signed()) {
        return Err(CliError::Failed(
            "the process that started this one is gone".to_owned(),
        ));
    }
    Ok(())
}

/// Keeps this process on one CPU, so that two sides that are compared run on the same ones. Without that CPU
/// (a machine with one core) the process stays where it is: false.
pub(crate) fn pin(cpu: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(cpu).is_ok() && sched_setaffinity(Pid::from_raw(0), &set).is_ok()
}

/// How a child ended, for a message.
pub(crate) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
