//! Pause frames (802.1Qbb and 802.3x): sent, told again, acted on, and running out.

use urxe_wire::{Frame as WireFrame, LinkType, Mac, PAUSE_DESTINATION, Pause, PauseFrame};

use crate::engine::mix64;
use crate::fabric::port::bits;
use crate::fabric::tap::{PauseCause, TapEvent};
use crate::fabric::{Event, Fabric, Mode};
use crate::frame::{Frame, FrameId, Payload};
use crate::qos::{FlowControl, PRIORITIES, PauseTimes};
use crate::topology::{Node, PortId};

impl Fabric {
    /// Tells the neighbour at `port` to stop a class, or that it may go on.
    pub(crate) fn tell_pause(&mut self, port: PortId, priority: u8, is_off: bool) {
        let Some(times) = self.qos.pause_times() else {
            return;
        };
        let class = 1 << priority;
        let is_one_switch = matches!(self.qos.flow_control, FlowControl::Pause(_));
        if is_one_switch && !is_off && self.classes_off(port) & !class != 0 {
            // On only when no class needs it off.
            return;
        }
        let quanta = if is_off { times.quanta } else { 0 };
        let pause = self.qos.pause(class, quanta);
        let held = self.held(port, priority);
        let cause = if is_off {
            PauseCause::Full { priority, held }
        } else {
            PauseCause::Free { priority, held }
        };
        self.emit_pause(port, pause, cause);
        if is_off && !self.ports[port.index()].refresh_armed {
            self.arm_refresh(port, times);
        }
    }

    /// Sends any pause frame from a port: what a misbehaving host does.
    pub fn send_pause(&mut self, port: PortId, pause: Pause) {
        self.emit_pause(port, pause, PauseCause::Asked);
    }

    fn emit_pause(&mut self, port: PortId, pause: Pause, cause: PauseCause) {
        self.show(TapEvent::Telling { port, pause, cause });
        let stops = match pause {
            Pause::All(quanta) => quanta > 0,
            Pause::Priorities { enabled, quanta } => {
                (0..PRIORITIES).any(|p| enabled & (1 << p) != 0 && quanta[p] > 0)
            }
        };
        let body = (self.config.mode == Mode::Bytes).then(|| {
            let frame = PauseFrame {
                dst: PAUSE_DESTINATION,
                src: mac_of(port),
                pause,
            };
            let body = self.bodies.take(PauseFrame::LEN);
            self.bodies.get_mut(body)[..PauseFrame::LEN].copy_from_slice(&frame.emit());
            body
        });
        let stats = &mut self.ports[port.index()].rare;
        if stops {
            stats.pauses_sent += 1;
        } else {
            stats.resumes_sent += 1;
        }
        self.send_control(port, digest_of(pause), Payload::Pause { pause, body });
    }

    /// Sends the neighbour something that does not queue behind data.
    pub(crate) fn send_control(&mut self, port: PortId, digest: u64, payload: Payload) {
        let now = self.queue.now();
        let id = self.inject(Frame::control(port, now, digest, payload));
        self.ports[port.index()].control.push(&mut self.frames, id);
        self.kick(port);
    }

    /// Bytes of a class that came through this port and wait.
    fn held(&self, id: PortId, priority: u8) -> u64 {
        match self.ports[id.index()].node {
            Node::Switch(_) => self.ingress_use(id, priority).map_or(0, |u| u.total()),
            Node::Host(host) => self.adapters[host.index()].waits_to_be_taken_in(priority),
        }
    }

    /// The classes that this port's neighbour is told to stop.
    fn classes_off(&self, id: PortId) -> u8 {
        let port = &self.ports[id.index()];
        match port.node {
            Node::Switch(switch) => {
                let mmu = &self.switches[switch.index()].mmu;
                let local = usize::from(port.local);
                let is_off = |p: &u8| mmu.ingress(local, *p).is_off;
                (0..PRIORITIES as u8)
                    .filter(is_off)
                    .fold(0, |mask, p| mask | 1 << p)
            }
            Node::Host(host) => self.adapters[host.index()].off,
        }
    }

    fn arm_refresh(&mut self, id: PortId, times: PauseTimes) {
        self.ports[id.index()].refresh_armed = true;
        // The neighbour counts quanta at its own rate.
        let rate = self.ports[id.peer().index()].link.rate;
        let at = self.queue.now() + times.refresh(rate);
        self.queue.push(at, Event::PauseRefresh(id));
    }

    pub(crate) fn on_pause_refresh(&mut self, id: PortId) {
        self.ports[id.index()].refresh_armed = false;
        let off = self.classes_off(id);
        if let Some(times) = self.qos.pause_times().filter(|_| off != 0) {
            self.emit_pause(id, self.qos.pause(off, times.quanta), PauseCause::Again);
            self.arm_refresh(id, times);
        }
    }

    /// The port acts on a pause frame.
    pub(crate) fn on_pause_acts(&mut self, id: PortId, frame: FrameId) {
        let pause = match self.frames.get(frame).payload {
            Payload::Pause {
                body: Some(body), ..
            } => {
                let bytes = &self.bodies.get(body)[..PauseFrame::LEN];
                match WireFrame::parse(LinkType::Ethernet, bytes) {
                    Ok(WireFrame::Pause(frame)) => Some(frame.pause),
                    // Not a pause frame any more: ignored, as by any port.
                    _ => None,
                }
            }
            Payload::Pause { pause, body: None } => Some(pause),
            _ => None,
        };
        self.consume(frame);
        match pause {
            Some(Pause::All(quanta)) => self.pause(id, u8::MAX, [quanta; PRIORITIES]),
            Some(Pause::Priorities { enabled, quanta }) => self.pause(id, enabled as u8, quanta),
            None => {}
        }
    }

    fn pause(&mut self, id: PortId, classes: u8, quanta: [u16; PRIORITIES]) {
        let now = self.queue.now();
        let rate = self.ports[id.index()].link.rate;
        for priority in bits(classes) {
            let class = usize::from(priority);
            if quanta[class] == 0 {
                self.resume(id, priority);
                continue;
            }
            let port = &mut self.ports[id.index()];
            let until = now + PauseTimes::of_quanta(quanta[class], rate);
            port.paused_until[class] = until;
            if !port.is_paused(priority) {
                port.paused |= 1 << priority;
                port.paused_since[class] = now;
                self.show_pause(id, priority, true);
            }
            let port = &mut self.ports[id.index()];
            if !port.expiry_armed {
                port.expiry_armed = true;
                self.queue.push(until, Event::PauseExpires(id));
            }
            self.watch(id, priority);
        }
        self.kick(id);
    }

    fn resume(&mut self, id: PortId, priority: u8) {
        let now = self.queue.now();
        let port = &mut self.ports[id.index()];
        if port.is_paused(priority) {
            let class = usize::from(priority);
            port.paused &= !(1 << priority);
            port.rare.paused[class] += now.since(port.paused_since[class]);
            self.show_pause(id, priority, false);
        }
    }

    fn show_pause(&mut self, port: PortId, priority: u8, is_paused: bool) {
        self.show(TapEvent::Paused {
            port,
            priority,
            is_paused,
        });
    }

    /// Releases classes if their pause was not repeated in time.
    pub(crate) fn on_pause_expires(&mut self, id: PortId) {
        let now = self.queue.now();
        for priority in bits(self.ports[id.index()].paused) {
            if self.ports[id.index()].paused_until[usize::from(priority)] <= now {
                self.resume(id, priority);
            }
        }
        let port = &mut self.ports[id.index()];
        let next = bits(port.paused)
            .map(|p| port.paused_until[usize::from(p)])
            .min();
        port.expiry_armed = next.is_some();
        if let Some(at) = next {
            self.queue.push(at, Event::PauseExpires(id));
        }
        self.kick(id);
    }
}

/// A port's own address: locally administered, with its number.
pub(crate) fn mac_of(port: PortId) -> Mac {
    let [a, b, c, d] = port.0.to_be_bytes();
    Mac([0x02, 0x50, a, b, c, d])
}

fn digest_of(pause: Pause) -> u64 {
    match pause {
        Pause::All(quanta) => mix64(1 << 40 | u64::from(quanta)),
        Pause::Priorities { enabled, quanta } => {
            let all = quanta
                .iter()
                .fold(0u64, |hash, &q| mix64(hash ^ u64::from(q)));
            mix64(2 << 40 ^ all ^ u64::from(enabled))
        }
    }
}
