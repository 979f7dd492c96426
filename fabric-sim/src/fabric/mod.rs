//! The network: ports, cables, switches and the network adapters of hosts, and the events that
//! move frames through them. It knows nothing of what hosts talk about.
//!
//! Its driver ([`Sim`](crate::Sim), or a test) calls [`Fabric::step`] and gets an [`Upcall`]
//! whenever something concerns a host: a frame arrived, there is room to send, a timer is due.
//!
//! A frame that travels one hop makes two events: `Event::TxDone` when its last bit has left, and
//! `Event::Arrive` when that bit is at the other end. Switches store and forward.

mod adapter;
mod agenda;
mod ahead;
mod books;
mod control;
mod credit;
mod deadlock;
mod groups;
mod letter;
mod overrides;
mod parts;
mod port;
mod receive;
mod reserve;
mod stats;
mod tap;
mod telemetry;
mod transmit;
mod watchdog;

use std::sync::Arc;

use crate::engine::{Entity, Rng, Span, Time, TraceHash};
use crate::fault::Faults;
use crate::frame::{Bodies, Frame, FrameId, FrameSlab, Payload};
use crate::link::{ETHERNET_OVERHEAD, JUMBO_MTU, Link};
use crate::qos::Qos;
use crate::switch::{Balancer, Groups, IngressUse, Mmu, SwitchConfig, headroom};
use crate::topology::{HostId, Node, Parts, PortId, Routes, SwitchId, Topology, TopologyError};

use adapter::Adapter;
pub use adapter::{AdapterConfig, Planes};
use agenda::Agenda;
pub(crate) use agenda::{Event, Step};
pub(crate) use control::mac_of;
pub use deadlock::{Deadlock, StuckQueue};
pub(crate) use letter::FabricLetter;
pub use overrides::{Override, Place};
use overrides::{marking_at, settings_at};
pub(crate) use parts::FabricPart;
use port::Port;
pub use reserve::ReserveError;
pub use stats::{DropReason, Drops, PortStats};
pub use tap::{Fate, Interference, PauseCause, Tap, TapEvent};
use tap::{Taps, bytes_of};
pub use telemetry::Hop;
pub(crate) use telemetry::Telemetry;

/// How much a frame carries through the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Every frame as bytes: encoded, decoded by `urxe-wire`, ICRC verified.
    #[default]
    Bytes,
    /// The headers of packets, and lengths. Events have the same order, and are fewer bytes.
    Lite,
}

/// Something for the driver of the fabric.
#[derive(Clone, Copy, Debug)]
pub enum Upcall {
    /// A frame has arrived at its host. It is the driver's now: [`Fabric::take`].
    Received(HostId, FrameId),
    /// The host's adapter has room in its queues.
    Room(HostId),
    /// A timer that [`Fabric::set_timer`] set, with its token.
    Timer(HostId, u32),
    /// A fault has the host crash: all that it held in memory is gone.
    Crashed(HostId),
    /// The host starts again, with nothing.
    Restarted(HostId),
}

/// Everything that a fabric is made of, beside the topology.
#[derive(Clone, Debug, Default)]
pub struct FabricConfig {
    /// All random draws follow from it.
    pub seed: u64,
    /// How much a frame carries.
    pub mode: Mode,
    /// Classes.
    pub qos: Qos,
    /// All switches.
    pub switch: SwitchConfig,
    /// Switches and ports with settings of their own.
    pub overrides: Vec<Override>,
    /// The adapters of all hosts.
    pub adapter: AdapterConfig,
}

/// Why a fabric cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FabricError {
    /// The topology is wrong.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A switch's buffer is too small.
    #[error("switch {switch}: {error}")]
    Buffer {
        /// The switch.
        switch: String,
        /// The part that does not fit.
        error: crate::switch::BufferError,
    },
}

/// A switch.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    pub(crate) mmu: Mmu,
    pub(crate) rng: Rng,
    /// Makes switches choose differently among equal paths.
    pub(crate) salt: u32,
    pub(crate) balancer: Balancer,
}

/// The network.
#[derive(Debug)]
pub struct Fabric {
    pub(crate) queue: Agenda,
    pub(crate) frames: FrameSlab,
    pub(crate) bodies: Bodies,
    pub(crate) telemetry: Telemetry,
    pub(crate) ports: Vec<Port>,
    pub(crate) switches: Vec<Switch>,
    pub(crate) adapters: Vec<Adapter>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) groups: Groups,
    pub(crate) qos: Qos,
    pub(crate) config: FabricConfig,
    topology: Arc<Topology>,
    pub(crate) trace: TraceHash,
    /// What frames held beside their headers, for `bytes` mode: the ICRC of each that arrived.
    content: TraceHash,
    pub(crate) drops: Drops,
    injected: u64,
    delivered: u64,
    /// Events taken out of the queue.
    events: u64,
    /// For the driver, before the next event.
    pub(crate) pending: Option<Upcall>,
    pub(crate) tap: Option<Taps>,
    pub(crate) interference: Option<Box<dyn Interference>>,
    pub(crate) faults: Faults,
    /// Some fault is about frames.
    pub(crate) has_frame_faults: bool,
    /// A frame of a lossless class that found no room: which event it was, and where.
    pub(crate) first_overrun: Option<((Time, u64), PortId, Frame)>,
    /// Which event it was, where, and how many bytes lay there.
    pub(crate) first_credit_overrun: Option<((Time, u64), PortId, u64)>,
    /// What has left for each other part of the simulation.
    pub(crate) outbox: Vec<FabricLetter>,
    /// Where that is, if this is a part, and which.
    pub(crate) parts: Option<Arc<Parts>>,
    pub(crate) part: usize,
}

/// Bytes of a packet that `lite` mode keeps: all headers of any opcode, and the payload of an ATOMIC
/// WRITE.
pub(crate) const LITE_BODY: usize = 64;

impl Fabric {
    /// Builds the network at time zero.
    ///
    /// # Errors
    /// [`FabricError`] if the topology or a buffer is impossible.
    pub fn new(topology: Topology, config: FabricConfig) -> Result<Fabric, FabricError> {
        topology.check()?;
        let cables = topology.cables().iter();
        let frame_max = cables.map(|c| c.link.frame_max()).max().unwrap_or(0);
        let frame_max = frame_max + config.qos.tag_len();
        let mut local = vec![0u16; topology.switch_count()];
        let mut ports = Vec::with_capacity(topology.port_count());
        for id in topology.ports() {
            let link = topology.link_at(id);
            let node = topology.node_at(id);
            let place = match node {
                Node::Switch(switch) => {
                    let next = &mut local[switch.index()];
                    *next += 1;
                    *next - 1
                }
                Node::Host(_) => 0,
            };
            let rng = Rng::stream(config.seed, Entity::Port(id.0), "bit errors");
            let mut port = Port::new(node, link, place, rng, &config.qos);
            port.latency = latency(&topology, id, &config);
            port.marking = marking_at(&config.switch, &config.overrides, node, id);
            ports.push(port);
        }
        let mut switches = Vec::with_capacity(topology.switch_count());
        for id in 0..topology.switch_count() as u32 {
            switches.push(switch(&topology, SwitchId(id), &config, frame_max)?);
        }
        let mut adapters = vec![Adapter::new(Vec::new()); topology.host_count()];
        for port in topology.ports() {
            if let Node::Host(host) = topology.node_at(port) {
                adapters[host.index()].ports.push(port);
            }
        }
        let slot = match config.mode {
            // Also what is too long for every cable must be written before it can be dropped.
            Mode::Bytes => frame_max.max(JUMBO_MTU + ETHERNET_OVERHEAD + 4) as usize,
            Mode::Lite => LITE_BODY,
        };
        Ok(Fabric {
            queue: Agenda::new(ports.len()),
            frames: FrameSlab::default(),
            bodies: Bodies::new(slot),
            telemetry: Telemetry::default(),
            ports,
            switches,
            adapters,
            routes: Arc::new(Routes::shortest(&topology, |_| false)),
            groups: Groups::default(),
            qos: config.qos.clone(),
            config,
            topology: Arc::new(topology),
            trace: TraceHash::default(),
            content: TraceHash::default(),
            drops: Drops::default(),
            injected: 0,
            delivered: 0,
            events: 0,
            pending: None,
            tap: None,
            interference: None,
            faults: Faults::default(),
            has_frame_faults: false,
            first_overrun: None,
            first_credit_overrun: None,
            outbox: Vec::new(),
            parts: None,
            part: 0,
        })
    }

    /// Goes on until something concerns the driver, or nothing is left to happen until `until`: then
    /// `None`.
    #[inline]
    pub fn step(&mut self, until: Time) -> Option<Upcall> {
        loop {
            if let Some(upcall) = self.pending.take() {
                return Some(upcall);
            }
            let (_, event) = self.queue.pop_until(until)?;
            self.events += 1;
            self.queue.fetched = match self.queue.fetched.checked_sub(1) {
                Some(left) => left,
                None => self.look_ahead(event),
            };
            match event {
                Event::TxDone(port) => self.on_tx_done(port),
                Event::Arrive(port, frame) => self.on_arrive(port, frame),
                Event::PauseActs(port, frame) => self.on_pause_acts(port, frame),
                Event::PauseExpires(port) => self.on_pause_expires(port),
                Event::PauseRefresh(port) => self.on_pause_refresh(port),
                Event::Watchdog(port, priority) => self.on_watchdog(port, priority),
                Event::Restore(port, priority) => self.on_restore(port, priority),
                Event::RxDone(host) => self.on_rx_done(host),
                Event::Timer(host, token) => return Some(Upcall::Timer(host, token)),
                Event::Fault(number, step) => self.on_fault(number, step),
            }
        }
    }

    /// The present time.
    #[inline]
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// True if nothing is left to happen.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.pending.is_none()
    }

    /// The time of the next event.
    pub(crate) fn next_event(&mut self) -> Option<Time> {
        self.queue.next_time()
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What frames that leave a port take longer than the cable.
    pub fn latency_of(&self, port: PortId) -> Span {
        self.ports[port.index()].latency
    }

    /// The settings.
    pub fn config(&self) -> &FabricConfig {
        &self.config
    }

    /// Asks for [`Upcall::Timer`]. Timers cannot be taken back: a driver ignores one too many.
    pub fn set_timer(&mut self, host: HostId, at: Time, token: u32) {
        self.queue.push(at, Event::Timer(host, token));
    }

    /// A frame that is somewhere.
    pub fn frame(&self, id: FrameId) -> &Frame {
        self.frames.get(id)
    }

    /// Takes a frame that [`Upcall::Received`] handed over out of the network. Its bytes stay until
    /// [`Fabric::release_body`].
    pub fn take(&mut self, id: FrameId) -> Frame {
        self.delivered += 1;
        self.catch_up(id);
        let frame = self.frames.remove(id);
        if let Payload::Roce { body, .. } = frame.payload
            && self.config.mode == Mode::Bytes
        {
            // The ICRC stands for all bytes before it.
            let end = frame.len as usize - 4;
            let icrc = self.bodies.get(body)[..end].last_chunk();
            let icrc = u32::from_le_bytes(icrc.copied().unwrap_or_default());
            self.content
                .record(self.queue.now(), frame.dst.0.into(), icrc.into());
        }
        frame
    }

    /// Gives the bytes of a frame that was taken back.
    pub fn release_body(&mut self, frame: &Frame) {
        if let Some(body) = frame.payload.body() {
            self.bodies.release(body);
        }
    }

    /// Replaces the routes: for fixed paths, loops on purpose, or when a cable is down.
    pub fn routes_mut(&mut self) -> &mut Routes {
        Arc::make_mut(&mut self.routes)
    }

    /// Sets what interferes with frames on cables.
    pub fn set_interference(&mut self, interference: Box<dyn Interference>) {
        self.interference = Some(interference);
    }

    /// Hash of all arrivals; the same in both modes.
    pub fn trace(&self) -> TraceHash {
        self.trace
    }

    /// Hash of the bytes of all packets that arrived at hosts, for `bytes` mode.
    pub fn content(&self) -> TraceHash {
        self.content
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Frames that were dropped, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Frames that are queued, on cables, or in switches.
    pub fn frames_inside(&self) -> u32 {
        self.frames.len()
    }

    /// What a class of a switch's port holds of the buffer.
    pub fn ingress_use(&self, port: PortId, priority: u8) -> Option<IngressUse> {
        let Node::Switch(switch) = self.ports[port.index()].node else {
            return None;
        };
        let local = usize::from(self.ports[port.index()].local);
        let mmu = &self.switches[switch.index()].mmu;
        Some(*mmu.ingress(local, priority))
    }

    /// Puts a new frame into the slab.
    pub(crate) fn inject(&mut self, frame: Frame) -> FrameId {
        self.injected += 1;
        self.frames.insert(frame)
    }

    /// Ends a frame that goes no further.
    pub(crate) fn discard(&mut self, port: PortId, id: FrameId, reason: DropReason) {
        if self.tap.is_some() {
            self.catch_up(id);
        }
        let frame = self.frames.remove(id);
        let is_lossless = self.is_lossless(&frame);
        self.drops.count(reason, is_lossless);
        let stats = &mut self.ports[port.index()].rare;
        stats.dropped += 1;
        if !reason.is_on_cable() && !frame.payload.is_control() {
            stats.dropped_bytes += u64::from(frame.len);
        }
        if reason == DropReason::Buffer && is_lossless && self.first_overrun.is_none() {
            self.first_overrun = Some((self.queue.place(), port, frame));
        }
        if let Some(tap) = &mut self.tap {
            tap.event(
                self.queue.now(),
                &TapEvent::Dropped {
                    port,
                    frame: &frame,
                    bytes: bytes_of(&self.bodies, &frame),
                    reason,
                },
            );
        }
        self.release_body(&frame);
    }

    /// Writes what switches change in a packet, TTL and ECN, into its bytes.
    ///
    /// This is done when something looks at the bytes, and not in each switch: those of packets that wait in queues are in no
    /// cache.
    #[inline]
    pub(crate) fn catch_up(&mut self, id: FrameId) {
        let f = self.frames.get_mut(id);
        if core::mem::take(&mut f.is_behind)
            && let Payload::Roce { body, .. } = f.payload
            && self.config.mode == Mode::Bytes
        {
            let ip = crate::envelope::IP_OFFSET + self.qos.tag_len() as usize;
            crate::envelope::patch_ipv4(&mut self.bodies.get_mut(body)[ip..], f.tos, f.ttl);
        }
    }

    /// Ends a control frame that did its work.
    pub(crate) fn consume(&mut self, id: FrameId) -> Frame {
        self.delivered += 1;
        let frame = self.frames.remove(id);
        self.release_body(&frame);
        frame
    }

    /// The same delay everywhere: how long a port takes to act on a pause frame.
    pub(crate) fn response_time(link: &Link) -> Span {
        headroom::response_time(link.rate)
    }
}

/// What frames that leave a port take longer than the cable.
fn latency(topology: &Topology, port: PortId, config: &FabricConfig) -> Span {
    let adapter = config.adapter.latency;
    let sends = match topology.node_at(port) {
        Node::Host(_) => adapter,
        Node::Switch(_) => Span::ZERO,
    };
    let takes_in = match topology.node_at(port.peer()) {
        Node::Host(_) => adapter,
        Node::Switch(_) => config.switch.latency,
    };
    sends + takes_in
}

/// Sets up one switch.
fn switch(
    topology: &Topology,
    id: SwitchId,
    config: &FabricConfig,
    frame_max: u32,
) -> Result<Switch, FabricError> {
    let tag = config.qos.tag_len();
    let is_paused = config.qos.pause_times().is_some();
    let of_port = |port: PortId| {
        let [mut link, mut theirs] = [port, port.peer()].map(|end| topology.link_at(end));
        link.mtu += tag;
        theirs.mtu += tag;
        let given = settings_at(&config.switch, &config.overrides, id, Some(port)).headroom;
        // What is on its way through an adapter or a pipeline comes as well, and has not been counted yet.
        let inside = theirs.rate.bytes_in(latency(topology, port.peer(), config)) as u32;
        let cell = config.switch.cell;
        given.unwrap_or_else(|| headroom::required_between(&link, &theirs, cell) + inside)
    };
    let own = topology.ports();
    let own = own.filter(|&p| topology.node_at(p) == Node::Switch(id));
    let headroom = own.map(|p| if is_paused { of_port(p) } else { 0 });
    let headroom: Vec<u32> = headroom.collect();
    let lossless = if is_paused { config.qos.protected() } else { 0 };
    let own_config = settings_at(&config.switch, &config.overrides, id, None);
    let mmu = Mmu::new(&own_config, headroom, frame_max, lossless).map_err(|error| {
        FabricError::Buffer {
            switch: topology.name(id).to_owned(),
            error,
        }
    })?;
    let balancing = Rng::stream(config.seed, Entity::Switch(id.0), "balancing");
    let mut salt = Rng::stream(config.seed, Entity::Switch(id.0), "equal paths");
    Ok(Switch {
        mmu,
        rng: Rng::stream(config.seed, Entity::Switch(id.0), "marking"),
        salt: salt.bits() as u32,
        balancer: Balancer::new(config.switch.balance, balancing),
    })
}

/// Length of the Ethernet frame around an IP packet, with its check sequence.
pub(crate) fn frame_len(ip_len: u32, qos: &Qos) -> u32 {
    (ip_len + ETHERNET_OVERHEAD + qos.tag_len()).max(crate::link::FRAME_MIN)
}
