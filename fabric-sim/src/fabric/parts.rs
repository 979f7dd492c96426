//! A network in parts, which run at the same time: each has some of the nodes, with all that is in them.
//!
//! The network stays where it is, as the first part; the others are taken out of it, and put back. What a part does not have is there without
//! frames, so that a number means the same port everywhere, and is not touched.

use std::sync::Arc;

use crate::engine::{Time, TraceHash};
use crate::fabric::adapter::Adapter;
use crate::fabric::agenda::{Agenda, Event};
use crate::fabric::letter::FabricLetter;
use crate::fabric::port::Port;
use crate::fabric::stats::Drops;
use crate::fabric::telemetry::Telemetry;
use crate::fabric::{Fabric, FabricConfig, Switch};
use crate::fault::Faults;
use crate::frame::{Bodies, Frame, FrameId, FrameSlab, Store};
use crate::qos::{FlowControl, Qos};
use crate::switch::Groups;
use crate::topology::{HostId, Parts, PortId, Routes, SwitchId, Topology};

/// A part of a network on its way from thread to thread: all of a [`Fabric`] but what must stay on one.
#[derive(Debug)]
pub(crate) struct FabricPart {
    queue: Agenda,
    frames: FrameSlab,
    bodies: Bodies,
    ports: Vec<Port>,
    switches: Vec<Switch>,
    adapters: Vec<Adapter>,
    routes: Arc<Routes>,
    qos: Qos,
    config: FabricConfig,
    topology: Arc<Topology>,
    trace: TraceHash,
    content: TraceHash,
    drops: Drops,
    injected: u64,
    delivered: u64,
    events: u64,
    first_overrun: Option<((Time, u64), PortId, Frame)>,
    first_credit_overrun: Option<((Time, u64), PortId, u64)>,
    outbox: Vec<FabricLetter>,
    parts: Option<Arc<Parts>>,
    part: usize,
}

impl FabricPart {
    /// The network that it is, with what it does not have.
    pub(crate) fn begin(self) -> Fabric {
        Fabric {
            queue: self.queue,
            frames: self.frames,
            bodies: self.bodies,
            telemetry: Telemetry::default(),
            ports: self.ports,
            switches: self.switches,
            adapters: self.adapters,
            routes: self.routes,
            groups: Groups::default(),
            qos: self.qos,
            config: self.config,
            topology: self.topology,
            trace: self.trace,
            content: self.content,
            drops: self.drops,
            injected: self.injected,
            delivered: self.delivered,
            events: self.events,
            pending: None,
            tap: None,
            interference: None,
            faults: Faults::default(),
            has_frame_faults: false,
            first_overrun: self.first_overrun,
            first_credit_overrun: self.first_credit_overrun,
            outbox: self.outbox,
            parts: self.parts,
            part: self.part,
        }
    }

    /// The reverse.
    pub(crate) fn end(fabric: Fabric) -> FabricPart {
        FabricPart {
            queue: fabric.queue,
            frames: fabric.frames,
            bodies: fabric.bodies,
            ports: fabric.ports,
            switches: fabric.switches,
            adapters: fabric.adapters,
            routes: fabric.routes,
            qos: fabric.qos,
            config: fabric.config,
            topology: fabric.topology,
            trace: fabric.trace,
            content: fabric.content,
            drops: fabric.drops,
            injected: fabric.injected,
            delivered: fabric.delivered,
            events: fabric.events,
            first_overrun: fabric.first_overrun,
            first_credit_overrun: fabric.first_credit_overrun,
            outbox: fabric.outbox,
            parts: fabric.parts,
            part: fabric.part,
        }
    }

    fn places(&mut self) -> Store<'_> {
        Store {
            frames: &mut self.frames,
            bodies: &mut self.bodies,
        }
    }
}

impl Fabric {
    /// Why it cannot run in parts, if it cannot.
    pub(crate) fn undivided(&self) -> Option<&'static str> {
        let has_credits = matches!(self.qos.flow_control, FlowControl::Credits { .. });
        if self.tap.is_some() {
            return Some("captures, tables and pages take all events in their order");
        }
        if self.interference.is_some() || self.has_frame_faults {
            return Some("faults of frames count and draw for all frames in their order");
        }
        if has_credits && !self.faults.list.is_empty() {
            return Some("credits for what a fault takes are given back at once");
        }
        if self.ports.iter().any(|port| port.link.bit_error_rate > 0.0) {
            return Some("frames with bit errors end at once at the other end of the cable");
        }
        if self.telemetry.is_read() {
            return Some("in-band telemetry is kept beside the packets");
        }
        if !self.groups.is_empty() {
            return Some("trees of multicast groups belong to all switches");
        }
        None
    }

    /// When a fault next does something: it may touch any node.
    pub(crate) fn next_fault(&self) -> Option<Time> {
        self.queue
            .iter()
            .filter(|(_, event)| matches!(event, Event::Fault(..)))
            .map(|(time, _)| time)
            .min()
    }

    /// Takes all parts but the first out.
    pub(crate) fn divide(&mut self, parts: &Arc<Parts>) -> Vec<FabricPart> {
        let count = parts.count();
        let outbox = || (0..count).map(|_| FabricLetter::default()).collect();
        (self.parts, self.outbox) = (Some(parts.clone()), outbox());
        for port in parts.cut(&self.topology) {
            self.ports[port.index()].is_cut = true;
        }
        let part = |part| FabricPart {
            queue: self.queue.fork(),
            frames: FrameSlab::default(),
            bodies: Bodies::new(self.bodies.len_max()),
            ports: self.ports.iter().map(Port::outside).collect(),
            switches: self.switches.clone(),
            adapters: self.adapters.iter().map(Adapter::outside).collect(),
            routes: self.routes.clone(),
            qos: self.qos.clone(),
            config: self.config.clone(),
            topology: self.topology.clone(),
            trace: TraceHash::default(),
            content: TraceHash::default(),
            drops: Drops::default(),
            injected: 0,
            delivered: 0,
            events: 0,
            first_overrun: None,
            first_credit_overrun: None,
            outbox: outbox(),
            parts: self.parts.clone(),
            part,
        };
        let mut others: Vec<FabricPart> = (1..count).map(part).collect();
        for (number, other) in (1..).zip(&mut others) {
            self.swap_nodes(parts, number, other);
            let mut to = Store {
                frames: &mut other.frames,
                bodies: &mut other.bodies,
            };
            carry_all(
                &mut other.ports,
                &mut other.adapters,
                &mut self.places(),
                &mut to,
            );
        }
        for (time, rank, event) in self.queue.drain() {
            let place = match event {
                Event::Fault(..) => 0,
                Event::RxDone(host) | Event::Timer(host, _) => parts.of_host(host),
                Event::TxDone(port)
                | Event::Arrive(port, _)
                | Event::PauseActs(port, _)
                | Event::PauseExpires(port)
                | Event::PauseRefresh(port)
                | Event::Watchdog(port, _)
                | Event::Restore(port, _) => parts.of(self.ports[port.index()].node),
            };
            match place.checked_sub(1) {
                None => self.queue.insert(time, rank, event),
                Some(place) => {
                    let other = &mut others[place];
                    let event = carry(event, &mut self.places(), &mut other.places());
                    other.queue.insert(time, rank, event);
                }
            }
        }
        others
    }

    /// Puts parts back.
    pub(crate) fn join_parts(&mut self, others: Vec<FabricPart>) {
        let Some(parts) = self.parts.take() else {
            return;
        };
        for (number, mut other) in (1..).zip(others) {
            let mut from = Store {
                frames: &mut other.frames,
                bodies: &mut other.bodies,
            };
            carry_all(
                &mut other.ports,
                &mut other.adapters,
                &mut from,
                &mut self.places(),
            );
            self.swap_nodes(&parts, number, &mut other);
            for (time, rank, event) in other.queue.drain() {
                let event = carry(event, &mut other.places(), &mut self.places());
                self.queue.insert(time, rank, event);
            }
            self.queue.join(&other.queue);
            self.trace.join(other.trace);
            self.content.join(other.content);
            self.drops.join(&other.drops);
            self.injected += other.injected;
            self.delivered += other.delivered;
            self.events += other.events;
            first(&mut self.first_overrun, other.first_overrun, |it| it.0);
            first(
                &mut self.first_credit_overrun,
                other.first_credit_overrun,
                |it| it.0,
            );
        }
        self.outbox = Vec::new();
        for port in &mut self.ports {
            port.is_cut = false;
        }
    }

    /// Swaps the nodes of a part with those of another network of the same shape. The frames in them stay where they are.
    fn swap_nodes(&mut self, parts: &Parts, number: usize, other: &mut FabricPart) {
        for (mine, its) in self.ports.iter_mut().zip(&mut other.ports) {
            if parts.of(mine.node) == number {
                core::mem::swap(mine, its);
            }
        }
        for (id, (mine, its)) in (0..).zip(self.switches.iter_mut().zip(&mut other.switches)) {
            if parts.of_switch(SwitchId(id)) == number {
                core::mem::swap(mine, its);
            }
        }
        for (id, (mine, its)) in (0..).zip(self.adapters.iter_mut().zip(&mut other.adapters)) {
            if parts.of_host(HostId(id)) == number {
                core::mem::swap(mine, its);
            }
        }
    }

    fn places(&mut self) -> Store<'_> {
        Store {
            frames: &mut self.frames,
            bodies: &mut self.bodies,
        }
    }

    /// Has a frame arrive in another part of the network.
    pub(super) fn hand_over(&mut self, id: PortId, frame: FrameId, at: Time) {
        let there = id.peer();
        let rank = self.queue.rank_of(&Event::Arrive(there, frame));
        let Some(parts) = &self.parts else {
            return;
        };
        let part = parts.of(self.ports[there.index()].node);
        let frame = self.frames.remove(frame);
        self.outbox[part].push(at, rank, there, frame, self.bodies.of(&frame));
        self.release_body(&frame);
    }

    /// Takes in what has left other parts for this one.
    pub(crate) fn open_letter(&mut self, letter: &mut FabricLetter) {
        let mut bytes = &letter.bytes[..];
        for crossing in letter.frames.drain(..) {
            let (own, rest) = bytes.split_at(crossing.len as usize);
            bytes = rest;
            let id = self.places().put(crossing.frame, own);
            let event = Event::Arrive(crossing.port, id);
            self.queue.insert(crossing.at, crossing.rank, event);
        }
        letter.bytes.clear();
    }
}

/// Moves the frames of nodes to another place. Nodes of other parts have none.
fn carry_all(
    ports: &mut [Port],
    adapters: &mut [Adapter],
    from: &mut Store<'_>,
    to: &mut Store<'_>,
) {
    for port in ports {
        port.carry_frames(from, to);
    }
    for adapter in adapters {
        adapter.carry_frames(from, to);
    }
}

/// The same event where its frame is now.
fn carry(event: Event, from: &mut Store<'_>, to: &mut Store<'_>) -> Event {
    match event {
        Event::Arrive(port, frame) => Event::Arrive(port, from.carry(frame, to)),
        Event::PauseActs(port, frame) => Event::PauseActs(port, from.carry(frame, to)),
        other => other,
    }
}

/// Keeps the earlier of two.
fn first<T>(mine: &mut Option<T>, other: Option<T>, at: impl Fn(&T) -> (Time, u64)) {
    let both = mine.take().into_iter().chain(other);
    *mine = both.min_by_key(at);
}
