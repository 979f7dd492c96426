//! The `urxe` command: try, measure and look at RDMA on a machine without RDMA hardware.
//!
//! Programs use the crate `urxe`; this library has one function, for the programs that are the command: `urxe`, and
//! `urxe-light` of a source tree, which leaves out the features `seal` and `sim`.
//!
//! Each subcommand is a module with a `run` function; `args` is the command line, `error` what can go
//! wrong and the exit code that it ends with.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod control;
mod decode;
mod devices;
mod explain;
mod hand_over;
mod key;
mod launch;
#[cfg(feature = "manuals")]
mod manuals;
mod output;
mod package;
mod pingpong;
mod process;
mod resident;
mod scale;
#[cfg(feature = "sim")]
mod sim;
mod stat;
#[cfg(feature = "sim")]
mod study;
mod table;
mod target;
mod units;
mod usage;

use std::process::ExitCode;

use clap::Parser;
use urxe_measure::{error, pattern, samples, station, wire};

use crate::args::{Args, Command};
use crate::error::CliError;
use crate::target::Measurement;
use crate::wire::Way;

/// The command, by the arguments of this process; what it returns is to be the process's exit code.
pub fn main() -> ExitCode {
    // A usage error prints its own message and exits with 2.
    let args = Args::parse();
    match process::die_with(args.parent).and_then(|()| run(args.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_quiet() {
                eprintln!("urxe: {error}");
            }
            error.exit_code()
        }
    }
}

fn run(command: Command) -> Result<(), CliError> {
    if hand_over::lacks_ciphers(&command) {
        return hand_over::run();
    }
    match command {
        Command::Pingpong(args) => pingpong::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Run(args) => launch::run(&args),
        Command::Env(args) => launch::env(&args),
        Command::Package { .. } if !hand_over::IS_WHOLE => hand_over::run(),
        Command::Package { folder } => package::run(&folder),
        #[cfg(feature = "manuals")]
        Command::Manuals { folder } => manuals::run(&folder),
        Command::Key(command) => key::run(&command),
        Command::Devices(args) => devices::run(&args),
        Command::Decode(args) => decode::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Explain(args) => explain::run(&args),
        #[cfg(feature = "sim")]
        Command::Sim(command) => sim::run(&command),
        #[cfg(not(feature = "sim"))]
        Command::Sim { .. } => hand_over::run(),
        #[cfg(feature = "sim")]
        Command::Study(args) => study::run(&args),
        #[cfg(not(feature = "sim"))]
        Command::Study { .. } => hand_over::run(),
        Command::Scale(args) => scale::run(&args),
        Command::Target {
            of,
            address,
            wire,
            faults,
        } => {
            let serve = match of {
                Measurement::Bench => bench::target::serve,
                Measurement::Fairness => bench::fairness::target::serve,
                Measurement::Scale => scale::target::serve,
            };
            let way = Way {
                wire: wire.wire,
                faults,
            };
            target::run(address, way, serve)
        }
        Command::FloorRole { role } => bench::floor::run_role(&role),
    }
}
