//! The network adapter of a host, as the network sees it: frames go out through its port's queues,
//! and come in as fast as the host takes them. One that is too slow for what comes stops its switch.

use std::collections::BTreeMap;

use crate::engine::{Rate, Span, mix64};
use crate::envelope::is_group;
use crate::fabric::{DropReason, Event, Fabric, Upcall};
use crate::frame::{Frame, FrameId, Queue, Store};
use crate::qos::PRIORITIES;
use crate::topology::{HostId, Node, PortId};

/// So that switches choose by other bits of a flow's hash than its host does.
const PLANES_SALT: u64 = 0x706c_616e;

/// Which of its ports a host with several sends a frame by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Planes {
    /// By a hash of the flow: a flow stays in one plane.
    #[default]
    Hash,
    /// By the one that will have sent all that it holds first, in turn if several.
    Spray,
}

/// The adapters of hosts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdapterConfig {
    /// What it takes in a second; `None`: whatever comes.
    pub rx_rate: Option<Rate>,
    /// Bytes that may wait to be taken in.
    pub rx_buffer: u64,
    /// Bytes of a lossless class at which its sender is stopped.
    pub xoff: u64,
    /// Bytes down to which it stays stopped.
    pub xon: u64,
    /// What a frame takes in the adapter beside its time on the cable, when it is sent and again when it is received: DMA, doorbell,
    /// pipeline.
    pub latency: Span,
    /// Of hosts with several ports.
    pub planes: Planes,
}

impl Default for AdapterConfig {
    /// As fast as the link; 1 MiB of buffer, of which half is headroom.
    fn default() -> Self {
        AdapterConfig {
            rx_rate: None,
            rx_buffer: 1 << 20,
            xoff: 512 << 10,
            xon: 256 << 10,
            latency: Span::ZERO,
            planes: Planes::Hash,
        }
    }
}

/// The state of one.
#[derive(Clone, Debug)]
pub(crate) struct Adapter {
    /// Its ports: one, or one in each plane.
    pub(crate) ports: Vec<PortId>,
    /// Flows that stay in a plane, by their hash.
    pins: BTreeMap<u32, u8>,
    /// Flows that arrive at a certain port of their destination.
    ends: BTreeMap<u32, u8>,
    /// The port to look at first when several are as good.
    turn: usize,
    /// Overrides what the configuration says.
    rx_rate: Option<Option<Rate>>,
    /// Frames that wait to be taken in, the first being taken in now.
    rx: Queue,
    rx_bytes: [u64; PRIORITIES],
    /// Bit n: the switch was told to stop class n.
    pub(crate) off: u8,
    /// The host has crashed: nothing is taken in.
    is_down: bool,
}

impl Adapter {
    pub(crate) fn new(ports: Vec<PortId>) -> Adapter {
        Adapter {
            ports,
            pins: BTreeMap::new(),
            ends: BTreeMap::new(),
            turn: 0,
            rx_rate: None,
            rx: Queue::default(),
            rx_bytes: [0; PRIORITIES],
            off: 0,
            is_down: false,
        }
    }

    /// What is known of it in the parts of a simulation that do not have its host.
    pub(crate) fn outside(&self) -> Adapter {
        Adapter::new(self.ports.clone())
    }

    /// Moves all frames that wait to be taken in to another place.
    pub(crate) fn carry_frames(&mut self, from: &mut Store<'_>, to: &mut Store<'_>) {
        self.rx.carry(from, to);
    }

    /// Bytes of a class that came and were not taken in yet.
    pub(crate) fn waits_to_be_taken_in(&self, priority: u8) -> u64 {
        self.rx_bytes[usize::from(priority)]
    }
}

impl Fabric {
    /// The port of a host, the first if it has several.
    #[inline]
    pub fn port_of(&self, host: HostId) -> PortId {
        self.adapters[host.index()].ports[0]
    }

    /// The ports of a host, one for each plane.
    #[inline]
    pub fn ports_of(&self, host: HostId) -> &[PortId] {
        &self.adapters[host.index()].ports
    }

    /// The rate at which a host can send one flow.
    pub(crate) fn rate_of(&self, host: HostId) -> Rate {
        let rate = |port: &PortId| self.ports[port.index()].link.rate.as_bps();
        let ports = self.ports_of(host);
        match self.config.adapter.planes {
            Planes::Spray => Rate::bps(ports.iter().map(rate).sum()),
            Planes::Hash => Rate::bps(rate(&ports[0])),
        }
    }

    /// Has a host send all frames of a flow in this plane, as long as that leads to their destination.
    pub fn set_plane(&mut self, host: HostId, flow_hash: u32, plane: u8) {
        self.adapters[host.index()].pins.insert(flow_hash, plane);
    }

    /// Has all frames of a flow from a host arrive at this port of their destination, as long as a way leads there. Of no
    /// effect but in [`Topology::with_rails`](crate::Topology::with_rails).
    pub fn set_arrival_plane(&mut self, host: HostId, flow_hash: u32, plane: u8) {
        self.adapters[host.index()].ends.insert(flow_hash, plane);
    }

    /// Which port of its destination a frame that leaves by a port is for, counted from 1; 0: the nearest.
    pub(crate) fn rail_to(&self, host: HostId, port: PortId, flow_hash: u32) -> u8 {
        if !self.topology.has_rails() {
            return 0;
        }
        let adapter = &self.adapters[host.index()];
        let own = || adapter.ports.iter().position(|&own| own == port);
        let end = adapter.ends.get(&flow_hash).map(|&end| usize::from(end));
        end.or_else(own).map_or(0, |rail| rail as u8 + 1)
    }

    /// The port by which a host sends a frame.
    fn plane_of(&mut self, host: HostId, dst: HostId, flow_hash: u32) -> PortId {
        let (port, turn) = match self.config.adapter.planes {
            Planes::Hash => (None, 0),
            Planes::Spray => {
                let adapter = &self.adapters[host.index()];
                let count = adapter.ports.len();
                let turns = (0..count).map(|n| (adapter.turn + n) % count);
                let usable = turns.filter(|&n| self.leads_to(adapter.ports[n], dst));
                let wait = |n: &usize| self.ports[adapter.ports[*n].index()].backlog(&self.frames);
                let best = usable.min_by_key(wait);
                let port = best.map(|n| adapter.ports[n]);
                (port, best.map_or(0, |n| n + 1))
            }
        };
        self.adapters[host.index()].turn = turn;
        port.unwrap_or_else(|| self.plane_by_hash(host, dst, flow_hash))
    }

    /// The port by which a host sends a flow, if a hash decides, or its plane is set.
    pub(crate) fn plane_by_hash(&self, host: HostId, dst: HostId, flow_hash: u32) -> PortId {
        let adapter = &self.adapters[host.index()];
        let [first, _, ..] = adapter.ports[..] else {
            return adapter.ports[0];
        };
        let usable = || {
            adapter
                .ports
                .iter()
                .filter(|&&port| self.leads_to(port, dst))
        };
        let plane = adapter.pins.get(&flow_hash);
        let pinned = plane.and_then(|&plane| adapter.ports.get(usize::from(plane)));
        if let Some(&port) = pinned.filter(|&&port| self.leads_to(port, dst)) {
            return port;
        }
        let draw = mix64(u64::from(flow_hash) << 32 | PLANES_SALT);
        let count = usable().count().max(1) as u64;
        let chosen = usable().nth((draw % count) as usize);
        chosen.copied().unwrap_or(first)
    }

    /// The port has carrier, and its switch knows a way.
    fn leads_to(&self, port: PortId, dst: HostId) -> bool {
        let knows = match self.ports[port.peer().index()].node {
            Node::Switch(switch) => is_group(dst) || !self.routes.next(switch, dst).is_empty(),
            Node::Host(there) => there == dst,
        };
        knows && !self.ports[port.index()].is_down
    }

    /// Changes how fast a host takes frames in, from the next frame on.
    pub fn set_rx_rate(&mut self, host: HostId, rate: Option<Rate>) {
        self.adapters[host.index()].rx_rate = Some(rate);
    }

    /// Hands a frame to a host's adapter. The adapter's queues have no end: the sender looks at
    /// [`Fabric::waiting`] and waits for [`Upcall::Room`].
    pub fn send(&mut self, host: HostId, frame: Frame) {
        let id = self.inject(frame);
        let port = match self.ports_of(host) {
            &[only] => only,
            _ => self.plane_of(host, frame.dst, frame.flow_hash),
        };
        let rail = self.rail_to(host, port, frame.flow_hash);
        let sent = self.frames.get_mut(id);
        (sent.ingress, sent.rail) = (port, rail);
        let now = self.queue.now();
        self.ports[port.index()].enqueue(&mut self.frames, id, frame.priority & 7, now);
        self.show_queue(port, frame.priority & 7);
        self.watch(port, frame.priority & 7);
        self.kick(port);
    }

    /// A frame has come to a host.
    #[inline]
    pub(crate) fn take_in(&mut self, host: HostId, port: PortId, id: FrameId) {
        let f = *self.frames.get(id);
        if f.dst != host && !self.groups.has(f.dst, host) {
            self.give_credit(port, id);
            return self.discard(port, id, DropReason::Stray);
        }
        let adapter = &mut self.adapters[host.index()];
        if adapter.is_down {
            self.give_credit(port, id);
            return self.discard(port, id, DropReason::HostDown);
        }
        let rate = adapter.rx_rate.unwrap_or(self.config.adapter.rx_rate);
        if rate.is_none() && adapter.rx.frames == 0 {
            self.give_credit(port, id);
            self.pending = Some(Upcall::Received(host, id));
            return;
        }
        let config = self.config.adapter;
        let is_lossless = self.is_lossless(&f);
        let port_has_pause = !self.has_credits();
        let adapter = &mut self.adapters[host.index()];
        let class = usize::from(f.priority);
        if adapter.rx.bytes + u64::from(f.len) > config.rx_buffer {
            self.give_credit(port, id);
            return self.discard(port, id, DropReason::Buffer);
        }
        if adapter.rx.frames == 0 {
            let done = rate.map_or(self.queue.now(), |r| {
                self.queue.now() + r.time_of(u64::from(f.len))
            });
            self.queue.push(done, Event::RxDone(host));
        }
        self.frames.get_mut(id).ingress = port;
        let adapter = &mut self.adapters[host.index()];
        adapter.rx.push(&mut self.frames, id);
        adapter.rx_bytes[class] += u64::from(f.len);
        let must_stop = is_lossless
            && adapter.rx_bytes[class] >= config.xoff
            && adapter.off & (1 << f.priority) == 0;
        if must_stop && port_has_pause {
            adapter.off |= 1 << f.priority;
            self.tell_all(host, f.priority, true);
        }
    }

    /// The first of the waiting frames is in.
    pub(crate) fn on_rx_done(&mut self, host: HostId) {
        let now = self.queue.now();
        let adapter = &mut self.adapters[host.index()];
        let Some(id) = adapter.rx.pop(&self.frames) else {
            return;
        };
        let f = *self.frames.get(id);
        let class = usize::from(f.priority);
        adapter.rx_bytes[class] -= u64::from(f.len);
        let rate = adapter.rx_rate.unwrap_or(self.config.adapter.rx_rate);
        if let Some(next) = adapter.rx.head() {
            let len = u64::from(self.frames.get(next).len);
            let done = rate.map_or(now, |r| now + r.time_of(len));
            self.queue.push(done, Event::RxDone(host));
        }
        let may_go_on = adapter.off & (1 << f.priority) != 0
            && adapter.rx_bytes[class] <= self.config.adapter.xon;
        if may_go_on {
            adapter.off &= !(1 << f.priority);
            self.tell_all(host, f.priority, false);
        }
        self.give_credit(f.ingress, id);
        self.pending = Some(Upcall::Received(host, id));
    }

    /// All of a host's neighbours stop a class, or go on.
    fn tell_all(&mut self, host: HostId, priority: u8, is_off: bool) {
        for plane in 0..self.ports_of(host).len() {
            self.tell_pause(self.ports_of(host)[plane], priority, is_off);
        }
    }

    /// Takes the adapter of a host out of service, with all frames that wait in it to be taken in.
    pub(crate) fn set_host_down(&mut self, host: HostId, is_down: bool) {
        let adapter = &mut self.adapters[host.index()];
        adapter.is_down = is_down;
        if !is_down {
            return;
        }
        (adapter.off, adapter.rx_bytes) = (0, [0; PRIORITIES]);
        let mut waiting = core::mem::take(&mut adapter.rx);
        while let Some(id) = waiting.pop(&self.frames) {
            let port = self.frames.get(id).ingress;
            self.give_credit(port, id);
            self.discard(port, id, DropReason::HostDown);
        }
    }

    /// True while a fault has the host crashed.
    #[inline]
    pub fn is_host_down(&self, host: HostId) -> bool {
        self.adapters[host.index()].is_down
    }
}
