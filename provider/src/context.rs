//! An opened device.

mod builder;
mod congestion;
mod shards;

use core::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use urxe_core::qp::attr::Mtu;
use urxe_wire::Gid;

use crate::async_event::AsyncEvent;
use crate::comp_channel::CompChannel;
use crate::cq::Cq;
use crate::cq_builder::CqBuilder;
use crate::cq_poll::RtValues;
use crate::engine::{Engine, ProgressThread};
use crate::error::Error;
use crate::limits::{DeviceAttr, LIMITS};
use crate::pd::Pd;
use crate::pd_numbers::PdNumbers;
use crate::port::{PortAttr, PortState};
use crate::port_speed::PortSpeed;
use crate::strict::StrictReport;
use crate::xrcd::XrcdTable;

pub use builder::ContextBuilder;
pub(crate) use shards::Shards;

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
#[derive(Clone)]
#[doc(alias = "ibv_context")]
pub struct Context {
    inner: Arc<ContextInner>,
}

struct ContextInner {
    /// Stops when this is dropped, after all objects are gone.
    _progress: Box<[ProgressThread]>,
    shards: Shards,
    active_mtu: Mtu,
    speed: PortSpeed,
    pd_numbers: PdNumbers,
    xrcds: XrcdTable,
}

impl Context {
    /// Opens the device that has `addr`, for this address alone.
    ///
    /// # Errors
    /// [`crate::ErrorKind::AddrInUse`] if another program owns UDP port 4791 of the address,
    /// [`crate::ErrorKind::NoAddress`] if this host does not have it.
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
        self.engine().sockets.addrs()
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
    /// [`crate::ErrorKind::TooManyPds`]; after a fork, in the child.
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
        self.shards().counters()
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
        self.shards().take_strict_reports()
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

    /// The engine of what is not in all shards, or in one of them.
    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        self.inner.shards.first()
    }

    #[inline]
    pub(crate) fn shards(&self) -> &Shards {
        &self.inner.shards
    }

    /// How many engines work for it ([`ContextBuilder::shards`]).
    pub fn shard_count(&self) -> usize {
        self.inner.shards.count()
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
