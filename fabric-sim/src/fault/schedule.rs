//! Faults that begin and end at their times: of cables, of pause frames, of hosts.

use crate::engine::{Span, Time};
use crate::fabric::{DropReason, Event, Fabric, Step, Upcall};
use crate::fault::{Fault, FaultKind, Scope};
use crate::qos::PRIORITIES;
use crate::topology::{HostId, Node, PortId, Routes};

impl Fabric {
    pub(super) fn schedule_fault(&mut self, number: u32, from: Time, to: Time) {
        let now = self.now();
        self.queue
            .push(from.max(now), Event::Fault(number, Step::Begin));
        if to != Time::NEVER {
            self.queue
                .push(to.max(now), Event::Fault(number, Step::End));
        }
    }

    pub(crate) fn on_fault(&mut self, number: u32, step: Step) {
        let place = number as usize;
        let fault = self.faults.list[place].fault.clone();
        let is_over = self.now() >= fault.to;
        if step == Step::Begin {
            self.faults.list[place].hits += 1;
        }
        match fault.kind {
            FaultKind::Rate(rate) => {
                for port in self.covered(place) {
                    let usual = self.topology().link_at(port).rate;
                    let port = &mut self.ports[port.index()];
                    port.link.rate = if step == Step::End { usual } else { rate };
                }
            }
            FaultKind::LinkDown { flap, reroute } => match step {
                Step::Reroute => self.reroute(),
                Step::Again if is_over => {}
                _ => {
                    let is_down = match step {
                        Step::Begin => true,
                        Step::End => false,
                        _ => !self.faults.list[place].is_down,
                    };
                    self.take_down(place, is_down);
                    if let (Some((down, up)), true) = (flap, step != Step::End) {
                        let next = if is_down { down } else { up };
                        self.after(next, number, Step::Again);
                    }
                    if let Some(delay) = reroute {
                        self.after(delay, number, Step::Reroute);
                    }
                }
            },
            // The last pause runs out by itself.
            FaultKind::PauseStorm { classes } if step != Step::End && !is_over => {
                self.storm(&fault, number, classes);
            }
            FaultKind::SlowReceiver(rate) => {
                let hosts: Vec<HostId> = fault.hosts(self.topology()).collect();
                let usual = self.config().adapter.rx_rate;
                for host in hosts {
                    self.set_rx_rate(host, if step == Step::End { usual } else { Some(rate) });
                }
            }
            FaultKind::Crash { .. } if step == Step::Reroute => self.reroute(),
            FaultKind::Crash { reroute } => match fault.scope {
                Scope::Host(host) => self.crash(host, step != Step::End),
                _ => {
                    self.crash_switch(place, step != Step::End);
                    if let Some(delay) = reroute {
                        self.after(delay, number, Step::Reroute);
                    }
                }
            },
            _ => {}
        }
    }

    fn after(&mut self, span: Span, number: u32, step: Step) {
        let at = self.now() + span;
        self.queue.push(at, Event::Fault(number, step));
    }

    fn covered(&self, place: usize) -> Vec<PortId> {
        let covers = &self.faults.list[place].covers;
        self.topology()
            .ports()
            .filter(|p| covers[p.index()])
            .collect()
    }

    /// A cable is down as long as one fault has it down.
    fn take_down(&mut self, place: usize, is_down: bool) {
        self.faults.list[place].is_down = is_down;
        for port in self.covered(place) {
            let is_down = self.is_taken_down(port);
            if self.ports[port.index()].is_down != is_down {
                self.set_link_down(port, is_down);
            }
        }
    }

    fn is_taken_down(&self, port: PortId) -> bool {
        let has_down = |f: &super::ActiveFault| {
            f.is_down && (f.covers[port.index()] || f.covers[port.peer().index()])
        };
        self.faults.list.iter().any(has_down)
    }

    fn reroute(&mut self) {
        let routes = Routes::shortest(self.topology(), |port| self.ports[port.index()].is_down);
        self.routes = routes.into();
        self.groups.forget_trees();
    }

    fn storm(&mut self, fault: &Fault, number: u32, classes: u8) {
        // A host that misbehaves pauses where no others do, too.
        let times = self.qos.pause_times().unwrap_or_default();
        let pause = self.qos.pause(classes, times.quanta);
        let ports: Vec<PortId> = self
            .topology()
            .ports()
            .filter(|&p| fault.owns(self.topology(), p))
            .collect();
        let refresh = ports
            .iter()
            .map(|p| times.refresh(self.ports[p.peer().index()].link.rate))
            .min();
        for port in ports {
            self.send_pause(port, pause);
        }
        if let Some(refresh) = refresh {
            self.after(refresh, number, Step::Again);
        }
    }

    /// A switch is gone, with all that it holds, or is back.
    fn crash_switch(&mut self, place: usize, is_down: bool) {
        self.take_down(place, is_down);
        if is_down {
            for port in self.covered(place) {
                if matches!(self.ports[port.index()].node, Node::Switch(s) if self.faults.list[place].fault.scope == Scope::Switch(s))
                {
                    self.empty_port(port);
                }
            }
        }
    }

    /// Takes a host out, with what its adapter holds, or has it start again. The driver is told.
    fn crash(&mut self, host: HostId, is_down: bool) {
        self.set_host_down(host, is_down);
        if is_down {
            let now = self.now();
            for port in self.ports_of(host).to_vec() {
                for priority in 0..PRIORITIES as u8 {
                    while let Some(frame) =
                        self.ports[port.index()].take_from(&self.frames, priority, now)
                    {
                        self.discard(port, frame, DropReason::HostDown);
                    }
                }
            }
            self.pending = Some(Upcall::Crashed(host));
        } else {
            self.pending = Some(Upcall::Restarted(host));
        }
    }
}
