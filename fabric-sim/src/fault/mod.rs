//! Faults: their kinds, places, times and frequencies.
//!
//! A [`Fault`] has a kind, a scope (everything, a cable, one direction of it, a host, a switch), a window of
//! time, and, if it is about frames, a choice of them: with a probability, every so many, or by number.
//! [`Sim::add_fault`](crate::Sim::add_fault) puts it into a simulation; `[[fault]]` of a scenario does the
//! same.
//!
//! Each fault draws from a stream of its own, and a draw belongs to the number of the frame among those that
//! the fault looks at: one fault more, or a narrower window, changes nothing about the others.

mod check;
mod forge;
mod hit;
mod schedule;
mod wire;

use core::fmt;
use std::collections::VecDeque;

use crate::engine::{Entity, Rate, Rng, Span, Time};
use crate::fabric::Fabric;
use crate::topology::{HostId, Node, PortId, SwitchId, Topology};

pub use check::FaultError;
pub use forge::Forgery;
pub use hit::Hit;
pub(crate) use wire::Leaving;

/// A fault, by number: the first that was added is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FaultId(pub u32);

/// The kinds of faults.
#[derive(Clone, PartialEq, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum FaultKind {
    /// Frames are lost.
    Loss,
    /// Frames are lost in bursts (Gilbert and Elliott): each direction of a cable is good or bad.
    BurstLoss {
        /// Probability, at each frame, that it turns bad.
        enter: f64,
        /// Probability, at each frame, that it turns good again.
        leave: f64,
        /// Probability that a frame is lost while it is bad.
        loss: f64,
    },
    /// A bit is wrong on the cable: the frame check sequence finds it, and the frame is dropped.
    Corrupt,
    /// A bit is wrong behind the frame check sequence, as in a switch's memory: only the ICRC finds it.
    CorruptInside,
    /// Frames arrive twice, the second time so much later.
    Duplicate {
        /// How much later.
        later: Span,
    },
    /// Frames arrive so much later, and those behind them first.
    Reorder {
        /// How much later.
        by: Span,
    },
    /// Frames arrive later, in their order.
    Delay {
        /// The constant part of the delay.
        by: Span,
        /// The greatest random part of the delay.
        jitter: Span,
    },
    /// Cables have another rate.
    Rate(Rate),
    /// Cables are down. What waits for them in a switch is dropped, unless [`DeadQueue`](crate::switch::DeadQueue) says otherwise.
    LinkDown {
        /// Down for so long and up for so long, again and again; `None`: down for all of the window.
        flap: Option<(Span, Span)>,
        /// Switches find other ways so long after each change; `None`: they do not.
        reroute: Option<Span>,
    },
    /// What hosts of one side send to those of the other is lost.
    Partition {
        /// The hosts of one side; all others are the other.
        side: Vec<HostId>,
        /// Only what they send is lost, not what is sent to them.
        one_way: bool,
    },
    /// Ports of the scope's node stop their neighbours without end.
    PauseStorm {
        /// Bit n: class n.
        classes: u8,
    },
    /// ECN is cleared: no mark gets through, and no switch behind may set one.
    BleachEcn,
    /// Packets above a size vanish silently.
    BlackHole {
        /// Longest IP packet that gets through.
        mtu: u32,
    },
    /// A host takes frames in slowly.
    SlowReceiver(Rate),
    /// A host loses all that it had in memory: QPs, regions, frames. It starts again at the window's end. Or a switch loses all frames that
    /// it holds, and its cables are down until the window's end.
    Crash {
        /// Of a switch: the others find other ways so long after it is gone, and after it is back; `None`: they do not.
        reroute: Option<Span>,
    },
    /// Beside a frame arrives another, which no host sent.
    Forge(Forgery),
}

/// The place of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// Everywhere.
    #[default]
    Everything,
    /// A cable, both ways: named by a port at one of its ends.
    Cable(PortId),
    /// One direction of a cable: what leaves the port.
    Port(PortId),
    /// A host and its cable.
    Host(HostId),
    /// A switch and all its cables.
    Switch(SwitchId),
}

impl From<HostId> for Scope {
    fn from(host: HostId) -> Scope {
        Scope::Host(host)
    }
}

impl From<SwitchId> for Scope {
    fn from(switch: SwitchId) -> Scope {
        Scope::Switch(switch)
    }
}

impl From<PortId> for Scope {
    /// The direction that leaves the port.
    fn from(port: PortId) -> Scope {
        Scope::Port(port)
    }
}

/// Which of the frames that a fault looks at it hits.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Chance {
    /// All.
    #[default]
    Always,
    /// Each with a probability.
    Probability(f64),
    /// Every so many: the last of each group of `n`.
    Every(u64),
    /// These, by number: the first that the fault looks at, in its window or not, is 0. In rising order.
    Nth(Vec<u64>),
}

/// Which frames a fault looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frames {
    /// All but those by which ports control each other.
    #[default]
    Data,
    /// Pause frames and credits.
    Control,
    /// All.
    All,
    /// ACKs and NAKs.
    Acks,
    /// Atomics and their answers.
    Atomics,
    /// READ requests and responses.
    Reads,
    /// Congestion notifications.
    Cnps,
}

/// A fault to be.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// Its place.
    pub scope: Scope,
    /// The time of its beginning.
    pub from: Time,
    /// The time of its end.
    pub to: Time,
    /// Which frames are hit, for kinds that are about frames.
    pub chance: Chance,
    /// Which frames are looked at, for kinds that are about frames.
    pub frames: Frames,
    /// Number of the stream of random numbers; `None`: the fault's own number. A caller that takes faults out of a
    /// list keeps the numbers of the others, and so what they do.
    pub stream: Option<u32>,
}

impl Fault {
    /// A fault of everything, for ever, that hits all data.
    pub fn new(kind: FaultKind) -> Fault {
        Fault {
            kind,
            scope: Scope::Everything,
            from: Time::ZERO,
            to: Time::NEVER,
            chance: Chance::Always,
            frames: Frames::Data,
            stream: None,
        }
    }

    /// Loses frames with a probability.
    pub fn loss(p: f64) -> Fault {
        Fault::new(FaultKind::Loss).probability(p)
    }

    /// Loses pause frames and credits with a probability.
    pub fn pause_loss(p: f64) -> Fault {
        Fault::loss(p).frames(Frames::Control)
    }

    /// Loses frames in bursts: see [`FaultKind::BurstLoss`].
    pub fn burst_loss(enter: f64, leave: f64) -> Fault {
        Fault::new(FaultKind::BurstLoss {
            enter,
            leave,
            loss: 1.0,
        })
    }

    /// Damages frames on the cable with a probability.
    pub fn corrupt(p: f64) -> Fault {
        Fault::new(FaultKind::Corrupt).probability(p)
    }

    /// Damages frames behind their check sequence with a probability.
    pub fn corrupt_inside(p: f64) -> Fault {
        Fault::new(FaultKind::CorruptInside).probability(p)
    }

    /// Frames arrive a second time with a probability.
    pub fn duplicate(p: f64, later: Span) -> Fault {
        Fault::new(FaultKind::Duplicate { later }).probability(p)
    }

    /// Frames arrive late, behind others, with a probability.
    pub fn reorder(p: f64, by: Span) -> Fault {
        Fault::new(FaultKind::Reorder { by }).probability(p)
    }

    /// Delays all frames, which stay in order.
    pub fn delay(by: Span, jitter: Span) -> Fault {
        Fault::new(FaultKind::Delay { by, jitter })
    }

    /// Takes cables out of service.
    pub fn link_down() -> Fault {
        Fault::new(FaultKind::LinkDown {
            flap: None,
            reroute: None,
        })
    }

    /// Cuts some hosts off from the others.
    pub fn partition(side: impl Into<Vec<HostId>>) -> Fault {
        Fault::new(FaultKind::Partition {
            side: side.into(),
            one_way: false,
        })
    }

    /// A host stops a class of its switch without end.
    pub fn pause_storm(host: HostId, class: u8) -> Fault {
        let classes = 1u8.checked_shl(class.into()).unwrap_or(0);
        Fault::new(FaultKind::PauseStorm { classes }).on(host)
    }

    /// A host crashes, and starts again at the window's end.
    pub fn crash(host: HostId) -> Fault {
        Fault::new(FaultKind::Crash { reroute: None }).on(host)
    }

    /// A switch loses what it holds, and is back at the window's end; the others find other ways so long after each.
    pub fn switch_crash(switch: SwitchId, reroute: Option<Span>) -> Fault {
        Fault::new(FaultKind::Crash { reroute }).on(switch)
    }

    /// This fault, at a place.
    pub fn on(self, scope: impl Into<Scope>) -> Fault {
        let scope = scope.into();
        Fault { scope, ..self }
    }

    /// This fault, in a window: so long after the start.
    pub fn between(self, from: Span, to: Span) -> Fault {
        Fault {
            from: Time::ZERO + from,
            to: Time::ZERO + to,
            ..self
        }
    }

    /// This fault, with a probability for each frame.
    pub fn probability(self, p: f64) -> Fault {
        self.with_chance(Chance::Probability(p))
    }

    /// This fault, for these frames: see [`Chance::Nth`].
    pub fn nth(self, numbers: impl Into<Vec<u64>>) -> Fault {
        self.with_chance(Chance::Nth(numbers.into()))
    }

    /// This fault, for every n-th frame.
    pub fn every(self, n: u64) -> Fault {
        self.with_chance(Chance::Every(n))
    }

    fn with_chance(self, chance: Chance) -> Fault {
        Fault { chance, ..self }
    }

    /// This fault, for such frames only.
    pub fn frames(self, frames: Frames) -> Fault {
        Fault { frames, ..self }
    }

    /// True if it can make a lossless class lose frames although every switch does what it should: pauses that
    /// do not come, or frames that come unexpectedly.
    pub fn defeats_pause(&self) -> bool {
        match self.kind {
            FaultKind::Delay { .. } | FaultKind::Reorder { .. } | FaultKind::Duplicate { .. } => {
                true
            }
            FaultKind::Rate(_) | FaultKind::Forge(_) => true,
            _ => matches!(self.frames, Frames::Control | Frames::All),
        }
    }
}

impl FaultKind {
    /// Its name in scenarios.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// True if it decides on each frame that leaves a port.
    pub fn is_about_frames(&self) -> bool {
        !matches!(
            self,
            FaultKind::Rate(_)
                | FaultKind::LinkDown { .. }
                | FaultKind::PauseStorm { .. }
                | FaultKind::SlowReceiver(_)
                | FaultKind::Crash { .. }
        )
    }
}

/// A fault in a simulation, and what it did so far.
#[derive(Clone, Debug)]
pub struct ActiveFault {
    fault: Fault,
    seed: u64,
    /// Its probability, as a threshold among 2^64.
    odds: u64,
    /// By port: it looks at what leaves here.
    covers: Box<[bool]>,
    /// By port, for bursts: it is bad.
    bad: Box<[bool]>,
    /// By port, for delays: when the last frame arrived.
    last: Box<[Time]>,
    seen: u64,
    hits: u64,
    numbers: Vec<u64>,
    /// The last of them.
    last_hits: VecDeque<Hit>,
    /// True while its cables are down.
    is_down: bool,
}

/// Frames that are kept of each fault, to be told.
const HITS_KEPT: usize = 3;

/// Numbers of hits that are kept.
const NUMBERS_MAX: usize = 1 << 12;

impl ActiveFault {
    fn new(fault: Fault, number: u32, seed: u64, topology: &Topology) -> ActiveFault {
        let entity = Entity::Fault(fault.stream.unwrap_or(number));
        let ports = topology.port_count();
        let odds = match fault.chance {
            Chance::Probability(p) => Rng::odds(p),
            _ => 0,
        };
        ActiveFault {
            seed: Rng::stream(seed, entity, "what it does").bits(),
            odds,
            covers: topology
                .ports()
                .map(|port| fault.covers(topology, port))
                .collect(),
            bad: vec![false; ports].into(),
            last: vec![Time::ZERO; ports].into(),
            seen: 0,
            hits: 0,
            numbers: Vec::new(),
            last_hits: VecDeque::with_capacity(HITS_KEPT),
            is_down: false,
            fault,
        }
    }

    /// The fault as it was requested.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// How often it did something: to a frame, to a cable, to a host.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// The last frames that it hit, the first of them first.
    pub fn last_hits(&self) -> impl Iterator<Item = &Hit> {
        self.last_hits.iter()
    }

    fn keep(&mut self, hit: Hit) {
        if self.last_hits.len() == HITS_KEPT {
            self.last_hits.pop_front();
        }
        self.last_hits.push_back(hit);
    }

    /// Numbers of the frames that it hit, as [`Chance::Nth`] takes them; the first 4096.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }
}

impl Fault {
    /// True if it looks at what leaves a port.
    fn covers(&self, topology: &Topology, port: PortId) -> bool {
        let node = match self.scope {
            Scope::Everything => return true,
            Scope::Cable(end) => return end.cable() == port.cable(),
            Scope::Port(one) => return one == port,
            Scope::Host(host) => Node::Host(host),
            Scope::Switch(switch) => Node::Switch(switch),
        };
        topology.node_at(port) == node || topology.node_at(port.peer()) == node
    }

    /// True if a port belongs to the scope's node, or is the scope itself: what misbehaves.
    fn owns(&self, topology: &Topology, port: PortId) -> bool {
        match self.scope {
            Scope::Host(host) => topology.node_at(port) == Node::Host(host),
            Scope::Switch(switch) => topology.node_at(port) == Node::Switch(switch),
            _ => self.covers(topology, port),
        }
    }

    /// The hosts that it is about.
    fn hosts<'a>(&self, topology: &'a Topology) -> impl Iterator<Item = HostId> + use<'a> {
        let scope = self.scope;
        topology
            .hosts()
            .filter(move |&host| matches!(scope, Scope::Everything) || scope == Scope::Host(host))
    }
}

/// All faults of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) list: Vec<ActiveFault>,
}

impl Fabric {
    /// Adds a fault. It begins at its time, or now if that is over.
    ///
    /// # Errors
    /// [`FaultError`] says what makes no sense in this network.
    pub fn add_fault(&mut self, fault: Fault) -> Result<FaultId, FaultError> {
        fault.check(self.topology())?;
        let number = self.faults.list.len() as u32;
        let seed = self.config().seed;
        let active = ActiveFault::new(fault, number, seed, self.topology());
        self.has_frame_faults |= active.fault.kind.is_about_frames();
        let timed = !active.fault.kind.is_about_frames();
        let (from, to) = (active.fault.from, active.fault.to);
        self.faults.list.push(active);
        if timed {
            self.schedule_fault(number, from, to);
        }
        Ok(FaultId(number))
    }

    /// All faults, in the order in which they were added, and what they did so far.
    pub fn faults(&self) -> &[ActiveFault] {
        &self.faults.list
    }

    /// When the last fault ends; `None` if one never does.
    pub fn healed_at(&self) -> Option<Time> {
        let ends = self.faults.list.iter().map(|f| f.fault.to);
        ends.max()
            .map_or(Some(Time::ZERO), |end| (end != Time::NEVER).then_some(end))
    }
}

impl fmt::Display for Fault {
    /// Kind, probability and window, for reports.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match &self.chance {
            Chance::Probability(p) => write!(f, " p={p}")?,
            Chance::Every(n) => write!(f, " every {n}")?,
            Chance::Nth(numbers) => write!(f, " of {} frames", numbers.len())?,
            Chance::Always => {}
        }
        match (self.from, self.to) {
            (Time::ZERO, Time::NEVER) => Ok(()),
            (from, Time::NEVER) => write!(f, " from {from}"),
            (from, to) => write!(f, " from {from} to {to}"),
        }
    }
}
