//! The two processes of a measurement on this host: the one that measures starts the other, the target, talks to it over
//! a [control] connection, and sees that it ends.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;

use clap::ValueEnum;
use urxe_measure::pin::pin;

use crate::control::{self, ANSWER_MAX, Control};
use crate::error::CliError;
use crate::process::{self, ChildGuard};
use crate::station::Station;
use crate::wire::Way;

/// The two ends when no address is given. All of 127.0.0.0/8 is this host, so two devices need no set-up.
pub(crate) const LOOPBACK_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
pub(crate) const LOOPBACK_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The CPU of the measuring side and that of the target.
pub(crate) const CPUS: [usize; 2] = [0, 1];

/// The hidden subcommand that a target is started with.
pub(crate) const SUBCOMMAND: &str = "target";

/// The measurements that have a target.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Measurement {
    Bench,
    Fairness,
    Scale,
}

/// What a target does with its device, for the process at the other end of the connection.
type Serve = fn(&Station, &mut Control) -> Result<(), CliError>;

/// The target, as the measuring side sees it.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) control: Control,
    /// The process, if it was started here; ended after the connection.
    child: Option<ChildGuard>,
}

impl Target {
    /// Starts this executable again, and connects to it.
    pub(crate) fn start(of: Measurement, way: impl Into<Way>) -> Result<Target, CliError> {
        let (of, address) = (name_of(of), LOOPBACK_SERVER.to_string());
        let way = way.into();
        let wire = way.wire.map(|wire| format!("--wire={}", name_of(wire)));
        let faults = way.faults.map(|faults| format!("--faults={faults}"));
        let args = [SUBCOMMAND, &of, &address].into_iter();
        let args: Vec<_> = args
            .chain(wire.as_deref())
            .chain(faults.as_deref())
            .collect();
        let mut child = ChildGuard::spawn("target", &args, Stdio::piped())?;
        let port = control::announced_port(&child.first_line()?)?;
        let local = Some(LOOPBACK_CLIENT);
        let control = control::connect("the target", LOOPBACK_SERVER, port, local)?;
        let child = Some(child);
        Ok(Target { control, child })
    }

    /// One that a user has started on some host ([`serve_one`]).
    pub(crate) fn connect(
        server: IpAddr,
        port: u16,
        local: Option<IpAddr>,
    ) -> Result<Target, CliError> {
        let control = control::connect("the server", server, port, local)?;
        let child = None;
        Ok(Target { control, child })
    }

    /// Waits for the end of a target that was told to end.
    pub(crate) fn wait(self) -> Result<(), CliError> {
        match self.child {
            Some(mut child) => process::check_end("target", child.wait_up_to(ANSWER_MAX)?),
            None => Ok(()),
        }
    }
}

/// How the command line calls a value.
pub(crate) fn name_of(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is hidden");
    value.get_name().to_owned()
}

/// The target, in its process: opens the device and serves one measurement.
pub(crate) fn run(address: IpAddr, way: Way, serve: Serve) -> Result<(), CliError> {
    // Before the device is opened, so that its threads stay there, too.
    pin(CPUS[1]);
    serve_one(address, way, 0, serve)
}

/// Opens the device, waits for a client, and serves it. The client hears of an error, too.
pub(crate) fn serve_one(
    address: IpAddr,
    way: impl Into<Way>,
    port: u16,
    serve: Serve,
) -> Result<(), CliError> {
    // The device first: a client that is told the port finds everything there.
    let station = Station::open(address, way)?;
    let listener = control::listen(address, port)?;
    control::announce(&listener)?;
    let mut control = control::accept(&listener)?;
    let served = serve(&station, &mut control);
    if let Err(error) = &served {
        // The client may be gone already, which then is the error at hand.
        let _ = control.send_fault(error);
    }
    served
}
