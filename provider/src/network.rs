//! A network of the program's own in place of UDP sockets: how a simulation runs programs
//! that were written against this crate, in virtual time.
//!
//! A thread that has [`enter`]ed a network opens its contexts there, by the very calls that
//! open sockets elsewhere. Such a context has no socket, no clock, no randomness and no thread of its own:
//!
//! * what it sends goes to [`Network::send`]; what arrives is handed to its [`Adapter`];
//! * time is [`Network::now_ns`], and every key, QPN and first PSN follows from [`Network::random`];
//! * where a program would spin, sleep or just take its time, it calls [`Network::pause`], and the
//!   network decides when it goes on;
//! * the network is the progress thread: it calls [`Adapter::on_time`] when [`Adapter::due_ns`]
//!   says so.
//!
//! The crate `urxe-fabric-sim` has such a network.
//!
//! RDMA-CM ([`crate::cm`]) works on networks that have a [`Shelf`]: it finds its way by [`Network::route_to`], and keeps on
//! the shelf what it keeps for a process elsewhere.
//!
//! Multicast works on networks that have [`Groups`]; on others it is
//! [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
//!
//! Tasks, which await completions and events (feature `tokio`), work on networks that have [`Tasks`].
//!
//! What needs the kernel does not work there: waiting for descriptors
//! ([`CompChannel`](crate::CompChannel) as a descriptor, the timers of `tokio`), which nothing makes
//! readable in virtual time.

#[cfg(feature = "remote")]
pub mod remote;

use core::any::Any;
use core::cell::RefCell;
use core::fmt;
use core::marker::PhantomData;
use core::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;

use urxe_core::qp::attr::QpAttr;
use urxe_core::qp::state::QpType;
use urxe_core::work::SendWr as SendWrFields;

use crate::lock::lock;
use crate::wc::Wc;

/// A packet on its way, from the BTH to the ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The sender's address.
    pub source: IpAddr,
    /// Its UDP source port, which the ICRC covers.
    pub source_port: u16,
    /// Where it goes, or went to. The UDP port is 4791.
    pub dest: IpAddr,
    /// Traffic class byte: DSCP and ECN.
    pub tos: u8,
    /// The UDP payload. Over IPv4 its ICRC is for Identification 0.
    pub bytes: &'a [u8],
}

/// Whether what a program waits for is there.
pub trait Ready: fmt::Debug + Send + Sync {
    /// True if the event is there, so that waiting ends.
    fn is_ready(&self) -> bool;

    /// What it is, to be told when it does not come.
    fn what(&self) -> String {
        "an event".to_owned()
    }
}

/// Why a program lets time pass.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Pause {
    /// The program polled and found no completion: it will probably poll again at once.
    Poll,
    /// A task polled and found no completion: it will not poll again before it is woken.
    Look,
    /// The program is about to post work requests.
    Post,
    /// The program is about to ask for an event of a completion queue.
    Arm,
    /// A call that posted, armed or took completions returns to the program.
    Return,
    /// The program is about to read or change its registered memory by a call of this crate.
    Memory,
    /// The program sleeps until the event is there, or until a time.
    Event {
        /// The event that it waits for.
        event: Arc<dyn Ready>,
        /// In the network's nanoseconds; `None` is for ever.
        deadline_ns: Option<u64>,
    },
}

/// What a context does: [`Network::note`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Act<'a> {
    /// A QP was made.
    Created {
        /// Its number.
        qpn: u32,
        /// Its service.
        kind: QpType,
        /// Each of its sends makes a completion.
        signals_all: bool,
        /// Its receives come from a shared queue.
        shares_receives: bool,
    },
    /// A QP was modified, and is like this now.
    Modified {
        /// Its number.
        qpn: u32,
        /// Its attributes.
        attr: &'a QpAttr,
    },
    /// A QP is gone.
    Destroyed {
        /// Its number.
        qpn: u32,
    },
    /// A request is about to be appended to a send queue.
    Send {
        /// The QP.
        qpn: u32,
        /// The request.
        wr: &'a SendWrFields<'a>,
        /// What it sends, as it is now; empty if it sends nothing, or from memory to which it has no right.
        bytes: &'a [u8],
    },
    /// A receive is about to be appended to the queue of a QP, or to a shared one (`None`).
    Recv {
        /// The QP.
        qpn: Option<u32>,
        /// The request's id.
        wr_id: u64,
    },
    /// The request that was told last was refused: its queue is as before.
    Refused,
    /// A completion was made. The program may poll it from now on.
    Completed(&'a Wc),
    /// The program took a completion.
    Polled(&'a Wc),
    /// A packet has arrived, and is about to be handled.
    Arrived(&'a [u8]),
    /// Bytes were stored in registered memory, because of a packet.
    Placed {
        /// The address in this process.
        at: u64,
        /// What is there now.
        bytes: &'a [u8],
    },
    /// A peer's atomic was executed in registered memory.
    Atomic {
        /// The address in this process.
        at: u64,
        /// What was there.
        old: u64,
        /// The operation.
        operation: AtomicOp,
    },
    /// The program is about to write to registered memory by a call of this crate.
    Written {
        /// The address in this process.
        at: u64,
        /// Bytes.
        len: usize,
    },
}

/// What an atomic does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AtomicOp {
    /// Adds.
    FetchAdd(u64),
    /// Stores the second if the first is there.
    CompareSwap(u64, u64),
}

/// The program's host was stopped: its calls fail from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped;

/// The multicast groups of a network, as one host has them.
pub trait Groups {
    /// A context hears a group from now on: packets to it are handed to all [`Adapter`]s of the host. False if
    /// the network cannot have the group.
    fn join(&self, group: IpAddr) -> bool;

    /// A context that joined a group does no longer hear it. Other contexts of the host may.
    fn leave(&self, group: IpAddr);
}

/// How a network wakes tasks, as one host has it.
pub trait Tasks {
    /// Calls the waker once, when the event is there or the time has come (in the network's nanoseconds); it may be called in vain as
    /// well. The next call for the same event takes the place of this one. The network does not keep the event: when that is dropped,
    /// nothing waits for it any more.
    fn wake_when(&self, event: &Arc<dyn Ready>, deadline_ns: Option<u64>, waker: &Waker);
}

/// A network that contexts can be opened on, as one host sees it.
///
/// [`Network::send`], [`Network::has_room`] and [`Network::note`] are called while the engine of a context is
/// locked: they must not call an [`Adapter`] of the same context. [`Network::pause`] is called without any lock.
pub trait Network: fmt::Debug + Send + Sync {
    /// What time it is, in nanoseconds from any beginning. It never goes back.
    fn now_ns(&self) -> u64;

    /// The next random number.
    fn random(&self) -> u64;

    /// Largest IP packet of the interface that has the address; `None` if this host does not have it.
    fn interface_mtu(&self, addr: IpAddr) -> Option<u32>;

    /// A context was opened. It is gone when [`Adapter::is_gone`].
    fn attach(&self, adapter: Adapter);

    /// A context was closed, having counted this.
    fn detached(&self, counters: &[(&'static str, u64)]);

    /// The address by which work requests and peers name the first byte of a region of `len` bytes that lie at `here`. That
    /// differs from run to run; a network that repeats runs has addresses of its own, which need the alignment of `here` up to a page.
    fn region_addr(&self, here: u64, len: u64) -> u64 {
        let _ = len;
        here
    }

    /// The address of this host that packets to `dest` leave from; all zeros are the host itself. `None` if no way leads there.
    fn route_to(&self, dest: IpAddr) -> Option<IpAddr> {
        let _ = dest;
        None
    }

    /// Where this crate keeps what the programs of the host have in common. Without one there is no RDMA-CM
    /// on the network.
    fn shelf(&self) -> Option<&Shelf> {
        None
    }

    /// Its multicast groups, if it has such.
    fn groups(&self) -> Option<&dyn Groups> {
        None
    }

    /// How tasks wait on it, if they can.
    fn tasks(&self) -> Option<&dyn Tasks> {
        None
    }

    /// A part of the QPN space for one context: the upper 12 bits of its QPNs, which no other context of the
    /// host has. `None` if all are given out.
    fn grant_qpns(&self) -> Option<u16>;

    /// True if it takes a packet now. When it does not, it calls [`Adapter::on_room`] once it does.
    fn has_room(&self) -> bool;

    /// Takes a packet.
    fn send(&self, packet: &Packet<'_>);

    /// A context does something: for networks that watch what their programs do.
    fn note(&self, act: &Act<'_>) {
        let _ = act;
    }

    /// The calling thread lets time pass; when it goes on is the network's choice. A program
    /// that waits for an event is called back when that is ready or its deadline has passed; it looks again and
    /// may wait once more.
    ///
    /// # Errors
    /// [`Stopped`] if the host was stopped.
    fn pause(&self, why: &Pause) -> Result<(), Stopped>;
}

/// A place for what a host's programs have in common: the contexts that RDMA-CM opened, and its ports. Contexts hold their network,
/// so a network must [clear](Shelf::clear) its shelf when the host stops.
#[derive(Default)]
pub struct Shelf(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

impl Shelf {
    /// Drops what is there, as the end of a process would. Not to be called with a lock that [`Network::detached`] takes.
    pub fn clear(&self) {
        let kept = lock(&self.0).take();
        drop(kept);
    }

    /// What is there, or else what `make` makes.
    pub(crate) fn get_or_put<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut place = lock(&self.0);
        let kept = place.clone().and_then(|kept| kept.downcast().ok());
        kept.unwrap_or_else(|| {
            let made = Arc::new(make());
            *place = Some(made.clone());
            made
        })
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shelf")
    }
}

/// What a network drives: the engine of a context.
pub(crate) trait Driven: Send + Sync {
    fn receive(&self, packet: &Packet<'_>) -> bool;
    fn receive_unowned(&self, packet: &Packet<'_>);
    fn due_ns(&self) -> Option<u64>;
    fn drive(&self);
    fn counted(&self) -> Vec<(&'static str, u64)>;
}

/// The side of a context that a [`Network`] drives.
#[derive(Clone)]
pub struct Adapter {
    engine: Weak<dyn Driven>,
}

impl Adapter {
    pub(crate) fn new(engine: Weak<dyn Driven>) -> Adapter {
        Adapter { engine }
    }

    /// A packet has arrived. False if it is for no QPN and no connection of this context: then another one of the host
    /// may know it.
    pub fn receive(&self, packet: &Packet<'_>) -> bool {
        let engine = self.engine.upgrade();
        engine.is_some_and(|engine| engine.receive(packet))
    }

    /// No context of the host knew the packet. If it asks for a connection this one refuses it, in
    /// the name of the host.
    pub fn receive_unowned(&self, packet: &Packet<'_>) {
        if let Some(engine) = self.engine.upgrade() {
            engine.receive_unowned(packet);
        }
    }

    /// When [`Adapter::on_time`] must be called at the latest, if ever. It changes with every call
    /// into the context.
    pub fn due_ns(&self) -> Option<u64> {
        self.engine.upgrade()?.due_ns()
    }

    /// Does what is due.
    pub fn on_time(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.drive();
        }
    }

    /// Sends what waits for room.
    pub fn on_room(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.drive();
        }
    }

    /// The context's counters, as [`Context::counters`](crate::Context::counters) has them.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let engine = self.engine.upgrade();
        engine.map_or(Vec::new(), |engine| engine.counted())
    }

    /// The context was closed.
    pub fn is_gone(&self) -> bool {
        self.engine.strong_count() == 0
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter")
            .field("is_gone", &self.is_gone())
            .finish()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Network>>> = const { RefCell::new(None) };
}

/// The calling thread is in a network until this is dropped.
#[derive(Debug)]
pub struct Entered {
    before: Option<Arc<dyn Network>>,
    /// It is the thread's own.
    _not_send: PhantomData<*const ()>,
}

/// From now on the contexts that the calling thread opens are on `network`, until what this returns is
/// dropped. They stay there.
#[must_use = "the network is left when it is dropped"]
pub fn enter(network: Arc<dyn Network>) -> Entered {
    Entered {
        before: CURRENT.with(|current| current.replace(Some(network))),
        _not_send: PhantomData,
    }
}

/// Where threads are that entered no network, if not on sockets.
static DEFAULT: OnceLock<Arc<dyn Network>> = OnceLock::new();

/// All threads of this process are in the network from now on, unless they enter another one.
#[cfg(feature = "remote")]
pub(crate) fn set_default(network: Arc<dyn Network>) {
    // A process is in one for its life: the first.
    let _ = DEFAULT.set(network);
}

/// The network that the calling thread is in, if it is in one.
pub fn current() -> Option<Arc<dyn Network>> {
    let entered = CURRENT.with(|current| current.borrow().clone());
    entered.or_else(|| DEFAULT.get().cloned())
}

impl Drop for Entered {
    fn drop(&mut self) {
        // At the end of a thread the variable may be gone already, which is as good.
        let _ = CURRENT.try_with(|current| current.replace(self.before.take()));
    }
}
