//! `urxe pingpong`: the four classic ping-pong programs, measured and verified.
//!
//! Without an address it starts a server and a client process on two loopback addresses; with `--server` and
//! `--connect` it is one of the two, on hosts of your choice. The client decides what happens and prints the
//! result; the two agree over a [`crate::control`] connection.

mod client;
mod link;
mod protocol;
mod report;
mod server;

use std::process::Stdio;
use std::time::Duration;

pub(crate) use self::protocol::Variant;
use crate::args::PingpongArgs;
use crate::control;
use crate::error::CliError;
use crate::process::{self, ChildGuard};
use crate::target::{LOOPBACK_CLIENT, LOOPBACK_SERVER};

pub(crate) fn run(args: &PingpongArgs) -> Result<(), CliError> {
    if let Some(parent) = args.role.parent {
        process::die_with(parent)?;
    }
    match (args.role.server, args.role.connect) {
        (None, None) => run_both(args),
        (Some(address), None) => server::run(address, args.role.port),
        (None, Some(server)) => client::run(server, args),
        (Some(_), Some(_)) => unreachable!("clap refuses both"),
    }
}

/// Starts a server and a client process and reports how they fared.
fn run_both(args: &PingpongArgs) -> Result<(), CliError> {
    let text = |value: &dyn ToString| value.to_string();
    let server_args = [
        "pingpong",
        "--server",
        &text(&LOOPBACK_SERVER),
        "--port",
        "0",
    ];
    let server_args: Vec<String> = server_args.map(str::to_owned).to_vec();
    let mut server = ChildGuard::spawn("server", &server_args, Stdio::piped())?;
    let port = control::announced_port(&server.first_line()?)?;

    let mut client_args = vec!["pingpong".to_owned()];
    let addresses = [("--connect", LOOPBACK_SERVER), ("--local", LOOPBACK_CLIENT)];
    for (flag, address) in addresses {
        client_args.extend([flag.to_owned(), text(&address)]);
    }
    client_args.extend([
        "--port".to_owned(),
        text(&port),
        "--size".to_owned(),
        text(&args.size),
    ]);
    if let Some(iters) = args.iters {
        client_args.extend(["--iters".to_owned(), text(&iters)]);
    }
    for variant in &args.variant {
        client_args.extend(["--variant".to_owned(), clap_name(*variant)]);
    }
    if args.json {
        client_args.push("--json".to_owned());
    }
    let mut client = ChildGuard::spawn("client", &client_args, Stdio::inherit())?;
    let client_status = client.wait()?;
    // The client says goodbye, or its end closes the connection: either ends the server.
    let server_status = server.wait_up_to(Duration::from_secs(5))?;
    if client_status.code().is_none() {
        let how = process::describe(client_status);
        return Err(CliError::Failed(format!("the client process {how}")));
    }
    match server_status {
        _ if !client_status.success() => Err(CliError::Reported),
        None => Err(CliError::Failed(
            "the server process did not end".to_owned(),
        )),
        Some(status) if !status.success() => Err(CliError::Failed(format!(
            "the server process {}",
            process::describe(status)
        ))),
        Some(_) => Ok(()),
    }
}

fn clap_name(variant: Variant) -> String {
    use clap::ValueEnum;
    let value = variant.to_possible_value().expect("no variant is hidden");
    value.get_name().to_owned()
}
