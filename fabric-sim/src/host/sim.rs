//! `Sim`: a fabric with its hosts.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::check::{Checks, Mark, Told};
use crate::engine::{Entity, Rate, Rng, Span, Time, Work};
use crate::envelope::flow_hash;
use crate::fabric::{Fabric, FabricConfig, FabricError, Upcall, frame_len};
use crate::fault::{Fault, FaultError, FaultId};
use crate::flow::{Arrivals, Flow, FlowId, FlowSpec};
use crate::frame::{Frame, Payload};
use crate::host::drive::Drivers;
use crate::host::letter::Letter;
use crate::host::timer::TimerFor;
use crate::link::FRAME_GAP;
use crate::qos::PRIORITIES;
use crate::topology::{HostId, Parts, Topology};

/// Frames that wait in an adapter's queue of a class before its flows are asked for more.
const ADAPTER_FRAMES: u64 = 2;

/// IP and UDP headers, BTH and ICRC: what is around the payload of a packet of a plain flow.
const PACKET_OVERHEAD: u32 = 20 + 8 + 12 + 4;

/// Why a simulation cannot be built.
pub type BuildError = FabricError;

/// The flows of a host that could send now, by class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Senders {
    listed: [VecDeque<FlowId>; PRIORITIES],
}

/// A simulation: the network, and what its hosts do.
#[derive(Debug)]
pub struct Sim {
    pub(crate) fabric: Fabric,
    pub(crate) drivers: Drivers,
    pub(crate) flows: Vec<Flow>,
    /// By flow.
    pub(crate) arrivals: Vec<Rng>,
    pub(crate) senders: Vec<Senders>,
    pub(crate) until: Time,
    pub(crate) checks: Checks,
    /// How it is divided, for runs on several threads, and how long one part can run without the others.
    pub(crate) division: Option<(Arc<Parts>, Span)>,
    pub(crate) threads: usize,
    /// Why a run was on one thread that was to be on more.
    pub(crate) was_alone: Option<&'static str>,
    /// What the threads did.
    pub(crate) work: Work,
    /// Of a part: what it has for each other.
    pub(crate) letters: Vec<Letter<Told>>,
}

impl Sim {
    /// Builds a simulation at time zero, in which nothing happens yet.
    ///
    /// # Errors
    /// [`BuildError`] if the network is impossible.
    pub fn new(topology: Topology, config: FabricConfig) -> Result<Sim, BuildError> {
        let hosts = topology.host_count();
        Ok(Sim {
            fabric: Fabric::new(topology, config)?,
            drivers: Drivers::new(hosts),
            flows: Vec::new(),
            arrivals: Vec::new(),
            senders: vec![Senders::default(); hosts],
            until: Time::ZERO,
            checks: Checks::default(),
            division: None,
            threads: 1,
            was_alone: None,
            work: Work::default(),
            letters: Vec::new(),
        })
    }

    /// Adds a flow. It begins at its time, or now if that is over.
    pub fn add_flow(&mut self, spec: FlowSpec) -> FlowId {
        let id = FlowId(self.flows.len() as u32);
        let priority = self.fabric.config().qos.priority_of(spec.tos);
        let hash = flow_hash(spec.from, spec.to, spec.source_port);
        if let Some(plane) = spec.plane {
            self.fabric.set_plane(spec.from, hash, plane);
        }
        if let Some(plane) = spec.to_plane {
            self.fabric.set_arrival_plane(spec.from, hash, plane);
        }
        self.flows.push(Flow::new(spec, priority, hash));
        let seed = self.fabric.config().seed;
        self.arrivals
            .push(Rng::stream(seed, Entity::Flow(id.0), "arrivals"));
        self.set_timer(spec.from, spec.start, TimerFor::Flow(id.0));
        id
    }

    /// A flow.
    pub fn flow(&self, id: FlowId) -> &Flow {
        &self.flows[id.0 as usize]
    }

    /// All flows.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The network.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The network, to change it while it runs.
    pub fn fabric_mut(&mut self) -> &mut Fabric {
        &mut self.fabric
    }

    /// What time it is: the end of the last run.
    pub fn now(&self) -> Time {
        self.until.max(self.fabric.now())
    }

    /// Runs for so long.
    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now() + span);
    }

    /// Runs until that time. Returns false if nothing is left to happen.
    pub fn run_until(&mut self, until: Time) -> bool {
        let goes_on = self.advance(until);
        if until != Time::NEVER {
            self.until = until;
        }
        goes_on
    }

    /// A piece of a run. Returns false if nothing is left to happen.
    pub(crate) fn advance(&mut self, until: Time) -> bool {
        loop {
            let stop = until.min(self.checks.next_look);
            self.go_on(stop);
            if stop == until || self.fabric.is_idle() {
                break;
            }
            self.look_in_passing();
        }
        !self.fabric.is_idle()
    }

    /// Runs until that time on this thread.
    pub(crate) fn go_on_alone(&mut self, until: Time) {
        while let Some(upcall) = self.fabric.step(until) {
            self.handle(upcall);
        }
    }

    /// Goes on until something concerns a program that is not the transport's, or until a time: then `None`.
    #[cfg(feature = "programs")]
    pub(crate) fn step_for_programs(&mut self, until: Time) -> Option<Upcall> {
        loop {
            let stop = until.min(self.checks.next_look);
            let upcall = self.step_to_programs(stop);
            if upcall.is_some() || stop == until || self.fabric.is_idle() {
                return upcall;
            }
            self.look_in_passing();
        }
    }

    #[cfg(feature = "programs")]
    fn step_to_programs(&mut self, until: Time) -> Option<Upcall> {
        while let Some(upcall) = self.fabric.step(until) {
            match upcall {
                Upcall::Received(host, id)
                    if self.transport(host).is_none()
                        && matches!(self.fabric.frame(id).payload, Payload::Roce { .. }) =>
                {
                    return Some(upcall);
                }
                Upcall::Timer(_, token)
                    if matches!(TimerFor::of(token), TimerFor::Task(_) | TimerFor::Contexts) =>
                {
                    return Some(upcall);
                }
                Upcall::Room(_) | Upcall::Crashed(_) | Upcall::Restarted(_) => {
                    self.handle(upcall);
                    return Some(upcall);
                }
                _ => self.handle(upcall),
            }
        }
        None
    }

    /// Runs until nothing is left to happen.
    pub fn run(&mut self) {
        self.run_until(Time::NEVER);
    }

    /// Adds a fault. It begins at its time, or now if that is over.
    ///
    /// # Errors
    /// [`FaultError`] says what makes no sense in this network.
    pub fn add_fault(&mut self, fault: Fault) -> Result<FaultId, FaultError> {
        self.fabric.add_fault(fault)
    }

    #[inline]
    fn handle(&mut self, upcall: Upcall) {
        match upcall {
            Upcall::Received(host, id) => {
                let frame = self.fabric.take(id);
                self.on_frame(host, &frame);
                self.fabric.release_body(&frame);
            }
            Upcall::Room(host) => {
                self.fill(host);
                self.serve(host);
            }
            Upcall::Timer(host, token) => self.on_timer(host, TimerFor::of(token)),
            Upcall::Crashed(host) => self.on_crash(host),
            Upcall::Restarted(host) => self.on_restart(host),
        }
    }

    pub(crate) fn set_timer(&mut self, host: HostId, at: Time, what: TimerFor) {
        self.fabric.set_timer(host, at, what.token());
    }

    fn on_timer(&mut self, host: HostId, what: TimerFor) {
        match what {
            TimerFor::Flow(id) => return self.on_flow_timer(host, FlowId(id)),
            TimerFor::Transport => self.on_transport_timer(host),
            TimerFor::Grant => return self.on_grant_timer(host),
            TimerFor::Stream(id) => self.post_messages(id),
            TimerFor::Receive(id) => self.post_receive(id),
            TimerFor::Job(place) => self.on_job_timer(host, place),
            TimerFor::Task(_) | TimerFor::Contexts => return,
        }
        self.serve(host);
    }

    fn on_flow_timer(&mut self, host: HostId, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id.0 as usize) else {
            return;
        };
        match flow.spec.arrivals {
            Arrivals::Poisson(rate) => self.on_random_arrival(host, id, rate),
            _ if !flow.is_listed => {
                flow.is_listed = true;
                let class = usize::from(flow.priority);
                self.senders[host.index()].listed[class].push_back(id);
                self.fill(host);
            }
            _ => {}
        }
    }

    /// A host is gone, with its transport; its plain flows stop.
    fn on_crash(&mut self, host: HostId) {
        for listed in &mut self.senders[host.index()].listed {
            for id in listed.drain(..) {
                self.flows[id.0 as usize].is_halted = true;
            }
        }
        if let Some(transport) = &self.drivers.transports[host.index()] {
            self.checks.marks.add_counters(transport.stats().iter());
        }
        self.checks.marks.add(Mark::Crash, 1);
        self.drop_transport(host);
    }

    /// A host is back: its plain flows go on, its connections do not.
    fn on_restart(&mut self, host: HostId) {
        for place in 0..self.flows.len() {
            let flow = &mut self.flows[place];
            if flow.spec.from == host && core::mem::take(&mut flow.is_halted) {
                flow.is_listed = false;
                self.on_flow_timer(host, FlowId(place as u32));
            }
        }
        self.restart_transport(host);
    }

    /// Sends a packet, and draws when the next one comes.
    fn on_random_arrival(&mut self, host: HostId, id: FlowId, rate: Rate) {
        if !self.emit(id) {
            return;
        }
        let mean = u128::from(self.interval(id, rate).ps());
        let draw = u128::from(self.arrivals[id.0 as usize].exponential_q32());
        let wait = Span::from_ps(((mean * draw) >> 32) as u64);
        self.set_timer(host, self.fabric.now() + wait, TimerFor::Flow(id.0));
    }

    /// Time that a full packet of the flow takes at a rate.
    fn interval(&self, id: FlowId, rate: Rate) -> Span {
        let flow = &self.flows[id.0 as usize];
        let len = frame_len(
            PACKET_OVERHEAD + flow.spec.payload,
            &self.fabric.config().qos,
        );
        rate.time_of(u64::from(len + FRAME_GAP))
    }

    /// Gives the adapter of a host what it has room for, flow by flow in turn.
    fn fill(&mut self, host: HostId) {
        if self.flows.is_empty() {
            return;
        }
        for class in 0..PRIORITIES {
            while let Some(&id) = self.senders[host.index()].listed[class].front() {
                let flow = &self.flows[id.0 as usize];
                let planes = self.fabric.ports_of(host).len() as u64;
                let limit = ADAPTER_FRAMES * planes * u64::from(flow.spec.payload.max(64));
                if self.fabric.waiting(host, flow.priority) >= limit {
                    break;
                }
                let listed = &mut self.senders[host.index()].listed[class];
                listed.pop_front();
                let sent = self.emit(id);
                let now = self.fabric.now();
                let flow = &mut self.flows[id.0 as usize];
                match flow.spec.arrivals {
                    _ if !sent => flow.is_listed = false,
                    Arrivals::Paced(rate) => {
                        // Late packets do not make up for it: a pacer has no memory.
                        flow.is_listed = false;
                        let at = flow.next_at.max(now) + self.interval(id, rate);
                        self.flows[id.0 as usize].next_at = at;
                        self.set_timer(host, at, TimerFor::Flow(id.0));
                    }
                    _ => self.senders[host.index()].listed[class].push_back(id),
                }
            }
        }
    }

    /// Makes the next packet of a flow; false if there is none.
    fn emit(&mut self, id: FlowId) -> bool {
        let now = self.fabric.now();
        let flow = &mut self.flows[id.0 as usize];
        let payload = flow.next_payload(now);
        if payload > 0 && self.fabric.is_host_down(flow.spec.from) {
            flow.is_halted = true;
            return false;
        }
        if payload == 0 {
            return false;
        }
        let packet = flow.sent;
        flow.sent += 1;
        flow.sent_bytes += u64::from(payload);
        let frame = Frame {
            next: None,
            len: frame_len(PACKET_OVERHEAD + payload, &self.fabric.config().qos),
            src: flow.spec.from,
            dst: flow.spec.to,
            flow_hash: flow.hash,
            ingress: self.fabric.port_of(flow.spec.from),
            priority: flow.priority,
            tos: flow.spec.tos,
            ttl: flow.spec.ttl,
            rail: 0,
            is_behind: false,
            born: now,
            digest: u64::from(id.0) << 32 | u64::from(packet),
            payload: Payload::Flow {
                flow: id.0,
                packet,
                payload,
            },
        };
        let host = flow.spec.from;
        self.fabric.send(host, frame);
        true
    }

    #[inline]
    fn on_frame(&mut self, host: HostId, frame: &Frame) {
        let now = self.fabric.now();
        if let Payload::Roce { .. } = frame.payload {
            self.on_packet(host, frame);
        } else if let Payload::Grant { qpn, packets } = frame.payload {
            self.admit_for(host, frame);
            self.on_grant(host, qpn, packets);
        } else if let Payload::Flow {
            flow,
            packet,
            payload,
        } = frame.payload
        {
            let flow = &mut self.flows[flow as usize];
            flow.delivered += 1;
            flow.delivered_bytes += u64::from(payload);
            flow.reordered += u32::from(packet < flow.expected);
            flow.expected = flow.expected.max(packet + 1);
            flow.marked += u32::from(frame.is_marked());
            flow.last = now;
            let latency = now.since(frame.born);
            flow.latency += latency;
            flow.latency_max = flow.latency_max.max(latency);
        }
    }
}
