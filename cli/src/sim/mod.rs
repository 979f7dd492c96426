//! `urxe sim`: networks in virtual time.

pub(crate) mod args;
mod experiments;
mod json;
mod new_file;
mod observe;
mod open;
mod parallel;
mod replay;
mod report;
mod run;
mod shrink;
mod sweep;

use self::args::SimCommand;
use crate::error::CliError;

pub(crate) fn run(command: &SimCommand) -> Result<(), CliError> {
    match command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Report(args) => report::run(args),
        SimCommand::CheckDeterminism(args) => run::check_determinism(args),
        SimCommand::Sweep(args) => sweep::sweep(args),
        SimCommand::Replay(args) => replay::replay(args),
        SimCommand::Shrink(args) => shrink::shrink(args),
        SimCommand::Experiments(args) => experiments::run(args),
    }
}
