//! Arrival of frames at switches.

use crate::envelope::is_group;
use crate::fabric::tap::TapEvent;
use crate::fabric::{DropReason, Event, Fabric, bytes_of};
use crate::frame::{Frame, FrameId, Payload};
use crate::link::ETHERNET_OVERHEAD;
use crate::qos::FlowControl;
use crate::switch::{Arrival, Balance, DeadQueue};
use crate::topology::{HostId, Node, PortId, SwitchId};

impl Fabric {
    /// The last bit of a frame is here.
    pub(crate) fn on_arrive(&mut self, id: PortId, frame: FrameId) {
        let now = self.queue.now();
        if self.tap.is_some() {
            self.catch_up(frame);
        }
        let f = self.frames.get(frame);
        self.trace
            .record(now, u64::from(id.0), f.digest ^ u64::from(f.len) << 32);
        let port = &mut self.ports[id.index()];
        port.received_frames += 1;
        if let Some(tap) = &mut self.tap {
            let bytes = bytes_of(&self.bodies, f);
            tap.event(
                now,
                &TapEvent::Arrived {
                    port: id,
                    frame: f,
                    bytes,
                },
            );
        }
        if f.payload.is_control() {
            return self.on_control(id, frame);
        }
        let (priority, len) = (f.priority, f.len);
        port.received_bytes += u64::from(len);
        let (node, mtu) = (port.node, port.link.mtu);
        if port.credit.is_some() {
            self.count_credit(id, priority, len);
        }
        if len > mtu + ETHERNET_OVERHEAD + self.qos.tag_len() {
            self.give_credit(id, frame);
            return self.discard(id, frame, DropReason::TooLong);
        }
        match node {
            Node::Switch(switch) => self.forward(switch, id, frame),
            Node::Host(host) => self.take_in(host, id, frame),
        }
    }

    /// A switch looks where a frame goes and takes it into its buffer.
    fn forward(&mut self, switch: SwitchId, ingress: PortId, frame: FrameId) {
        let f = self.frames.get_mut(frame);
        f.ingress = ingress;
        f.priority = self.qos.classify(f);
        if f.ttl <= 1 {
            self.give_credit(ingress, frame);
            return self.discard(ingress, frame, DropReason::TimeToLive);
        }
        f.ttl -= 1;
        let f = *f;
        if is_group(f.dst) {
            return self.replicate(switch, frame, &f);
        }
        let Some(egress) = self.spread(switch, &f) else {
            self.give_credit(ingress, frame);
            return self.discard(ingress, frame, DropReason::NoRoute);
        };
        self.store(switch, egress, frame, &f);
    }

    /// The port by which a switch sends a frame on.
    #[inline]
    fn spread(&mut self, switch: SwitchId, f: &Frame) -> Option<PortId> {
        let ports = self.routes.next_on(switch, f.dst, f.rail);
        let balance = self.config.switch.balance;
        if ports.len() < 2 || balance == Balance::Ecmp {
            return self.choose_of(switch, ports, f.flow_hash);
        }
        let balancer = &mut self.switches[switch.index()].balancer;
        let port = |id: PortId| &self.ports[id.index()];
        let is_up = |id| !port(id).is_down;
        Some(match balance {
            Balance::Flowlets(gap) => {
                balancer.flowlet(self.queue.now(), gap, f.flow_hash, ports, is_up)
            }
            Balance::Adaptive => balancer.least(ports, |id| port(id).backlog(&self.frames).ps()),
            Balance::Rotate => balancer.rotate(ports, is_up),
            Balance::Ecmp | Balance::Spray => balancer.draw(ports, is_up),
        })
    }

    /// The port by which a switch sends a flow on, if a hash decides.
    pub(crate) fn choose(
        &self,
        switch: SwitchId,
        (dst, rail): (HostId, u8),
        flow_hash: u32,
    ) -> Option<PortId> {
        let ports = self.routes.next_on(switch, dst, rail);
        self.choose_of(switch, ports, flow_hash)
    }

    #[inline]
    pub(super) fn choose_of(
        &self,
        switch: SwitchId,
        ports: &[PortId],
        flow_hash: u32,
    ) -> Option<PortId> {
        match ports {
            [] => None,
            [only] => Some(*only),
            several => {
                let salt = self.switches[switch.index()].salt;
                let hash = crate::engine::mix64(u64::from(flow_hash) << 32 | u64::from(salt));
                Some(several[(hash % several.len() as u64) as usize])
            }
        }
    }

    pub(super) fn store(&mut self, switch: SwitchId, egress: PortId, id: FrameId, f: &Frame) {
        let now = self.queue.now();
        let port = &self.ports[egress.index()];
        let queued = port.classes[usize::from(f.priority)].queue.bytes;
        let is_dead = port.is_down && self.config.switch.dead_queue == DeadQueue::Flush;
        if port.stormed & (1 << f.priority) != 0 && self.drops_in_storms() {
            self.give_credit_once(f, id);
            return self.discard(egress, id, DropReason::Watchdog);
        }
        if is_dead {
            self.give_credit_once(f, id);
            return self.discard(egress, id, DropReason::NoCarrier);
        }
        let local = usize::from(self.ports[f.ingress.index()].local);
        let is_lossless = self.is_lossless(f);
        if !(is_lossless && self.has_credits()) {
            let arrival = Arrival {
                port: local,
                priority: f.priority,
                len: f.len,
                is_lossless,
                egress: queued,
            };
            let mmu = &mut self.switches[switch.index()].mmu;
            let is_admitted = mmu.admit(&arrival);
            let must_stop = is_lossless && mmu.turns_off(local, f.priority);
            if self.tap.is_some() {
                self.show_buffered(f.ingress, f.priority);
            }
            if must_stop {
                self.tell_pause(f.ingress, f.priority, true);
            }
            if !is_admitted {
                return self.discard(egress, id, DropReason::Buffer);
            }
        }
        self.mark(switch, egress, id, queued);
        let port = &mut self.ports[egress.index()];
        port.enqueue(&mut self.frames, id, f.priority, now);
        self.show_queue(egress, f.priority);
        self.watch(egress, f.priority);
        self.kick(egress);
    }

    /// A frame to a group gave its credit back when it was copied.
    fn give_credit_once(&mut self, f: &Frame, id: FrameId) {
        if !is_group(f.dst) {
            self.give_credit(f.ingress, id);
        }
    }

    /// Marks the frame if the queue that it joins is long.
    #[inline]
    fn mark(&mut self, switch: SwitchId, egress: PortId, id: FrameId, queued: u64) {
        let f = self.frames.get_mut(id);
        f.is_behind = true;
        let own = self.ports[egress.index()].marking.as_deref();
        let marking = own.unwrap_or(&self.config.switch.marking);
        let Some(marking) = marking[usize::from(f.priority)] else {
            return;
        };
        let rng = &mut self.switches[switch.index()].rng;
        if f.is_ect() && marking.marks(queued, rng) {
            f.tos |= Frame::CE;
            self.ports[egress.index()].rare.marked += 1;
            if let Some(tap) = &mut self.tap {
                let frame = self.frames.get(id);
                tap.event(
                    self.queue.now(),
                    &TapEvent::Marked {
                        port: egress,
                        frame,
                    },
                );
            }
        }
    }

    /// A frame has left a switch: its place in the buffer is free.
    #[inline]
    pub(crate) fn release(&mut self, switch: SwitchId, frame: FrameId) {
        let f = *self.frames.get(frame);
        let is_lossless = self.is_lossless(&f);
        if is_lossless && self.has_credits() {
            return self.give_credit(f.ingress, frame);
        }
        let local = usize::from(self.ports[f.ingress.index()].local);
        let mmu = &mut self.switches[switch.index()].mmu;
        mmu.release(local, f.priority, f.len, is_lossless);
        let may_go_on = is_lossless && mmu.turns_on(local, f.priority);
        if self.tap.is_some() {
            self.show_buffered(f.ingress, f.priority);
        }
        if may_go_on {
            self.tell_pause(f.ingress, f.priority, false);
        }
    }

    #[cold]
    fn show_buffered(&mut self, port: PortId, priority: u8) {
        if let Some(taken) = self.ingress_use(port, priority) {
            self.show(TapEvent::Buffered {
                port,
                priority,
                taken,
            });
        }
    }

    #[inline]
    pub(crate) fn has_credits(&self) -> bool {
        matches!(self.qos.flow_control, FlowControl::Credits { .. })
    }

    /// A control frame: for this port alone.
    fn on_control(&mut self, id: PortId, frame: FrameId) {
        match self.frames.get(frame).payload {
            Payload::Credit { priority, limit } => {
                self.consume(frame);
                self.on_credit(id, priority, limit);
            }
            _ => {
                // It takes a port a moment to act on a pause.
                let port = &mut self.ports[id.index()];
                port.rare.pauses_received += 1;
                let acts = self.queue.now() + Fabric::response_time(&port.link);
                self.queue.push(acts, Event::PauseActs(id, frame));
            }
        }
    }
}
