//! A program of the system's: its process, and what in the simulation stands for it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fabric_sim::program::sleep;
use fabric_sim::scenario::Program;
use nix::sys::signal::Signal;
use rustix::fs::{MemfdFlags, memfd_create};
use urxe::network::current;
use urxe::network::remote::serve;

use super::calls::Calls;
use super::streams::Streams;
use crate::error::{CliError, Context};

/// How long a process may take to be gone after its last word to the simulation.
const GONE_IN: Duration = Duration::from_secs(5);
/// More than that of what a program prints is not kept.
const OUTPUT_MAX: u64 = 16 << 20;

/// How a program ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ended {
    /// What went wrong, in words.
    pub(super) fault: Option<String>,
    /// All that it printed.
    pub(super) output: Vec<u8>,
    /// What it tried that is not simulated.
    pub(super) notes: Vec<String>,
}

pub(super) struct Process {
    program: Program,
    variables: Vec<(&'static str, OsString)>,
    start: Duration,
    output: File,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// While it is there.
    child: Option<Child>,
    /// The run is over: none is started any more.
    is_over: bool,
    fault: Option<String>,
    notes: Vec<String>,
}

impl Process {
    pub(super) fn new(
        program: &Program,
        variables: Vec<(&'static str, OsString)>,
        start: Duration,
    ) -> Result<Process, CliError> {
        let output = memfd_create("output", MemfdFlags::CLOEXEC);
        let output = output.context("cannot keep what programs print")?;
        Ok(Process {
            program: program.clone(),
            variables,
            start,
            output: File::from(output),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process, from its beginning to its end. This runs as a program of the simulation.
    pub(super) fn run(&self, streams: &Arc<Mutex<Streams>>) {
        sleep(self.start);
        let fault = self.try_run(streams).unwrap_or_else(|error| {
            // What it said itself tells more than that it broke off.
            Some(self.wait().unwrap_or_else(|| error.to_string()))
        });
        self.state().fault = fault;
    }

    fn try_run(&self, streams: &Arc<Mutex<Streams>>) -> io::Result<Option<String>> {
        let network = current().expect("a simulated program is in a network");
        let (ours, theirs) = UnixStream::pair()?;
        {
            let mut state = self.state();
            // A sleep ends with the run, too.
            if state.is_over {
                return Ok(None);
            }
            state.child = Some(self.spawn(theirs)?);
        }
        let mut calls = Calls::new(self.program.host, network.clone(), streams.clone());
        let served = serve(ours, &network, &mut |call| calls.answer(call));
        self.state().notes = calls.take_notes();
        served?;
        Ok(self.wait())
    }

    fn spawn(&self, channel: UnixStream) -> io::Result<Child> {
        let (name, rest) = self
            .program
            .command
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        Command::new(name)
            .args(rest)
            .envs(self.variables.iter().cloned())
            .stdin(OwnedFd::from(channel))
            .stdout(self.output.try_clone()?)
            .stderr(Stdio::from(self.output.try_clone()?))
            .spawn()
    }

    /// Waits for the process, which has left the simulation. What is wrong with its end.
    fn wait(&self) -> Option<String> {
        let mut state = self.state();
        let Some(child) = &mut state.child else {
            return None;
        };
        let since = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if since.elapsed() < GONE_IN => thread::sleep(Duration::from_micros(200)),
                _ => {
                    let text =
                        "it left the simulation without an end: it may have become another program";
                    return Some(text.to_owned());
                }
            }
        };
        state.child = None;
        fault_of(status)
    }

    /// After the run: what came of it. A process that is there still is ended.
    pub(super) fn end(&self) -> Ended {
        let mut state = self.state();
        state.is_over = true;
        let mut fault = state.fault.take();
        if let Some(mut child) = state.child.take() {
            let killed = child.kill().and_then(|()| child.wait());
            if fault.is_none() && killed.is_ok() {
                fault = Some("it had not ended, and was killed".to_owned());
            }
        }
        Ended {
            fault,
            output: self.output().unwrap_or_default(),
            notes: state.notes.clone(),
        }
    }

    fn output(&self) -> io::Result<Vec<u8>> {
        let len = self.output.metadata()?.len().min(OUTPUT_MAX);
        let mut bytes = vec![0; len as usize];
        self.output.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// In words, if it was no success.
fn fault_of(status: ExitStatus) -> Option<String> {
    if let Some(number) = status.signal() {
        let name = Signal::try_from(number).map_or("?", Signal::as_str);
        return Some(format!("ended by signal {number} ({name})"));
    }
    let code = status.code().unwrap_or(0);
    (code != 0).then(|| format!("ended with status {code}"))
}
