//! The floor: what bare UDP sockets do with the same packets on the same CPUs; and, of packets that go through memory, what
//! bare copies do with the same messages ([`memory`]).
//!
//! Two processes exchange packets of RoCE's sizes, batched in the best way known for this
//! system, with a checksum over each packet on both sides and the payload copied to its
//! place, as RDMA has to. There is no transport and there are no verbs: the difference to
//! a measurement of urxe is what these cost.
//!
//! [`floor_bandwidth`] and [`floor_latency`] start this executable twice more, with the
//! hidden subcommand [`ROLE_SUBCOMMAND`], which does nothing but [`run_role`].

mod bandwidth;
mod latency;
mod memory;
mod packets;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use urxe_udp::{RecvBatch, UdpConfig, UdpSocket};

use crate::error::{CliError, Context};
use crate::process::{self, ChildGuard};
use crate::samples::Samples;

/// The hidden subcommand that a child process is started with; its role follows.
pub(crate) const ROLE_SUBCOMMAND: &str = "floor-role";

/// What is exchanged, where and for how long.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FloorConfig {
    /// Bytes of a message.
    pub(crate) message: usize,
    /// Bytes of payload of a packet at most: a longer message is several packets.
    pub(crate) mtu: usize,
    /// Bytes of transport headers in the first packet of a message.
    pub(crate) first_header: usize,
    /// Bytes of transport headers in its other packets.
    pub(crate) header: usize,
    /// How long to measure bandwidth, after a quarter of that to warm up.
    pub(crate) duration: Duration,
    /// Round trips to measure latency with, after a tenth of that to warm up.
    pub(crate) rounds: usize,
    /// How the two sides of a latency measurement wait.
    pub(crate) wait: Wait,
    pub(crate) wire: Wire,
    pub(crate) sender: IpAddr,
    pub(crate) receiver: IpAddr,
    /// The CPUs that the sender and the receiver are kept on.
    pub(crate) cpus: Option<[usize; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wait {
    /// Ask the socket again and again.
    Spin,
    /// Sleep until the kernel wakes the process.
    Block,
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wire {
    Udp,
    Memory,
}

impl FloorConfig {
    /// Messages of RDMA WRITE over RC (BTH in every packet, RETH in the first) on
    /// loopback, for half a second or 20,000 round trips.
    pub(crate) fn write(message: usize, mtu: usize) -> FloorConfig {
        const BTH_LEN: usize = 12;
        const RETH_LEN: usize = 16;
        FloorConfig {
            message,
            mtu,
            first_header: BTH_LEN + RETH_LEN,
            header: BTH_LEN,
            duration: Duration::from_millis(500),
            rounds: 20_000,
            wait: Wait::Spin,
            wire: Wire::Udp,
            sender: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)),
            receiver: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
            cpus: Some([0, 1]),
        }
    }

    /// Bytes of transport headers in a packet.
    #[inline]
    fn header_of(&self, is_first: bool) -> usize {
        if is_first {
            self.first_header
        } else {
            self.header
        }
    }

    /// Fails for what cannot be measured.
    fn check(&self) -> Result<(), CliError> {
        let headers = self.first_header.min(self.header);
        let packet = packets::packet_len(self.first_header.max(self.header), self.mtu);
        if self.mtu == 0 || headers < packets::HEADER_MIN || packet > urxe_udp::Caps::PAYLOAD_MAX {
            return Err(CliError::Usage(format!(
                "no packets of {self:?} can be sent"
            )));
        }
        Ok(())
    }
}

/// What one process can get to another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct FloorBandwidth {
    /// Payload, in 10^9 bits a second.
    pub(crate) gbit_per_s: f64,
    pub(crate) msg_per_s: f64,
}

impl FloorBandwidth {
    fn new(config: &FloorConfig, msg_per_s: f64) -> FloorBandwidth {
        FloorBandwidth {
            gbit_per_s: msg_per_s * config.message as f64 * 8.0 / 1e9,
            msg_per_s,
        }
    }
}

/// How long a message takes from one process to another.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct FloorLatency {
    /// Half a round trip, median, in microseconds.
    pub(crate) p50_us: f64,
    /// Half a round trip that 99 % do not exceed.
    pub(crate) p99_us: f64,
}

impl FloorLatency {
    /// Times round trips, after some to warm up.
    fn measure(
        config: &FloorConfig,
        mut round_trip: impl FnMut() -> Result<(), CliError>,
    ) -> Result<FloorLatency, CliError> {
        let warm = config.rounds / 10;
        let mut samples = Samples::with_capacity(config.rounds);
        for round in 0..warm + config.rounds {
            let start = Instant::now();
            round_trip()?;
            if round >= warm {
                samples.push(start.elapsed());
            }
        }
        let half = |round_trip: f64| round_trip / 2.0;
        Ok(FloorLatency {
            p50_us: half(samples.percentile_us(50.0)),
            p99_us: half(samples.percentile_us(99.0)),
        })
    }
}

/// Measures a stream of messages in one direction.
pub(crate) fn floor_bandwidth(config: &FloorConfig) -> Result<FloorBandwidth, CliError> {
    run_pair(config, Measure::Bandwidth)
}

/// Measures a ping-pong of one message.
pub(crate) fn floor_latency(config: &FloorConfig) -> Result<FloorLatency, CliError> {
    if config.message > latency::MESSAGE_MAX {
        let max = latency::MESSAGE_MAX;
        return Err(CliError::Usage(format!(
            "the floor's latency is for messages up to {max}"
        )));
    }
    run_pair(config, Measure::Latency)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Measure {
    Bandwidth,
    Latency,
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
        process::pin(cpus[usize::from(role.to.is_none())]);
    }
    match role.to {
        Some(to) => run_floor_sender(role.measure, &role.config, to),
        None => run_floor_receiver(role.measure, &role.config),
    }
}

/// Sends what is to be measured, and prints the result.
fn run_floor_sender(
    measure: Measure,
    config: &FloorConfig,
    to: SocketAddr,
) -> Result<(), CliError> {
    if config.wire == Wire::Memory {
        return match measure {
            Measure::Bandwidth => print(&memory::send(config, to)?),
            Measure::Latency => print(&memory::ping(config, to)?),
        };
    }
    let socket = bind(config.sender, measure)?;
    match measure {
        Measure::Bandwidth => print(&bandwidth::send(&socket, config, to)?),
        Measure::Latency => print(&latency::ping(&socket, config, to)?),
    }
}

/// Prints its address, and receives until the sender has been silent for long.
fn run_floor_receiver(measure: Measure, config: &FloorConfig) -> Result<(), CliError> {
    if config.wire == Wire::Memory {
        let socket = std::net::UdpSocket::bind((config.receiver, 0)).map_err(failed)?;
        print(&socket.local_addr().map_err(failed)?)?;
        return match measure {
            Measure::Bandwidth => memory::receive(config, socket),
            Measure::Latency => memory::pong(config, socket),
        };
    }
    let socket = bind(config.receiver, measure)?;
    print(&socket.local_addr())?;
    match measure {
        Measure::Bandwidth => bandwidth::receive(&socket, config),
        Measure::Latency => latency::pong(&socket, config),
    }
}

/// How long a peer may be silent before it is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(5);

fn bind(ip: IpAddr, measure: Measure) -> Result<UdpSocket, CliError> {
    // A stream of packets always gains from joining; a ping-pong of one packet only pays.
    let config = UdpConfig {
        gro_on_demand: measure == Measure::Latency,
        recv_tos: false,
        ..UdpConfig::default()
    };
    let socket = UdpSocket::bind(SocketAddr::new(ip, 0), &config);
    socket.context(format_args!("cannot bind to {ip}"))
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::context("measuring the floor failed", error)
}

/// Looks for datagrams until there are some; false when none came in `limit`.
fn receive_within(
    socket: &UdpSocket,
    batch: &mut RecvBatch,
    wait: Wait,
    limit: Duration,
) -> Result<bool, CliError> {
    let look = |batch: &mut RecvBatch| Ok(socket.recv(batch).map_err(failed)? > 0);
    look_until(batch, (wait, limit), look, |_, left| {
        urxe_udp::wait(&[socket.as_fd()], Some(left)).map_err(failed)?;
        Ok(())
    })
}

/// Looks at something until there is what is waited for; false when there was not in the time given. `sleep` is between
/// looks: at once, or after spinning for long.
#[inline]
fn look_until<T>(
    at: &mut T,
    (wait, limit): (Wait, Duration),
    mut look: impl FnMut(&mut T) -> Result<bool, CliError>,
    mut sleep: impl FnMut(&mut T, Duration) -> Result<(), CliError>,
) -> Result<bool, CliError> {
    /// Looks between looks at the clock, which cost a quarter as much as one at a socket.
    const LOOKS: usize = 64;
    /// What takes longer than this is not measured: let others have the CPU.
    const SPIN_MAX: Duration = Duration::from_millis(50);
    let mut start = None;
    loop {
        let looks = if wait == Wait::Spin { LOOKS } else { 1 };
        for _ in 0..looks {
            if look(at)? {
                return Ok(true);
            }
        }
        let now = Instant::now();
        let waited = now.duration_since(*start.get_or_insert(now));
        if waited >= limit {
            return Ok(false);
        }
        if wait == Wait::Block || waited > SPIN_MAX {
            sleep(at, limit - waited)?;
        }
    }
}
