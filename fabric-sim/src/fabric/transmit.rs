//! Departure of frames from ports.

use crate::engine::Time;
use crate::fabric::tap::{Fate, TapEvent};
use crate::fabric::{DropReason, Event, Fabric, Hop, Upcall, bytes_of};
use crate::fault::Leaving;
use crate::frame::{Bodies, FrameId, Payload};
use crate::link::FRAME_GAP;
use crate::qos::PRIORITIES;
use crate::switch::DeadQueue;
use crate::topology::{HostId, Node, PortId};

impl Fabric {
    /// Starts to send, if the port is free and may.
    #[inline]
    pub(crate) fn kick(&mut self, id: PortId) {
        let now = self.queue.now();
        let port = &mut self.ports[id.index()];
        if port.busy.is_some() || port.is_down {
            return;
        }
        let Some(frame) = port.dequeue(&self.frames, now) else {
            return;
        };
        port.busy = Some(frame);
        let f = self.frames.get(frame);
        self.queue
            .push(now + port.link.occupancy(f.len), Event::TxDone(id));
        if !f.payload.is_control() {
            let class = usize::from(f.priority);
            port.classes[class].sent_frames += 1;
            port.classes[class].sent_bytes += u64::from(f.len);
        }
        if self.telemetry.is_read() {
            self.write_telemetry(now, id, frame);
        }
        if self.tap.is_some() {
            self.show_sending(now, id, frame);
        }
    }

    /// A switch writes into a packet how its port does.
    #[cold]
    fn write_telemetry(&mut self, now: Time, id: PortId, frame: FrameId) {
        let port = &self.ports[id.index()];
        if let (Node::Switch(_), Payload::Roce { body, .. }) =
            (port.node, self.frames.get(frame).payload)
        {
            let stats = port.stats();
            let bytes: u64 = stats.sent_bytes.iter().sum();
            let frames: u64 = stats.sent_frames.iter().sum();
            let hop = Hop {
                port: id,
                queue: port.queued,
                sent: bytes + frames * u64::from(FRAME_GAP),
                at: now,
                rate: port.link.rate,
            };
            self.telemetry.write(body, hop);
        }
    }

    #[cold]
    fn show_sending(&mut self, now: Time, port: PortId, id: FrameId) {
        self.catch_up(id);
        let (Some(tap), frame) = (&mut self.tap, self.frames.get(id)) else {
            return;
        };
        let bytes = bytes_of(&self.bodies, frame);
        tap.event(now, &TapEvent::Sending { port, frame, bytes });
        if !frame.payload.is_control() {
            let priority = frame.priority;
            self.show_queue(port, priority);
        }
    }

    /// Tells taps how long a queue is now.
    #[inline]
    pub(crate) fn show_queue(&mut self, port: PortId, priority: u8) {
        if self.tap.is_some() {
            self.show(TapEvent::Queue {
                port,
                priority,
                bytes: self.queue_bytes(port, priority),
            });
        }
    }

    /// The last bit of a frame has left.
    pub(crate) fn on_tx_done(&mut self, id: PortId) {
        let port = &mut self.ports[id.index()];
        let Some(frame) = port.busy.take() else {
            return;
        };
        let node = port.node;
        let is_control = self.frames.get(frame).payload.is_control();
        match node {
            Node::Switch(switch) if !is_control => self.release(switch, frame),
            Node::Switch(_) => {}
            Node::Host(host) => self.pending = Some(Upcall::Room(host)),
        }
        self.depart(id, frame);
        self.kick(id);
    }

    /// Puts a frame on the cable.
    #[inline]
    fn depart(&mut self, id: PortId, frame: FrameId) {
        let port = &mut self.ports[id.index()];
        let mut at = self.queue.now() + port.link.delay;
        if !self.frames.get(frame).payload.is_control() {
            at += port.latency;
        }
        if port.is_down {
            self.refund_credit(id.peer(), frame);
            return self.discard(id, frame, DropReason::LinkDown);
        }
        if port.link.bit_error_rate > 0.0 && self.has_bit_error(id, frame) {
            self.refund_credit(id.peer(), frame);
            return self.discard(id.peer(), frame, DropReason::BitError);
        }
        if self.has_frame_faults || self.interference.is_some() {
            return self.depart_through(id, frame, at);
        }
        if self.ports[id.index()].is_cut {
            return self.hand_over(id, frame, at);
        }
        self.queue.push(at, Event::Arrive(id.peer(), frame));
    }

    /// True if at least one bit of the frame is received wrong.
    #[cold]
    fn has_bit_error(&mut self, id: PortId, frame: FrameId) -> bool {
        let bits = self.frames.get(frame).len * 8;
        let port = &mut self.ports[id.index()];
        // 1 - (1 - p)^n by multiplication alone, the same on every machine.
        let odds = port.link.bit_error_rate.clamp(0.0, 1.0);
        let (mut fine, mut power, mut n) = (1.0, 1.0 - odds, bits);
        while n > 0 {
            if n & 1 == 1 {
                fine *= power;
            }
            power *= power;
            n >>= 1;
        }
        port.rng.unit() >= fine
    }

    #[cold]
    fn depart_through(&mut self, id: PortId, frame: FrameId, at: Time) {
        self.catch_up(frame);
        let now = self.queue.now();
        let Some(interference) = &mut self.interference else {
            return self.depart_with_faults(id, frame, at);
        };
        let f = self.frames.get_mut(frame);
        let bytes = body_mut(&mut self.bodies, &f.payload);
        match interference.on_wire(now, id, f, bytes) {
            Fate::Pass => self.depart_with_faults(id, frame, at),
            Fate::Lose => {
                self.refund_credit(id.peer(), frame);
                self.discard(id, frame, DropReason::Fault);
            }
            Fate::Corrupt => {
                self.refund_credit(id.peer(), frame);
                self.discard(id.peer(), frame, DropReason::BitError);
            }
            Fate::Delay(more) => self.queue.push(at + more, Event::Arrive(id.peer(), frame)),
            Fate::Duplicate(later) => {
                let copy = self.duplicate(frame);
                self.queue.push(at, Event::Arrive(id.peer(), frame));
                self.arrive_also(id, copy, at + later);
            }
        }
    }

    /// Asks all faults what becomes of the frame.
    fn depart_with_faults(&mut self, id: PortId, frame: FrameId, at: Time) {
        let f = self.frames.get_mut(frame);
        let bytes = body_mut(&mut self.bodies, &f.payload);
        let verdict = self.faults.on_wire(&mut Leaving {
            now: self.queue.now(),
            port: id,
            node: self.ports[id.index()].node,
            mode: self.config.mode,
            tag_len: self.qos.tag_len() as usize,
            frame: f,
            bytes,
        });
        if let Some(reason) = verdict.lost {
            self.refund_credit(id.peer(), frame);
            // What is damaged is found where it arrives.
            let port = match reason {
                DropReason::BitError => id.peer(),
                _ => id,
            };
            return self.discard(port, frame, reason);
        }
        let at = at + verdict.delay;
        self.queue.push(at, Event::Arrive(id.peer(), frame));
        for later in verdict.copies.into_iter().flatten() {
            let copy = self.duplicate(frame);
            self.arrive_also(id, copy, at + later);
        }
        if let Some((forgery, draw)) = verdict.forged {
            let forged = self.forge(frame, forgery, draw);
            self.arrive_also(id, forged, at);
        }
    }

    /// A frame that the port did not send arrives, too. Its room is charged like that of any other.
    fn arrive_also(&mut self, id: PortId, frame: FrameId, at: Time) {
        let f = *self.frames.get(frame);
        if let Some(credit) = &mut self.ports[id.index()].credit
            && !f.payload.is_control()
        {
            credit.spend(f.priority, f.len);
        }
        self.queue.push(at, Event::Arrive(id.peer(), frame));
    }

    /// Makes a second frame of the same content.
    pub(crate) fn duplicate(&mut self, id: FrameId) -> FrameId {
        let mut copy = *self.frames.get(id);
        if let Payload::Roce { body, .. }
        | Payload::Pause {
            body: Some(body), ..
        } = &mut copy.payload
        {
            *body = self.bodies.copy(*body);
        }
        self.inject(copy)
    }

    /// Bytes that wait in a host's adapter for a class.
    #[inline]
    pub fn waiting(&self, host: HostId, priority: u8) -> u64 {
        let ports = self.ports_of(host).iter();
        ports.map(|&port| self.queue_bytes(port, priority)).sum()
    }

    /// Bytes that wait in a host's adapter for all classes.
    #[inline]
    pub fn waiting_in_all(&self, host: HostId) -> u64 {
        let ports = self.ports_of(host).iter();
        ports.map(|port| self.ports[port.index()].queued).sum()
    }

    /// The counters of a port.
    pub fn port_stats(&self, port: PortId) -> crate::fabric::PortStats {
        self.ports[port.index()].stats()
    }

    /// Bytes in a port's queue of a class.
    pub fn queue_bytes(&self, port: PortId, priority: u8) -> u64 {
        self.ports[port.index()].classes[usize::from(priority)]
            .queue
            .bytes
    }

    /// Drops what waits in a port of a switch.
    pub(crate) fn empty_port(&mut self, port: PortId) {
        for priority in 0..PRIORITIES as u8 {
            self.drain(port, priority, DropReason::NoCarrier);
        }
    }

    /// Takes a cable out of service, or into it again. What is on the cable arrives. What waits for it in a switch is dropped, or
    /// kept, as [`DeadQueue`] says; what waits in the adapter of a host waits.
    pub fn set_link_down(&mut self, port: PortId, is_down: bool) {
        for end in [port, port.peer()] {
            self.ports[end.index()].is_down = is_down;
            if !is_down {
                self.kick(end);
            } else if self.config.switch.dead_queue == DeadQueue::Flush {
                self.empty_port(end);
            }
        }
    }
}

/// The place of a frame's bytes; empty if it has none.
fn body_mut<'a>(bodies: &'a mut Bodies, payload: &Payload) -> &'a mut [u8] {
    let body = payload.body();
    body.map_or(&mut [], |body| bodies.get_mut(body))
}
