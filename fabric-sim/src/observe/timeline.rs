//! A run as bars on a time axis: flows, jobs, messages, faults, pauses; and what was dropped or marked, as moments.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::Sim;
use crate::engine::{Span, Time};
use crate::fabric::{Tap, TapEvent};
use crate::observe::outcomes;
use crate::topology::{PortId, PortName};
use crate::workload::{job_outcomes, messages};

/// A bar, or a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bar {
    /// What kind of thing it is about: `flows`, `faults`, ...
    pub group: &'static str,
    /// The flow, the fault, or the port.
    pub track: String,
    /// What happened.
    pub name: String,
    /// When it began.
    pub start: Time,
    /// How long it lasted; `None`: it is a moment.
    pub lasts: Option<Span>,
}

#[derive(Debug, Default)]
struct Recorder {
    /// Since when a class of a port is paused.
    paused: BTreeMap<(PortId, u8), Time>,
    pauses: Vec<(PortId, u8, Time, Time)>,
    moments: Vec<(PortId, Time, &'static str)>,
}

impl Tap for Recorder {
    fn event(&mut self, now: Time, event: &TapEvent<'_>) {
        match *event {
            TapEvent::Paused {
                port,
                priority,
                is_paused: true,
            } => {
                self.paused.entry((port, priority)).or_insert(now);
            }
            TapEvent::Paused { port, priority, .. } => {
                if let Some(since) = self.paused.remove(&(port, priority)) {
                    self.pauses.push((port, priority, since, now));
                }
            }
            TapEvent::Dropped { port, reason, .. } => {
                self.moments.push((port, now, reason.name()));
            }
            TapEvent::Marked { port, .. } => self.moments.push((port, now, "marked")),
            _ => {}
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn core::any::Any> {
        self
    }
}

/// Runs a simulation, and gives what happened as bars, in groups.
pub fn timeline(sim: &mut Sim, run: impl FnOnce(&mut Sim)) -> Vec<Bar> {
    let recorder = Rc::new(RefCell::new(Recorder::default()));
    sim.fabric_mut().add_tap(Box::new(Rc::clone(&recorder)));
    run(sim);
    let _ = sim.fabric_mut().take_tap();
    let end = sim.now();
    let mut recorder = recorder.take();
    let open = core::mem::take(&mut recorder.paused).into_iter();
    let open = open.map(|((port, class), since)| (port, class, since, end));
    recorder.pauses.extend(open);
    let topology = sim.fabric().topology();
    let port_name = |port| PortName(topology, port).to_string();
    let bar = |group, track, name, start: Time, until: Option<Span>| Bar {
        group,
        track,
        name,
        start,
        lasts: Some(until.unwrap_or(end.since(start))),
    };
    let mut bars = Vec::new();
    for (number, flow) in outcomes(sim).into_iter().enumerate() {
        let name = format!("{}>{} {}", flow.from, flow.to, flow.op);
        let track = format!("{number}: {name}");
        bars.push(bar("flows", track, name, flow.start, flow.completion));
    }
    for job in job_outcomes(sim) {
        let name = job.name.clone();
        bars.push(bar("jobs", name, job.name, job.start, job.completion));
    }
    for message in messages(sim) {
        let name = format!("{} B to {}", message.bytes, message.to);
        let took = Some(message.took);
        bars.push(bar("messages", message.from, name, message.start, took));
    }
    for fault in sim.fabric().faults() {
        let fault = fault.fault();
        if fault.from <= end {
            let (name, lasts) = (fault.to_string(), fault.to.min(end).since(fault.from));
            bars.push(bar("faults", name.clone(), name, fault.from, Some(lasts)));
        }
    }
    for &(port, class, since, until) in &recorder.pauses {
        let (track, name) = (port_name(port), format!("class {class} paused"));
        let lasts = Some(until.since(since));
        bars.push(bar("pauses", track, name, since, lasts));
    }
    let moments = recorder.moments.iter().map(|&(port, at, name)| Bar {
        group: "drops and marks",
        track: port_name(port),
        name: name.to_owned(),
        start: at,
        lasts: None,
    });
    bars.extend(moments);
    bars
}
