//! An opened device.

use core::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use urxe_core::qp::attr::Mtu;
use urxe_core::{Recovery, ShardConfig, SourcePorts};
use urxe_udp::UdpConfig;
use urxe_wire::{Gid, IcrcPolicy};

use crate::async_event::AsyncEvent;
use crate::comp_channel::CompChannel;
use crate::cq::Cq;
use crate::cq_builder::CqBuilder;
use crate::cq_poll::RtValues;
use crate::engine::{CAPTURING, Engine, EngineConfig, FAULTY, ProgressThread};
use crate::error::{Error, ErrorKind};
use crate::faults::{FaultSpec, FaultSpecError};
use crate::host::environment;
use crate::limits::{DeviceAttr, LIMITS};
use crate::network::{self, Adapter, Driven};
use crate::pd::Pd;
use crate::pd_numbers::PdNumbers;
use crate::port::{PortAttr, PortState, interface_mtu};
use crate::port_speed::PortSpeed;
use crate::recovery;
use crate::strict::{StrictMode, StrictReport};
use crate::wire::Wire;
use crate::xrcd::XrcdTable;

/// An opened device: the owner of UDP port 4791 on its addresses.
///
/// Everything else is created from it and keeps it alive. When the last of it is
/// dropped, the port is free again. It is a handle: clones are the same context.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// // Any address of this host; on loopback each of 127.0.0.0/8 is a host of its own.
/// let context = urxe::Context::open("127.81.0.4".parse().unwrap())?;
/// let pd = context.alloc_pd()?;
/// let cq = context.create_cq(16)?;
/// # let _ = (pd, cq);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_context")]
pub struct Context {
    inner: Arc<ContextInner>,
}

#[derive(Debug)]
struct ContextInner {
    /// Stops when this is dropped, after all objects are gone.
    _progress: Option<ProgressThread>,
    engine: Arc<Engine>,
    active_mtu: Mtu,
    speed: PortSpeed,
    pd_numbers: PdNumbers,
    xrcds: XrcdTable,
}

impl Context {
    /// Opens the device that has `addr`, for this address alone.
    ///
    /// # Errors
    /// [`ErrorKind::AddrInUse`] if another program owns UDP port 4791 of the address,
    /// [`ErrorKind::NoAddress`] if this host does not have it.
    #[doc(alias = "ibv_open_device")]
    pub fn open(addr: IpAddr) -> Result<Context, Error> {
        Context::builder(addr).open()
    }

    /// Opens a context with settings.
    pub fn builder(addr: IpAddr) -> ContextBuilder {
        ContextBuilder::new(vec![addr])
    }

    /// The limits.
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device(&self) -> DeviceAttr {
        LIMITS
    }

    /// State, MTU and speed of port 1, the only one.
    ///
    /// # Errors
    /// If `port` is not 1.
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<PortAttr, Error> {
        self.check_port(port)?;
        Ok(PortAttr {
            state: if self.engine().port.is_up() {
                PortState::Active
            } else {
                PortState::Down
            },
            max_mtu: Mtu::Mtu4096,
            active_mtu: self.active_mtu(),
            speed: self.inner.speed,
            gid_tbl_len: self.addresses().count() as u32,
            pkey_tbl_len: LIMITS.max_pkeys,
            max_msg_sz: LIMITS.max_msg_sz,
        })
    }

    /// An entry of the GID table of port 1: the address with that index, as a GID. All
    /// zeroes while the interface does not have that address any more
    /// ([`AsyncEvent::GidChange`]).
    ///
    /// # Errors
    /// If there is no such port or entry.
    #[doc(alias = "ibv_query_gid")]
    pub fn query_gid(&self, port: u8, index: u32) -> Result<Gid, Error> {
        self.check_port(port)?;
        if self.engine().port.is_lost(index as usize) {
            return Ok(Gid([0; 16]));
        }
        let addr = self.addresses().nth(index as usize);
        let error = || Error::value("the GID index", index.into(), "the table ends before it");
        addr.map(Gid::from).ok_or_else(error)
    }

    /// The context's addresses, in the order of the GID table.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.inner.engine.sockets.addrs()
    }

    /// The first of its addresses.
    pub fn address(&self) -> IpAddr {
        self.addresses()
            .next()
            .expect("no context is opened without an address")
    }

    /// The first of them that has the IP version of another address.
    pub(crate) fn address_like(&self, other: IpAddr) -> Option<IpAddr> {
        let mut addresses = self.addresses();
        addresses.find(|addr| addr.is_ipv4() == other.is_ipv4())
    }

    /// The largest MTU that the interface can carry, or what it was limited to.
    pub fn active_mtu(&self) -> Mtu {
        self.inner.active_mtu
    }

    /// A new protection domain.
    ///
    /// # Errors
    /// [`ErrorKind::TooManyPds`]; after a fork, in the child.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<Pd, Error> {
        self.engine().check_process()?;
        Ok(Pd::new(self, self.inner.pd_numbers.take()?))
    }

    /// A completion queue for up to `cqe` completions, to be polled.
    ///
    /// # Errors
    /// If the size is not possible.
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(&self, cqe: usize) -> Result<Cq, Error> {
        Cq::create(self, cqe, None, false)
    }

    /// A completion queue that can raise events on `channel`.
    ///
    /// # Errors
    /// If the size is not possible, or the channel is of another context.
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq_with_channel(&self, cqe: usize, channel: &CompChannel) -> Result<Cq, Error> {
        Cq::create(self, cqe, Some(channel), false)
    }

    /// A completion queue with options: `context.cq(64).timestamps().create()`.
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn cq(&self, cqe: usize) -> CqBuilder<'_> {
        CqBuilder::new(self, cqe)
    }

    /// The raw clock of completion timestamps, now.
    ///
    /// # Errors
    /// After a fork, in the child.
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn query_rt_values(&self) -> Result<RtValues, Error> {
        self.engine().check_process()?;
        Ok(RtValues {
            raw_clock_ns: self.engine().clock.now().0,
        })
    }

    /// What the system's clock said when the raw clock of [`Context::query_rt_values`] said this, in nanoseconds since
    /// 1970.
    ///
    /// The two clocks are compared once, when the context is opened. So times never go back, and lie as far from each
    /// other as the raw ones; and where the system's clock is set later, they do not follow, nor do those of an adapter:
    /// its clock is set when its driver starts.
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    pub fn wallclock_ns(&self, raw_clock_ns: u64) -> u64 {
        self.engine().clock.wall_ns(urxe_core::Time(raw_clock_ns))
    }

    /// A channel on which completion queues raise events.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(&self) -> Result<CompChannel, Error> {
        CompChannel::create(self)
    }

    /// The next asynchronous event, if there is one.
    #[doc(alias = "ibv_get_async_event")]
    pub fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.engine().events.try_take()
    }

    /// Waits for an asynchronous event, as long as `timeout` allows (`None`: for ever).
    ///
    /// # Errors
    /// After a fork, in the child; or if the system cannot wait.
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Error> {
        self.engine().wait_for_event(&self.engine().events, timeout)
    }

    /// A descriptor that is readable while there are asynchronous events, for the
    /// program's own poll loop.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.engine().events.expose()
    }

    /// All counters, by name. `urxe stat` shows them from outside.
    ///
    /// # Errors
    /// After a fork, in the child.
    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>, Error> {
        self.engine().check_process()?;
        self.engine().counters()
    }

    /// The findings of strict mode since the last call, oldest first; none when it is off.
    /// Once a program has asked, findings are no longer printed.
    ///
    /// ```
    /// # fn main() -> Result<(), urxe::Error> {
    /// use urxe::{Access, Context, StrictMode, StrictRule};
    ///
    /// let context = Context::builder("127.81.0.15".parse().unwrap())
    ///     .strict(StrictMode::Report)
    ///     .open()?;
    /// assert!(context.take_strict_reports()?.is_empty());
    /// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    /// let qp = pd.qp(&cq).create()?;
    /// qp.init(Access::LOCAL_WRITE)?;
    ///
    /// let inbox = pd.reg_owned(vec![0; 64], Access::LOCAL_WRITE)?;
    /// qp.post_recv(&urxe::RecvWr::new(1, &[inbox.sge(..)]))?;
    /// inbox.read(0, &mut [0; 64]); // too early: nothing completed
    ///
    /// let reports = context.take_strict_reports()?;
    /// assert_eq!(reports[0].rule, StrictRule::ReceiveBufferRead);
    /// assert_eq!(reports[0].wr_id, Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// After a fork, in the child.
    pub fn take_strict_reports(&self) -> Result<Vec<StrictReport>, Error> {
        self.engine().check_process()?;
        Ok(self.engine().take_strict_reports()?)
    }

    /// True if both are handles of one context.
    pub fn is(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn pd_numbers(&self) -> &PdNumbers {
        &self.inner.pd_numbers
    }

    /// Its XRC domains that can be found by a file.
    pub(crate) fn xrcds(&self) -> &XrcdTable {
        &self.inner.xrcds
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn check_port(&self, port: u8) -> Result<(), Error> {
        if port == 1 {
            return Ok(());
        }
        let (name, allowed) = ("the port number", "1 is the only one");
        Err(Error::value(name, port.into(), allowed))
    }
}

impl PartialEq for Context {
    /// True if both are the same context.
    fn eq(&self, other: &Context) -> bool {
        self.is(other)
    }
}

impl Eq for Context {}

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
    mtu: Option<Mtu>,
    common_mtu: Option<Mtu>,
    /// The same.
    speed: Option<PortSpeed>,
    /// The same.
    recovery: Option<Recovery>,
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
            mtu: None,
            common_mtu: None,
            speed: None,
            recovery: None,
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

    /// Sets faults for packets on their way out, for tests (docs/FAULTS.md), or none
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

    /// Lets other contexts, of this process or of others of the same user, open the same
    /// addresses. On by default. Without it the context has the addresses alone, or opening fails.
    #[must_use]
    pub fn share(mut self, on: bool) -> Self {
        self.engine.share = on;
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
        let link_mtu = Mtu::for_interface(link_mtu.ok_or(ErrorKind::NoAddressOnDevice)?);
        let mtu = self
            .mtu
            .map_or_else(mtu_of_environment, |mtu| Ok(Some(mtu)))?;
        let mtu_max = mtu.map_or(link_mtu, |mtu| link_mtu.min(mtu));
        // Who says how large packets shall be, says it of all devices.
        let common = self.common_mtu.filter(|_| mtu.is_none());
        let active_mtu = common.map_or(mtu_max, |common| common.min(mtu_max));
        let speed = self.speed.map_or_else(PortSpeed::of_environment, Ok)?;
        let mut config = self.engine;
        config.faults = self.faults.map_or_else(faults_of_environment, Ok)?;
        config.wire = self.wire.map_or_else(Wire::of_environment, Ok)?;
        let recovery = self.recovery.map_or_else(recovery::of_environment, Ok)?;
        config.shard.recovery = recovery;
        config.strict = self.strict.map_or_else(StrictMode::of_environment, Ok)?;
        environment::seed()?;
        if config.network.is_some() {
            config.shard = on_network(config.shard);
        }
        config.shard.mtu_max = mtu_max;
        let engine = Arc::new(Engine::open(&config)?);
        if config.faults.is_some() {
            FAULTY.note(&engine);
        }
        if config.tap.is_some() {
            CAPTURING.note(&engine);
        }
        let progress = match &config.network {
            // The network is the thread.
            Some(network) => {
                let driven: Arc<dyn Driven> = engine.clone();
                network.attach(Adapter::new(Arc::downgrade(&driven)));
                None
            }
            None => Some(ProgressThread::start(engine.clone())?),
        };
        let inner = ContextInner {
            _progress: progress,
            engine,
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
