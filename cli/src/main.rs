//! The program `urxe`. What it does is in the library of this crate.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    urxe_cli::main()
}
