//! `urxe pingpong`: the four classic ping-pong programs, measured and verified.
//!
//! Without an address it starts a server and a client process on two loopback addresses; with `--server` and
//! `--connect` it is one of the two, on hosts of your choice. The client decides what happens and prints the
//! result; the two agree over a [`crate::control`] connection.

mod client;
mod protocol;
mod report;
mod server;

use std::process::Stdio;
use std::time::Duration;

pub(crate) use self::protocol::Variant;
use crate::args::PingpongArgs;
use crate::bench::busy;
use crate::control;
use crate::error::CliError;
use crate::process::{self, ChildGuard};
use crate::target::{LOOPBACK_CLIENT, LOOPBACK_SERVER, name_of};

pub(crate) fn run(args: &PingpongArgs) -> Result<(), CliError> {
    match (args.role.server, args.role.connect) {
        (None, None) => run_both(args),
        (Some(address), None) => server::run(address, args.role.port, args.wire.wire),
        (None, Some(server)) => client::run(server, args),
        (Some(_), Some(_)) => unreachable!("clap refuses both"),
    }
}

/// Starts a server and a client process and reports how they fared.
fn run_both(args: &PingpongArgs) -> Result<(), CliError> {
    if let Some(note) = busy::note() {
        eprintln!("urxe: {note}");
    }
    let line = format!("pingpong --server {LOOPBACK_SERVER} --port 0");
    let wire = args
        .wire
        .wire
        .map_or_else(String::new, |wire| format!(" --wire {}", name_of(wire)));
    let line = line + &wire;
    let words: Vec<&str> = line.split(' ').collect();
    let mut server = ChildGuard::spawn("server", &words, Stdio::piped())?;
    let port = control::announced_port(&server.first_line()?)?;

    let mut line = format!(
        "pingpong --connect {LOOPBACK_SERVER} --local {LOOPBACK_CLIENT} --port {port} --size {}",
        args.size
    );
    if let Some(iters) = args.iters {
        line += &format!(" --iters {iters}");
    }
    for &variant in &args.variant {
        line += &format!(" --variant {}", name_of(variant));
    }
    line += &wire;
    if args.json {
        line += " --json";
    }
    let words: Vec<&str> = line.split(' ').collect();
    let mut client = ChildGuard::spawn("client", &words, Stdio::inherit())?;
    let client_status = client.wait()?;
    // The client says goodbye, or its end closes the connection: either ends the server.
    let server_status = server.wait_up_to(Duration::from_secs(5))?;
    if client_status.code().is_none() {
        let how = process::describe(client_status);
        return Err(CliError::Failed(format!("the client process {how}")));
    }
    match server_status {
        _ if !client_status.success() => Err(CliError::Reported),
        status => process::check_end("server", status),
    }
}
