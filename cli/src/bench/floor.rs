//! The processes of the [floor](urxe_measure::floor).
//!
//! [`floor_bandwidth`] and [`floor_latency`] start this executable twice more, with the
//! hidden subcommand [`ROLE_SUBCOMMAND`], which does nothing but [`run_role`].

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use urxe_measure::floor::{self, Measure, Receiver};
pub(crate) use urxe_measure::floor::{FloorBandwidth, FloorConfig, FloorLatency, Wait, Wire};
use urxe_measure::pin::pin;

use crate::error::{CliError, Context};
use crate::process::ChildGuard;

/// The hidden subcommand that a child process is started with; its role follows.
pub(crate) const ROLE_SUBCOMMAND: &str = "floor-role";

/// Measures a stream of messages in one direction.
pub(crate) fn floor_bandwidth(config: &FloorConfig) -> Result<FloorBandwidth, CliError> {
    run_pair(config, Measure::Bandwidth)
}

/// Measures a ping-pong of one message.
pub(crate) fn floor_latency(config: &FloorConfig) -> Result<FloorLatency, CliError> {
    if config.message > floor::PING_MAX {
        let max = floor::PING_MAX;
        return Err(CliError::Usage(format!(
            "the floor's latency is for messages up to {max}"
        )));
    }
    run_pair(config, Measure::Latency)
}

/// One of the two processes of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Role {
    measure: Measure,
    config: FloorConfig,
    /// Where the receiver is, for the sender; the receiver has no destination.
    to: Option<SocketAddr>,
}

/// The receiver tells its port, then the sender its result: each by one line on stdout.
fn run_pair<T: DeserializeOwned>(config: &FloorConfig, measure: Measure) -> Result<T, CliError> {
    config.check()?;
    let start = |name, to| {
        let role = Role {
            measure,
            config: config.clone(),
            to,
        };
        let role = serde_json::to_string(&role).expect("a role is plain data");
        ChildGuard::spawn(name, &[ROLE_SUBCOMMAND, &role], Stdio::piped())
    };
    let mut receiver = start("floor receiver", None)?;
    let to = parse(&receiver.first_line()?)?;
    let mut sender = start("floor sender", Some(to))?;
    // The receiver serves until it is ended, which the end of this function does.
    parse(&sender.first_line()?)
}

fn parse<T: DeserializeOwned>(line: &str) -> Result<T, CliError> {
    let what = "a process that measures the floor said something unexpected";
    serde_json::from_str(line).context(what)
}

fn print<T: Serialize>(value: &T) -> Result<(), CliError> {
    let line = serde_json::to_string(value).expect("results are plain data");
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

/// Plays one role, in the process that was started for it.
pub(crate) fn run_role(role: &str) -> Result<(), CliError> {
    let role: Role = parse(role)?;
    role.config.check()?;
    if let Some(cpus) = role.config.cpus {
        // With one CPU both share it; the same is then true of what is compared.
        pin(cpus[usize::from(role.to.is_none())]);
    }
    match (role.to, role.measure) {
        (Some(to), Measure::Bandwidth) => print(&floor::stream(&role.config, to)?),
        (Some(to), Measure::Latency) => print(&floor::ping(&role.config, to)?),
        (None, measure) => {
            let receiver = Receiver::bind(measure, &role.config)?;
            print(&receiver.addr())?;
            receiver.receive()
        }
    }
}
