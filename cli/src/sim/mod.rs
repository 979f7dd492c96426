//! `urxe sim`: networks in virtual time.

pub(crate) mod args;
mod diff;
mod exec;
mod experiments;
mod interval;
mod json;
mod merge;
pub(crate) mod new_file;
mod observe;
mod open;
mod parallel;
mod perfetto;
mod replay;
mod report;
mod results;
mod run;
mod scenarios;
mod shrink;
mod sweep;

use self::args::SimCommand;
use crate::error::CliError;

pub(crate) fn run(command: &SimCommand) -> Result<(), CliError> {
    match command {
        SimCommand::Run(args) => run::run(args),
        SimCommand::Exec(args) => exec::run(args),
        SimCommand::Report(args) => report::run(args),
        SimCommand::CheckDeterminism(args) => run::check_determinism(args),
        SimCommand::Sweep(args) => sweep::sweep(args),
        SimCommand::Diff(args) => diff::diff(args),
        SimCommand::Merge(args) => merge::merge(args),
        SimCommand::Replay(args) => replay::replay(args),
        SimCommand::Shrink(args) => shrink::shrink(args),
        SimCommand::Scenarios { name } => scenarios::run(name.as_deref()),
        SimCommand::Experiments(args) => experiments::run(args),
    }
}
