//! urxe against the Linux kernel's rdma_rxe: every operation, each of the two as requester and as responder, over
//! IPv4 and IPv6. `tests/interop/run` boots the guest with the kernel and starts this in the namespace of its tap.

#![forbid(unsafe_code)]

mod accounts;
mod addresses;
mod args;
mod faults;
mod lab;
mod losses;
mod matrix;
mod one_percent;
mod outage;
mod pattern;
mod placement;
mod programs;
mod queues;
mod rc;
mod rxe_side;
mod side;
mod srq;
mod uc;
mod ud;
mod urxe_side;
mod work;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(usage) => {
            eprintln!("interop: {usage}");
            return ExitCode::from(2);
        }
    };
    match matrix::run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}
