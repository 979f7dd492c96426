//! What ends a command early, worded for the user that typed it, and its exit code.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// Why a command failed. The text follows `urxe: ` on stderr and says what to do where there is something to do.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The arguments are well-formed but do not make sense together.
    #[error("{0}")]
    Usage(String),
    /// The command did its work and found what it looks for: faulty packets, a failed verification. What was
    /// found is already on stdout.
    #[error("{0}")]
    Fault(String),
    /// Something outside failed: a file, a socket, the peer, the provider.
    #[error("{0}")]
    Failed(String),
    /// A process that this one started has said on stderr what went wrong.
    #[error("reported by a child process")]
    Reported,
    /// A program that `urxe run` was to become.
    #[error("cannot run {program}: {error}")]
    NotStarted {
        /// Its name, as it was given.
        program: String,
        error: io::Error,
        /// The exit code that shells use for it.
        code: u8,
    },
    /// The reader of our output went away (`urxe decode x | head`): not worth a message.
    #[error("output closed")]
    OutputClosed,
}

impl CliError {
    /// A failure with its context in front: `cannot read x.pcap: No such file or directory`.
    pub fn context(what: impl Display, why: impl Display) -> CliError {
        CliError::Failed(format!("{what}: {why}"))
    }

    pub fn is_quiet(&self) -> bool {
        matches!(self, CliError::OutputClosed | CliError::Reported)
    }

    /// 1 for a failure, 2 for wrong usage, as the shell's own commands have it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CliError::Usage(_) => ExitCode::from(2),
            CliError::NotStarted { code, .. } => ExitCode::from(*code),
            CliError::Fault(_) | CliError::Failed(_) | CliError::Reported => ExitCode::FAILURE,
            CliError::OutputClosed => ExitCode::SUCCESS,
        }
    }
}

/// Puts its context before the error of something that failed.
pub trait Context<T> {
    /// As [`CliError::context`].
    fn context(self, what: impl Display) -> Result<T, CliError>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, CliError> {
        self.map_err(|why| CliError::context(what, why))
    }
}

/// Writing to stdout: a closed pipe ends the command quietly, anything else (a full disk) is a failure.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> CliError {
        if error.kind() == io::ErrorKind::BrokenPipe {
            CliError::OutputClosed
        } else {
            CliError::context("cannot write the output", error)
        }
    }
}
