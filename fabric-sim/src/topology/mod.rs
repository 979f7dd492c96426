//! What is connected to what: hosts, switches and the cables between them.
//!
//! A topology is a plain value. [`shapes`](self::Topology#the-usual-shapes) makes the usual ones;
//! anything else is built cable by cable, or read from lines of text.

mod edges;
mod parts;
mod routes;
mod shapes;

use core::fmt;

pub use edges::EdgeError;
pub(crate) use edges::cable_delay;
pub(crate) use parts::Parts;
pub use routes::Routes;

use crate::engine::Rate;
use crate::link::Link;

/// A host, by number: the first that was added is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u32);

/// A switch, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchId(pub u32);

impl HostId {
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl SwitchId {
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Either.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// A host. It has a port, or one in each of several planes, and forwards nothing.
    Host(HostId),
    /// A switch.
    Switch(SwitchId),
}

impl From<HostId> for Node {
    fn from(id: HostId) -> Node {
        Node::Host(id)
    }
}

impl From<SwitchId> for Node {
    fn from(id: SwitchId) -> Node {
        Node::Switch(id)
    }
}

/// One end of a cable, by number. The ends of cable `n` are `2n` and `2n + 1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortId(pub u32);

impl PortId {
    /// The other end of the cable.
    #[inline]
    pub fn peer(self) -> PortId {
        PortId(self.0 ^ 1)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    /// Place of its cable in [`Topology::cables`].
    pub(crate) fn cable(self) -> usize {
        self.index() / 2
    }
}

/// Ports that a host has at most.
pub const PLANES_MAX: usize = 8;

/// A cable between two nodes.
#[derive(Clone, Copy, Debug)]
pub struct Cable {
    /// The node at port `2n`.
    pub a: Node,
    /// The node at port `2n + 1`.
    pub b: Node,
    /// What kind it is from `a` to `b`: how fast the port `2n` sends, for one.
    pub link: Link,
    /// And from `b` to `a`. It is the same but for what [`Topology::set_rate`] has changed.
    pub back: Link,
}

/// Hosts, switches and cables.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    hosts: Vec<String>,
    switches: Vec<String>,
    cables: Vec<Cable>,
    has_rails: bool,
}

/// Why a topology cannot be simulated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TopologyError {
    /// A host needs a cable, and has few.
    #[error("host {name} has {cables} cables: a host has one, or one for each of up to 8 planes")]
    HostCables {
        /// The host.
        name: String,
        /// How many it has.
        cables: usize,
    },
    /// There is nothing to simulate.
    #[error("there is no host")]
    NoHost,
    /// Two nodes share a name.
    #[error("two nodes are called {0}")]
    Name(String),
}

impl Topology {
    /// Nothing yet.
    pub fn new() -> Topology {
        Topology::default()
    }

    /// Adds a host.
    pub fn add_host(&mut self, name: impl Into<String>) -> HostId {
        self.hosts.push(name.into());
        HostId(self.hosts.len() as u32 - 1)
    }

    /// Adds a switch.
    pub fn add_switch(&mut self, name: impl Into<String>) -> SwitchId {
        self.switches.push(name.into());
        SwitchId(self.switches.len() as u32 - 1)
    }

    /// Connects two nodes. Returns the ports at `a` and at `b`.
    pub fn connect(
        &mut self,
        a: impl Into<Node>,
        b: impl Into<Node>,
        link: Link,
    ) -> (PortId, PortId) {
        let (a, b) = (a.into(), b.into());
        let back = link;
        self.cables.push(Cable { a, b, link, back });
        let first = PortId(self.cables.len() as u32 * 2 - 2);
        (first, first.peer())
    }

    /// Number of hosts.
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Number of switches.
    pub fn switch_count(&self) -> usize {
        self.switches.len()
    }

    /// Number of ports: two for each cable.
    pub fn port_count(&self) -> usize {
        self.cables.len() * 2
    }

    /// Its hosts have an adapter on each of several rails, and the rails are joined: a frame goes to the port of its destination that
    /// has the number of the port which it left by, or to another if its flow says so
    /// ([`ConnectOptions::to_plane`](crate::host::ConnectOptions)). Without, it goes to the nearest.
    pub fn with_rails(self) -> Topology {
        Topology {
            has_rails: true,
            ..self
        }
    }

    /// True after [`Topology::with_rails`].
    pub fn has_rails(&self) -> bool {
        self.has_rails
    }

    /// All cables.
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// What a port sends into: its own rate, and the cable.
    pub fn link_at(&self, port: PortId) -> Link {
        let cable = &self.cables[port.cable()];
        if port.0.is_multiple_of(2) {
            cable.link
        } else {
            cable.back
        }
    }

    /// Has a port send at another rate than the other end of its cable does.
    pub fn set_rate(&mut self, port: PortId, rate: Rate) {
        let cable = &mut self.cables[port.cable()];
        if port.0.is_multiple_of(2) {
            cable.link.rate = rate;
        } else {
            cable.back.rate = rate;
        }
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.hosts.len() as u32).map(HostId)
    }

    /// A node's name.
    pub fn name(&self, node: impl Into<Node>) -> &str {
        match node.into() {
            Node::Host(host) => &self.hosts[host.index()],
            Node::Switch(switch) => &self.switches[switch.index()],
        }
    }

    /// The node of a name.
    pub fn find(&self, name: &str) -> Option<Node> {
        let place = |names: &[String]| names.iter().position(|n| n == name).map(|i| i as u32);
        let host = place(&self.hosts).map(|i| Node::Host(HostId(i)));
        host.or_else(|| place(&self.switches).map(|i| Node::Switch(SwitchId(i))))
    }

    /// The node at a port.
    pub fn node_at(&self, port: PortId) -> Node {
        let cable = &self.cables[port.index() / 2];
        if port.0.is_multiple_of(2) {
            cable.a
        } else {
            cable.b
        }
    }

    /// The port of `from` with a cable to `to`; the first if there are several.
    pub fn port_between(&self, from: impl Into<Node>, to: impl Into<Node>) -> Option<PortId> {
        let (from, to) = (from.into(), to.into());
        self.ports()
            .find(|&p| self.node_at(p) == from && self.node_at(p.peer()) == to)
    }

    /// All ports.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..self.port_count() as u32).map(PortId)
    }

    /// A host's ports, one for each plane.
    pub fn host_ports(&self, host: HostId) -> impl Iterator<Item = PortId> {
        self.ports()
            .filter(move |&p| self.node_at(p) == Node::Host(host))
    }

    /// A host's port, the first if it has several.
    ///
    /// # Panics
    /// If the host has none: [`Topology::check`] finds that.
    pub fn host_port(&self, host: HostId) -> PortId {
        let first = self.host_ports(host).next();
        first.expect("a checked topology")
    }

    /// Finds out whether it can be simulated.
    ///
    /// # Errors
    /// [`TopologyError`] says what is missing.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.hosts.is_empty() {
            return Err(TopologyError::NoHost);
        }
        let mut names: Vec<&String> = self.hosts.iter().chain(&self.switches).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TopologyError::Name(twice[0].clone()));
        }
        let mut cables = vec![0; self.hosts.len()];
        for port in self.ports() {
            if let Node::Host(host) = self.node_at(port) {
                cables[host.index()] += 1;
            }
        }
        match cables.iter().position(|n| !(1..=PLANES_MAX).contains(n)) {
            Some(host) => Err(TopologyError::HostCables {
                name: self.hosts[host].clone(),
                cables: cables[host],
            }),
            None => Ok(()),
        }
    }
}

/// A port as people name it: `leaf0>spine1`.
#[derive(Debug)]
pub struct PortName<'a>(pub &'a Topology, pub PortId);

impl fmt::Display for PortName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortName(topology, port) = *self;
        let (from, to) = (topology.node_at(port), topology.node_at(port.peer()));
        write!(f, "{}>{}", topology.name(from), topology.name(to))
    }
}
