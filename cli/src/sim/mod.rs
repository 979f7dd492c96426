//! `urxe sim`: networks in virtual time.

mod experiments;
mod observe;
mod report;
mod run;

use crate::args::SimCommand;
use crate::error::CliError;

/// Runs one of the subcommands.
pub(crate) fn run(command: &SimCommand) -> Result<(), CliError> {
    match command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Report(args) => report::run(args),
        SimCommand::CheckDeterminism(args) => run::check_determinism(args),
        SimCommand::Experiments(args) => experiments::run(args),
    }
}
