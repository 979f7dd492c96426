//! How a context is opened.

use core::net::IpAddr;
use core::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use urxe_core::congestion::CongestionControl;
use urxe_core::qp::attr::Mtu;
use urxe_core::{Recovery, ShardConfig, SourcePorts};
use urxe_seal::OVERHEAD;
use urxe_udp::UdpConfig;
use urxe_wire::IcrcPolicy;

use super::shards::{self, SHARDS_MAX, Shards};
use super::{Context, ContextInner, congestion};
use crate::engine::{CAPTURING, EngineConfig, FAULTY, ProgressThread};
use crate::error::{Error, ErrorKind};
use crate::faults::{FaultSpec, FaultSpecError};
use crate::host::environment;
use crate::limits::LIMITS;
use crate::mem::guarded;
use crate::network::{self, Adapter, Driven};
use crate::pd_numbers::PdNumbers;
use crate::port::interface_mtu;
use crate::port_speed::PortSpeed;
use crate::recovery;
use crate::security::{Sealing, Security};
use crate::strict::StrictMode;
use crate::wire::Wire;
use crate::xrcd::XrcdTable;

/// Packets that a window begins with: a road of which nothing is known holds few. It doubles with each round trip.
const WINDOW_PACKETS_START: u32 = 32;

/// Settings of a context that is to be opened.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// let context = urxe::Context::builder("127.81.0.5".parse().unwrap())
///     .offload(false)
///     .window_bytes(64 << 10)
///     .open()?;
/// # let _ = context;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ContextBuilder {
    engine: EngineConfig,
    /// None: what the environment says.
    strict: Option<StrictMode>,
    /// The same.
    faults: Option<Option<FaultSpec>>,
    wire: Option<Wire>,
    /// The same.
    security: Option<Security>,
    /// The same.
    key_file: Option<PathBuf>,
    /// The same.
    mtu: Option<Mtu>,
    common_mtu: Option<Mtu>,
    /// The same.
    speed: Option<PortSpeed>,
    /// The same.
    recovery: Option<Recovery>,
    /// The same.
    congestion: Option<CongestionControl>,
    /// The same.
    shards: Option<u32>,
}

impl ContextBuilder {
    pub(crate) fn new(addresses: Vec<IpAddr>) -> ContextBuilder {
        let engine = EngineConfig {
            addresses,
            shard: ShardConfig::default(),
            window_bytes: None,
            // The traffic class is looked at from the first connection on that uses ECN.
            udp: UdpConfig {
                recv_tos: false,
                ..UdpConfig::default()
            },
            share: true,
            tap: environment::value(environment::PCAP).map(PathBuf::from),
            wire: Wire::Auto,
            sealing: None,
            has_equal_keys: false,
            strict: StrictMode::Off,
            strict_seed: None,
            faults: None,
            network: network::current(),
        };
        ContextBuilder {
            engine,
            strict: None,
            faults: None,
            wire: None,
            security: None,
            key_file: None,
            mtu: None,
            common_mtu: None,
            speed: None,
            recovery: None,
            congestion: None,
            shards: None,
        }
    }

    /// Writes every packet to this file, in pcapng format; `%p` in the name becomes the
    /// process id. The environment variable `URXE_PCAP` does the same for all contexts.
    #[must_use]
    pub fn pcap(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.tap = Some(path.into());
        self
    }

    /// Lets the kernel cut trains of packets when sending and join them when receiving.
    /// On by default; without it bulk transfers are several times slower.
    #[must_use]
    pub fn offload(mut self, on: bool) -> Self {
        self.engine.udp.gso = on;
        self.engine.udp.gro = on;
        self
    }

    /// Bytes that a QP may have in flight. More than the peer's socket buffer holds is
    /// lost and sent again. By default a share of the own socket's buffer, as peers
    /// usually have the same.
    #[must_use]
    pub fn window_bytes(mut self, bytes: u32) -> Self {
        self.engine.window_bytes = Some(bytes);
        self
    }

    /// Bytes of socket buffer to ask the system for, each way.
    #[must_use]
    pub fn socket_buffer(mut self, bytes: usize) -> Self {
        self.engine.udp.recv_buffer = bytes;
        self.engine.udp.send_buffer = bytes;
        self
    }

    /// How strictly the ICRC of received packets is verified.
    #[must_use]
    pub fn icrc_policy(mut self, policy: IcrcPolicy) -> Self {
        self.engine.shard.icrc = policy;
        self
    }

    /// Whether strict mode looks for uses of verbs that work by luck, at the cost of speed. The
    /// environment variable `URXE_STRICT` does the same for all contexts.
    #[must_use]
    pub fn strict(mut self, mode: StrictMode) -> Self {
        self.strict = Some(mode);
        self
    }

    /// Whether a region's lkey and rkey are one number, as most adapters have it: for programs that send peers one where the
    /// other belongs. Off by default: the peer is refused then, and told why; and in strict mode, which reports the place.
    #[must_use]
    pub fn equal_keys(mut self, are_equal: bool) -> Self {
        self.engine.has_equal_keys = are_equal;
        self
    }

    /// The seed of strict mode's decisions: the same number repeats them, as far as
    /// packets and threads come in the same order. By default the environment variable
    /// `URXE_SEED`, or else a number that is printed.
    #[must_use]
    pub fn strict_seed(mut self, seed: u64) -> Self {
        self.engine.strict_seed = Some(seed);
        self
    }

    /// What packets to QPs of this host travel through. The environment variable `URXE_WIRE` sets the default.
    #[must_use]
    pub fn wire(mut self, wire: Wire) -> Self {
        self.wire = Some(wire);
        self
    }

    /// What is done for packets that pass sockets ([SEALED.md](https://github.com/urxe/urxe/blob/main/docs/SEALED.md)).
    /// The environment variable `URXE_SECURITY` does the same for all contexts;
    /// without either, a key file means [`Security::Seal`].
    #[must_use]
    pub fn security(mut self, security: Security) -> Self {
        self.security = Some(security);
        self
    }

    /// The secrets that packets are sealed with: a file that `urxe key new` made, and that no other user may read. The environment variable
    /// `URXE_KEY_FILE` does the same for all contexts.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), urxe::Error> {
    /// let context = urxe::Context::builder("10.0.0.1".parse().unwrap())
    ///     .security(urxe::Security::SealRequired)
    ///     .key_file("/etc/urxe.key")
    ///     .open()?;
    /// # let _ = context;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key_file = Some(path.into());
        self
    }

    /// Sets faults for packets on their way out, for tests ([FAULTS.md](https://github.com/urxe/urxe/blob/main/docs/FAULTS.md)), or none
    /// whatever the environment says. The environment variable `URXE_FAULTS` does the same
    /// for all contexts. Packets then leave one by one, without offload.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = urxe::Context::builder("127.81.0.21".parse()?)
    ///     .faults(Some("drop=2%,seed=7".parse()?))
    ///     .open()?;
    /// let counters = context.counters()?;
    /// assert!(counters.contains(&("fault_dropped", 0)), "nothing was sent so far");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn faults(mut self, faults: Option<FaultSpec>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// The largest path MTU to offer, if the interface can carry it. QPs that ask for more
    /// are refused. The environment variable `URXE_MTU` does the same for all contexts.
    #[must_use]
    pub fn mtu(mut self, mtu: Mtu) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// What the port reports as its MTU, for it is one of several with different MTUs: a program may connect any two of
    /// them, and takes for both what one of them says. QPs that ask for what the interface can carry have it.
    pub(crate) fn common_mtu(mut self, mtu: Option<Mtu>) -> Self {
        self.common_mtu = mtu;
        self
    }

    /// The speed that the port reports; 100 Gb/s by default. The environment variable
    /// `URXE_SPEED` does the same for all contexts.
    #[must_use]
    pub fn speed(mut self, speed: PortSpeed) -> Self {
        self.speed = Some(speed);
        self
    }

    /// What is done about lost packets; [`Recovery::Selective`] by default. The environment variable `URXE_RECOVERY` does
    /// the same for all contexts.
    #[must_use]
    pub fn recovery(mut self, recovery: Recovery) -> Self {
        self.recovery = Some(recovery);
        self
    }

    /// How new connections (RC and XRC) react to congestion; [`CongestionControl::Auto`] by default. [`crate::Qp::set_congestion_control`]
    /// sets it for one. The environment variable `URXE_CONGESTION` does the same for all contexts.
    #[must_use]
    pub fn congestion(mut self, control: CongestionControl) -> Self {
        self.congestion = Some(control);
        self
    }

    /// Lets other contexts, of this process or of others of the same user, open the same
    /// addresses. On by default. Without it the context has the addresses alone, or opening fails.
    #[must_use]
    pub fn share(mut self, on: bool) -> Self {
        self.engine.share = on;
        self
    }

    /// Has so many engines work for the context, each with a lock, sockets and a progress thread of its own, so that threads on several
    /// processors move packets at the same time. 1 by default; 64 at most. The environment variable `URXE_SHARDS` does the same for all
    /// contexts.
    ///
    /// A QP is in one of them: in that of the QPs with the same completion queue, or the next in turn, or what [`crate::QpBuilder::shard`]
    /// says. So threads that each have a completion queue of their own do not wait for each other. Memory windows and keys that peers
    /// invalidate need a context of one shard. Strict mode, simulated networks and contexts that share their addresses with no other
    /// have one always: [`Context::shard_count`] tells.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// let context = urxe::Context::builder("127.81.0.52".parse().unwrap()).shards(2).open()?;
    /// let pd = context.alloc_pd()?;
    /// let cqs = [context.create_cq(64)?, context.create_cq(64)?];
    /// // Two threads may use these without meeting in a lock.
    /// let qps = [pd.qp(&cqs[0]).create()?, pd.qp(&cqs[1]).create()?];
    /// assert_ne!(qps[0].shard(), qps[1].shard());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shards(mut self, count: u32) -> Self {
        self.shards = Some(count);
        self
    }

    /// Opens the context.
    ///
    /// # Errors
    /// See [`Context::open`]; and if the capture file cannot be written.
    pub fn open(self) -> Result<Context, Error> {
        // All addresses of a device are of one interface.
        let addresses = self.engine.addresses.iter();
        let link_mtu = addresses.map(|&addr| self.link_mtu(addr)).min();
        let sealing = Sealing::choose(self.security, self.key_file)?;
        let overhead = sealing.as_ref().map_or(0, |_| OVERHEAD as u32);
        let link_mtu = link_mtu.ok_or(ErrorKind::NoAddressOnDevice)?;
        let link_mtu = Mtu::for_interface(link_mtu.saturating_sub(overhead));
        let mtu = self
            .mtu
            .map_or_else(mtu_of_environment, |mtu| Ok(Some(mtu)))?;
        let mtu_max = mtu.map_or(link_mtu, |mtu| link_mtu.min(mtu));
        // Who says how large packets shall be, says it of all devices.
        let common = self.common_mtu.filter(|_| mtu.is_none());
        let active_mtu = common.map_or(mtu_max, |common| common.min(mtu_max));
        let speed = self.speed.map_or_else(PortSpeed::of_environment, Ok)?;
        let mut config = self.engine;
        config.sealing = sealing;
        config.faults = self.faults.map_or_else(faults_of_environment, Ok)?;
        config.wire = self.wire.map_or_else(Wire::of_environment, Ok)?;
        let recovery = self.recovery.map_or_else(recovery::of_environment, Ok)?;
        config.shard.recovery = recovery;
        let asked = self.congestion.map(congestion::checked);
        config.shard.congestion = asked.unwrap_or_else(congestion::of_environment)?;
        // Sealed packets are built as those for memory are, and pass networks.
        config.shard.memory_loses = config.faults.is_some() || config.sealing.is_some();
        config.shard.window_packets_start = WINDOW_PACKETS_START;
        config.strict = self.strict.map_or_else(StrictMode::of_environment, Ok)?;
        environment::seed()?;
        if config.network.is_some() {
            // What runs the program there may have put signal handlers of its own in front, as coroutines do for their stacks;
            // and no thread in the background sees to ours.
            guarded::protect();
            if config.sealing.is_some() {
                return Err(ErrorKind::Unsupported(NOT_SEALED).into());
            }
            config.shard = on_network(config.shard);
        }
        config.shard.mtu_max = mtu_max;
        let count = shards_of(self.shards, &config)?;
        let shards = Shards::open(&config, count)?;
        let mut progress = Vec::new();
        for engine in shards.each() {
            if config.faults.is_some() {
                FAULTY.note(engine);
            }
            if config.tap.is_some() {
                CAPTURING.note(engine);
            }
            match &config.network {
                // The network is the thread.
                Some(network) => {
                    let driven: Arc<dyn Driven> = engine.clone();
                    network.attach(Adapter::new(Arc::downgrade(&driven)));
                }
                None => progress.push(ProgressThread::start(engine.clone())?),
            }
        }
        let inner = ContextInner {
            _progress: progress.into(),
            shards,
            active_mtu,
            speed,
            pd_numbers: PdNumbers::new(LIMITS.max_pd),
            xrcds: XrcdTable::default(),
        };
        Ok(Context {
            inner: Arc::new(inner),
        })
    }
}

const NOT_SEALED: &str = "a network that is no sockets seals no packets: set URXE_SECURITY=off";

/// How many engines: what the program says, or the environment.
fn shards_of(asked: Option<u32>, config: &EngineConfig) -> Result<NonZeroU32, Error> {
    let given = match asked {
        None => shards::of_environment()?,
        Some(count) => Some(
            NonZeroU32::new(count)
                .filter(|count| count.get() <= SHARDS_MAX)
                .ok_or_else(|| {
                    let name = "the number of shards";
                    Error::value(name, count.into(), "it is from 1 to 64")
                })?,
        ),
    };
    let count = given.unwrap_or(NonZeroU32::MIN);
    // One engine judges what strict mode sees, and a network drives one.
    let is_one = config.strict != StrictMode::Off || config.network.is_some();
    Ok(if is_one { NonZeroU32::MIN } else { count })
}

impl ContextBuilder {
    fn link_mtu(&self, addr: IpAddr) -> u32 {
        let network = self.engine.network.as_ref();
        let on_network = network.and_then(|network| network.interface_mtu(addr));
        on_network.unwrap_or_else(|| interface_mtu(addr))
    }
}

/// What a network can do and one socket for everything cannot: a UDP port for each connection, and a
/// wake-up for each packet.
fn on_network(shard: ShardConfig) -> ShardConfig {
    ShardConfig {
        source_ports: SourcePorts::PerQp,
        pace_burst_bytes: 0,
        ..shard
    }
}

fn mtu_of_environment() -> Result<Option<Mtu>, Error> {
    let parse = |text: &str| {
        let mtu = text.parse().ok().and_then(Mtu::from_bytes);
        mtu.ok_or_else(|| format!("\"{text}\" is none of 256, 512, 1024, 2048 and 4096"))
    };
    environment::parsed(environment::MTU, parse)
}

fn faults_of_environment() -> Result<Option<FaultSpec>, Error> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|error: FaultSpecError| error.to_string())
    };
    environment::parsed(environment::FAULTS, parse)
}
