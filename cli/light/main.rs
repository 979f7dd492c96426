//! The command as a clone builds it first: without the simulator and sealed packets, which take half of the time.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    urxe_cli_light::main()
}
