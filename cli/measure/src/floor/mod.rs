//! The floor: what bare UDP sockets do with the same packets on the same CPUs; and, of packets that go through memory, what
//! bare copies do with the same messages (`memory`).
//!
//! Two processes exchange packets of RoCE's sizes, batched in the best way known for this
//! system, with a checksum over each packet on both sides and the payload copied to its
//! place, as RDMA has to. There is no transport and there are no verbs: the difference to
//! a measurement of urxe is what these cost.
//!
//! One process is a [`Receiver`], the other calls [`stream`] or [`ping`].

mod bandwidth;
mod latency;
mod memory;
mod packets;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use urxe_udp::{RecvBatch, UdpConfig, UdpSocket};

use crate::error::{CliError, Context};
use crate::samples::Samples;

pub use self::latency::MESSAGE_MAX as PING_MAX;

/// What is exchanged, where and for how long.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FloorConfig {
    /// Bytes of a message.
    pub message: usize,
    /// Bytes of payload of a packet at most: a longer message is several packets.
    pub mtu: usize,
    /// Bytes of transport headers in the first packet of a message.
    pub first_header: usize,
    /// Bytes of transport headers in its other packets.
    pub header: usize,
    /// How long to measure bandwidth, after a quarter of that to warm up.
    pub duration: Duration,
    /// Round trips to measure latency with, after a tenth of that to warm up.
    pub rounds: usize,
    /// How the two sides of a latency measurement wait.
    pub wait: Wait,
    pub wire: Wire,
    pub sender: IpAddr,
    pub receiver: IpAddr,
    /// The CPUs that the sender and the receiver are kept on.
    pub cpus: Option<[usize; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Ask the socket again and again.
    Spin,
    /// Sleep until the kernel wakes the process.
    Block,
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wire {
    Udp,
    Memory,
}

impl FloorConfig {
    /// Messages of RDMA WRITE over RC (BTH in every packet, RETH in the first) on
    /// loopback, for half a second or 20,000 round trips.
    pub fn write(message: usize, mtu: usize) -> FloorConfig {
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
    ///
    /// # Errors
    /// The packets are too short, or too long.
    pub fn check(&self) -> Result<(), CliError> {
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
pub struct FloorBandwidth {
    /// Payload, in 10^9 bits a second.
    pub gbit_per_s: f64,
    pub msg_per_s: f64,
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
pub struct FloorLatency {
    /// Half a round trip, median, in microseconds.
    pub p50_us: f64,
    /// Half a round trip that 99 % do not exceed.
    pub p99_us: f64,
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

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    Bandwidth,
    Latency,
}

/// The sending side of a stream of messages in one direction.
///
/// # Errors
/// The system says no, or the receiver says nothing.
pub fn stream(config: &FloorConfig, to: SocketAddr) -> Result<FloorBandwidth, CliError> {
    match config.wire {
        Wire::Memory => memory::send(config, to),
        Wire::Udp => bandwidth::send(&bind(config.sender, Measure::Bandwidth)?, config, to),
    }
}

/// The side of a ping-pong of one message that measures.
///
/// # Errors
/// As of [`stream`].
pub fn ping(config: &FloorConfig, to: SocketAddr) -> Result<FloorLatency, CliError> {
    match config.wire {
        Wire::Memory => memory::ping(config, to),
        Wire::Udp => latency::ping(&bind(config.sender, Measure::Latency)?, config, to),
    }
}

/// The side that receives, or answers.
#[derive(Debug)]
pub struct Receiver {
    measure: Measure,
    config: FloorConfig,
    socket: Socket,
    addr: SocketAddr,
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    /// Where the sender tells of its memory.
    OfMemory(std::net::UdpSocket),
}

impl Receiver {
    /// One that senders can reach.
    ///
    /// # Errors
    /// There is no socket to be had at the address.
    pub fn bind(measure: Measure, config: &FloorConfig) -> Result<Receiver, CliError> {
        let (socket, addr) = match config.wire {
            Wire::Memory => {
                let socket = std::net::UdpSocket::bind((config.receiver, 0)).map_err(failed)?;
                let addr = socket.local_addr().map_err(failed)?;
                (Socket::OfMemory(socket), addr)
            }
            Wire::Udp => {
                let socket = bind(config.receiver, measure)?;
                let addr = socket.local_addr();
                (Socket::Udp(socket), addr)
            }
        };
        Ok(Receiver {
            measure,
            config: config.clone(),
            socket,
            addr,
        })
    }

    /// Where it is.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Receives until the sender has been silent for long.
    ///
    /// # Errors
    /// The system says no.
    pub fn receive(self) -> Result<(), CliError> {
        let config = &self.config;
        match (self.measure, self.socket) {
            (Measure::Bandwidth, Socket::OfMemory(socket)) => memory::receive(config, socket),
            (Measure::Latency, Socket::OfMemory(socket)) => memory::pong(config, socket),
            (Measure::Bandwidth, Socket::Udp(socket)) => bandwidth::receive(&socket, config),
            (Measure::Latency, Socket::Udp(socket)) => latency::pong(&socket, config),
        }
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
