//! Processes that a command starts from its own executable, and that never outlive it.

#[cfg(feature = "sim")]
use std::io::Read;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{self, getppid};

use crate::error::{CliError, Context};

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
        args: &[&str],
        stdout: Stdio,
    ) -> Result<ChildGuard, CliError> {
        let spawn = || {
            let mut command = Command::new(std::env::current_exe()?);
            let parent = std::process::id().to_string();
            command.args(args).args(["--parent", &parent]);
            command.stdin(Stdio::null()).stdout(stdout).spawn()
        };
        let child = spawn().context(format_args!("cannot start the {name} process"))?;
        Ok(ChildGuard { child, name })
    }

    /// The first line that the child prints; an error when it ends without one.
    pub(crate) fn first_line(&mut self) -> Result<String, CliError> {
        let stdout = self.child.stdout.take();
        let stdout = stdout.expect("spawned with a pipe, read once");
        match BufReader::new(stdout).lines().next() {
            Some(Ok(line)) => Ok(line),
            // It has said on stderr why.
            _ => {
                let text = format!("the {} process did not start", self.name);
                Err(CliError::Failed(text))
            }
        }
    }

    /// All that the child prints, if it ends well.
    #[cfg(feature = "sim")]
    pub(crate) fn output(mut self) -> Result<String, CliError> {
        let mut stdout = self.child.stdout.take().expect("spawned with a pipe");
        let mut printed = String::new();
        let read = stdout.read_to_string(&mut printed);
        read.context(format_args!("lost the {} process", self.name))?;
        let status = self.wait()?;
        check_end(self.name, Some(status)).map(|()| printed)
    }

    pub(crate) fn wait(&mut self) -> Result<ExitStatus, CliError> {
        let status = self.child.wait();
        status.context(format_args!("lost the {}", self.name))
    }

    /// Waits for the end up to `limit`; `None` when the child still runs.
    pub(crate) fn wait_up_to(&mut self, limit: Duration) -> Result<Option<ExitStatus>, CliError> {
        let end = Instant::now() + limit;
        loop {
            let status = self.child.try_wait();
            let status = status.context(format_args!("lost the {}", self.name))?;
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

/// Makes the kernel end this process when its parent ends, however that ends. `None`: nothing started it.
pub(crate) fn die_with(parent: Option<u32>) -> Result<(), CliError> {
    let Some(parent) = parent else {
        return Ok(());
    };
    #[cfg(target_os = "linux")]
    process::set_parent_process_death_signal(Some(process::Signal::TERM))
        .map_err(io::Error::from)
        .context("cannot follow the parent process")?;
    // The parent may have ended before the call above: then this process has a new one.
    if process::Pid::as_raw(getppid()) != parent.cast_signed() {
        return Err(CliError::Failed(
            "the process that started this one is gone".to_owned(),
        ));
    }
    Ok(())
}

/// Fails if a child that should have ended well has not, or not yet.
pub(crate) fn check_end(name: &str, status: Option<ExitStatus>) -> Result<(), CliError> {
    let how = match status {
        Some(status) if status.success() => return Ok(()),
        Some(status) => describe(status),
        None => "did not end".to_owned(),
    };
    Err(CliError::Failed(format!("the {name} process {how}")))
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
