//! A simulation in parts, each on a thread of its own, with the result of a run on one.
//!
//! The parts run from one moment at which something looks at all of it to the next: a look of the checks (once in a millisecond of virtual
//! time), a fault that begins or ends, a job that begins, the end of the run. There the simulation is whole, and is as it would be.

use std::sync::Arc;

use crate::check::{Checks, Found, Told};
use crate::engine::{Part, Rng, Span, Time, Work, in_windows};
use crate::fabric::FabricPart;
use crate::flow::Flow;
use crate::host::drive::Drivers;
use crate::host::job::Jobs;
use crate::host::letter::Letter;
use crate::host::sim::{Senders, Sim};
use crate::host::stream::Stream;
use crate::host::transport::{Transport, TransportConfig};
use crate::topology::{HostId, Parts};

/// A part of a simulation on its way from thread to thread.
#[derive(Debug)]
struct SimPart {
    fabric: FabricPart,
    transports: Vec<Option<Box<Transport>>>,
    streams: Vec<Stream>,
    config: TransportConfig,
    restarts: Vec<u32>,
    jobs: Jobs,
    unreadable: u64,
    flows: Vec<Flow>,
    arrivals: Vec<Rng>,
    senders: Vec<Senders>,
    found: Vec<Found>,
    letters: Vec<Letter<Told>>,
}

impl SimPart {
    fn begin(self) -> Sim {
        let mut drivers = Drivers::new(self.transports.len());
        drivers.transports = self.transports;
        drivers.streams = self.streams;
        drivers.config = self.config;
        drivers.restarts = self.restarts;
        drivers.jobs = self.jobs;
        Sim {
            fabric: self.fabric.begin(),
            drivers,
            flows: self.flows,
            arrivals: self.arrivals,
            senders: self.senders,
            until: Time::ZERO,
            checks: Checks::default(),
            division: None,
            threads: 1,
            was_alone: None,
            work: Work::default(),
            letters: self.letters,
        }
    }

    fn end(sim: Sim) -> SimPart {
        SimPart {
            fabric: FabricPart::end(sim.fabric),
            transports: sim.drivers.transports,
            streams: sim.drivers.streams,
            config: sim.drivers.config,
            restarts: sim.drivers.restarts,
            jobs: sim.drivers.jobs,
            unreadable: sim.drivers.unreadable,
            flows: sim.flows,
            arrivals: sim.arrivals,
            senders: sim.senders,
            found: sim.checks.found,
            letters: sim.letters,
        }
    }
}

impl Part for Sim {
    type Letter = Letter<Told>;

    fn next_time(&mut self) -> Option<Time> {
        self.fabric.next_event()
    }

    fn run(&mut self, until: Time) {
        self.go_on_alone(until);
    }

    fn outgoing(&mut self, to: usize) -> (&mut Letter<Told>, Option<Time>) {
        let letter = &mut self.letters[to];
        core::mem::swap(&mut letter.fabric, &mut self.fabric.outbox[to]);
        let earliest = letter.fabric.earliest();
        (letter, earliest)
    }

    fn take_in(&mut self, letter: &mut Letter<Told>) {
        self.fabric.open_letter(&mut letter.fabric);
        for told in letter.told.drain(..) {
            self.on_told(&told);
        }
        for note in letter.notes.drain(..) {
            self.on_note(note);
        }
    }
}

impl Sim {
    /// Has runs take so many threads, where that is possible: [`Sim::alone`] says why if not. The result is the same with any number.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
        let topology = self.fabric.topology();
        let parts = Parts::new(topology, self.threads);
        let shortest = parts.shortest(topology);
        // Less than the time in which something comes from another part.
        let span = shortest.and_then(|span| Some(Span::from_ps(span.ps().checked_sub(1)?)));
        let division = span.map(|span| (Arc::new(parts), span));
        self.division = division.filter(|_| self.threads > 1);
    }

    /// Why the simulation runs on one thread although [`Sim::set_threads`] wants more, or why a run so far did; `None` if none does.
    pub fn alone(&self) -> Option<&'static str> {
        self.was_alone.or_else(|| self.undivided())
    }

    fn undivided(&self) -> Option<&'static str> {
        if self.threads < 2 {
            return None;
        }
        if self.division.is_none() {
            return Some("no cable with a delay divides the network");
        }
        if let Some(reason) = self.drivers.jobs.undivided() {
            return Some(reason);
        }
        if self.drivers.programs.iter().any(Option::is_some) {
            return Some("programs of hosts stay on the thread that has made them");
        }
        self.fabric.undivided()
    }

    /// What the threads of runs did so far. Its times differ from run to run.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Runs until that time.
    pub(crate) fn go_on(&mut self, until: Time) {
        self.go_on_as_can_be(until);
        self.drivers.jobs.order_messages();
    }

    fn go_on_as_can_be(&mut self, until: Time) {
        let reason = self.undivided();
        self.was_alone = self.was_alone.or(reason);
        let (Some((parts, span)), None, None) =
            (self.division.clone(), reason, self.fabric.pending)
        else {
            return self.go_on_alone(until);
        };
        loop {
            let whole = [self.fabric.next_fault(), self.drivers.jobs.next_start()];
            let whole = whole.into_iter().flatten().min();
            let whole = whole.filter(|&at| at <= until);
            let is_before = |at: Time| Some(Time::from_ps(at.ps().checked_sub(1)?));
            match whole.map_or(Some(until), is_before) {
                Some(stop) if self.fabric.next_event().is_some_and(|at| at <= stop) => {
                    self.go_on_in_parts(&parts, (span, stop));
                }
                _ => {}
            }
            // All that happens at that time happens here: a fault is the first of it, a job begins in its turn.
            let Some(at) = whole else {
                return;
            };
            self.go_on_alone(at);
            self.drivers.jobs.pass(at);
        }
    }

    fn go_on_in_parts(&mut self, parts: &Arc<Parts>, (span, until): (Span, Time)) {
        let others = self.divide(parts);
        let (begin, end) = (SimPart::begin, SimPart::end);
        let (others, work) = in_windows(self, others, (span, until), begin, end);
        self.work.join(&work);
        self.join(parts, others);
    }

    fn divide(&mut self, parts: &Arc<Parts>) -> Vec<SimPart> {
        let letters = || (0..parts.count()).map(|_| Letter::default()).collect();
        self.letters = letters();
        let fabrics = self.fabric.divide(parts);
        let part = |(number, fabric): (usize, FabricPart)| {
            let mut part = SimPart {
                fabric,
                transports: self.drivers.transports.iter().map(|_| None).collect(),
                streams: self.drivers.streams.clone(),
                config: self.drivers.config,
                restarts: self.drivers.restarts.clone(),
                jobs: self
                    .drivers
                    .jobs
                    .fork(&|host| parts.of_host(host) == number),
                unreadable: 0,
                flows: self.flows.clone(),
                arrivals: self.arrivals.clone(),
                senders: vec![Senders::default(); self.senders.len()],
                found: Vec::new(),
                letters: letters(),
            };
            self.swap_hosts(parts, number, &mut part);
            part
        };
        (1..).zip(fabrics).map(part).collect()
    }

    fn join(&mut self, parts: &Parts, others: Vec<SimPart>) {
        let mut found = core::mem::take(&mut self.checks.found);
        let mut fabrics = Vec::new();
        for (number, mut other) in (1..).zip(others) {
            self.swap_hosts(parts, number, &mut other);
            for (stream, its) in self.drivers.streams.iter_mut().zip(&other.streams) {
                if parts.of_host(stream.spec.from) == number {
                    *stream = *its;
                }
            }
            let flows = self.flows.iter_mut().zip(&mut self.arrivals);
            let theirs = other.flows.iter().zip(other.arrivals);
            for ((flow, arrivals), (its, its_arrivals)) in flows.zip(theirs) {
                if parts.of_host(flow.spec.from) == number {
                    flow.join_sender(its);
                    *arrivals = its_arrivals;
                }
                if parts.of_host(flow.spec.to) == number {
                    flow.join_receiver(its);
                }
            }
            let is_theirs = |host| parts.of_host(host) == number;
            self.drivers.jobs.join(other.jobs.all, &is_theirs);
            self.drivers.unreadable += other.unreadable;
            found.append(&mut other.found);
            fabrics.push(other.fabric);
        }
        self.fabric.join_parts(fabrics);
        self.letters = Vec::new();
        self.drivers.jobs.conclude();
        self.checks.take_in(found);
    }

    /// Swaps the hosts of a part with what is in their place.
    fn swap_hosts(&mut self, parts: &Parts, number: usize, other: &mut SimPart) {
        for host in self.fabric.topology().hosts() {
            if parts.of_host(host) == number {
                let place = host.index();
                let transports = &mut self.drivers.transports;
                core::mem::swap(&mut transports[place], &mut other.transports[place]);
                core::mem::swap(&mut self.senders[place], &mut other.senders[place]);
                let here = self.drivers.jobs.hosts.get_mut(place);
                if let (Some(here), Some(there)) = (here, other.jobs.hosts.get_mut(place)) {
                    core::mem::swap(here, there);
                }
            }
        }
    }

    /// What this part has for that of a host; `None` if the host is of this part.
    pub(crate) fn letter_to(&mut self, host: HostId) -> Option<&mut Letter<Told>> {
        let parts = self.fabric.parts.as_ref()?;
        let there = parts.of_host(host);
        (there != self.fabric.part).then(|| &mut self.letters[there])
    }
}
