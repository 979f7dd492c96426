//! Checks that are always on: what must hold in every run, whatever the faults.
//!
//! Most of the books are kept by the code that does the work anyway: switches count what they drop, `model` compares what
//! transports execute with what was posted. [`Sim`] looks at all of it once in a millisecond of virtual time,
//! and when nothing is left to happen.

mod deadlock;
mod kind;
mod marks;
mod model;
mod shares;

use core::fmt;

use crate::Sim;
use crate::engine::{Span, Time};
use crate::topology::{HostId, PortName};

pub use kind::Check;
pub use marks::{Mark, Marks};
pub(crate) use model::{Finished, Model, Received, Seen, Waiting};
pub(crate) use shares::Shares;

/// A check that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The check that failed.
    pub check: Check,
    /// The time when it was seen.
    pub at: Time,
    /// Where: a host, a port, a QP.
    pub place: String,
    /// The finding, in words.
    pub fault: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (check, at) = (self.check.name(), self.at);
        write!(f, "{check}: {} at {at}: {}", self.place, self.fault)
    }
}

/// A run in which a check did not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Violated {
    /// The seed of the run.
    pub seed: u64,
    /// The first violations.
    pub violations: Vec<Violation>,
}

impl fmt::Display for Violated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}", self.seed)?;
        let mut texts = self.violations.iter();
        texts.try_for_each(|violation| write!(f, ": {violation}"))
    }
}

/// Violations that are kept. The first is what matters; what comes after is often its consequence.
const KEPT: usize = 8;

/// Virtual time between two looks, while things happen.
const LOOK: Span = Span::from_ms(1);
/// The longest that it grows to while nothing happens.
const LOOK_MAX: Span = Span::from_ms(1_000);

#[derive(Debug)]
pub(crate) struct Checks {
    skipped: Vec<Check>,
    violations: Vec<Violation>,
    /// Requests must get on within so long.
    bound: Span,
    pub(crate) next_look: Time,
    every: Span,
    last_look: Time,
    events: u64,
    stuck: deadlock::Stuck,
    pub(crate) marks: Marks,
    /// What a part of the simulation has seen, for the whole.
    pub(crate) found: Vec<Found>,
    /// How much has been told of the order of what is found in one event.
    serial: u64,
}

/// Place of something in the order of a run: its event, and its place among what that event brings up.
pub(crate) type Order = ((Time, u64), u64);

/// A violation that a part of a simulation has seen.
#[derive(Debug)]
pub(crate) struct Found {
    order: Order,
    violation: Violation,
}

/// A message that was executed in one part of the simulation, for the host of another that posted it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    order: Order,
    finished: Finished,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks {
            skipped: Vec::new(),
            violations: Vec::new(),
            bound: Span::from_ms(1_000),
            next_look: Time::ZERO + LOOK,
            every: LOOK,
            last_look: Time::ZERO,
            events: 0,
            stuck: deadlock::Stuck::default(),
            marks: Marks::default(),
            found: Vec::new(),
            serial: 0,
        }
    }
}

impl Checks {
    /// Takes in what parts have seen, in the order in which one alone had.
    pub(crate) fn take_in(&mut self, mut found: Vec<Found>) {
        found.sort_by_key(|found| found.order);
        for Found { violation, .. } in found {
            let Violation {
                check,
                at,
                place,
                fault,
            } = violation;
            self.report(check, at, place, fault);
        }
    }

    /// Keeps the first violation of each kind and place.
    fn keep(&mut self, found: Found) {
        let is_same = |known: &&mut Found| {
            known.violation.check == found.violation.check
                && known.violation.place == found.violation.place
        };
        match self.found.iter_mut().find(is_same) {
            Some(known) if known.order <= found.order => {}
            Some(known) => *known = found,
            None => self.found.push(found),
        }
    }

    pub(crate) fn report(&mut self, check: Check, at: Time, place: String, fault: String) {
        let is_known = |v: &Violation| v.check == check && v.place == place;
        if self.violations.len() < KEPT
            && !self.skipped.contains(&check)
            && !self.violations.iter().any(is_known)
        {
            self.violations.push(Violation {
                check,
                at,
                place,
                fault,
            });
        }
    }
}

impl Sim {
    /// Leaves a check out: what it would find is meant to be.
    pub fn skip_check(&mut self, check: Check) {
        self.checks.skipped.push(check);
    }

    /// Changes the time in which requests must get on when all faults are over: [`Check::Progress`]. A second,
    /// unless it is changed; or 64 times the ACK timeout of a connection, if that is longer.
    pub fn set_progress_bound(&mut self, bound: Span) {
        self.checks.bound = bound;
    }

    /// What did not hold so far: the first eight.
    pub fn violations(&self) -> &[Violation] {
        &self.checks.violations
    }

    /// Looks at everything once more.
    ///
    /// # Errors
    /// [`Violated`] if something did not hold, at any time.
    pub fn verdict(&mut self) -> Result<(), Violated> {
        self.look();
        if let Err(fault) = self.fabric.check_books() {
            let now = self.now();
            let place = "the network".to_owned();
            self.checks.report(Check::Books, now, place, fault);
        }
        if self.checks.violations.is_empty() {
            return Ok(());
        }
        Err(Violated {
            seed: self.fabric.config().seed,
            violations: self.checks.violations.clone(),
        })
    }

    /// A look is due: the next one comes soon if things happen, and later if not.
    pub(crate) fn look_in_passing(&mut self) {
        let events = self.fabric.events();
        let is_quiet = events == core::mem::replace(&mut self.checks.events, events);
        self.checks.every = if is_quiet {
            LOOK_MAX.min(self.checks.every * 2)
        } else {
            LOOK
        };
        let now = self.checks.next_look;
        self.checks.next_look = now + self.checks.every;
        if !is_quiet {
            self.look_at(now);
        }
    }

    fn look(&mut self) {
        self.look_at(self.now());
        if self.fabric.is_idle() {
            self.look_at_end();
        }
    }

    fn look_at(&mut self, now: Time) {
        self.look_for_overruns();
        self.look_at_nodes(now);
        self.look_for_deadlock(now);
        self.look_for_progress(now);
        if now.since(self.checks.last_look) >= LOOK {
            self.compare_shares(now);
            self.checks.last_look = now;
        }
    }

    fn look_for_overruns(&mut self) {
        let topology = self.fabric.topology();
        let mut faults = self.fabric.faults().iter();
        let is_excused = faults.any(|f| f.fault().defeats_pause());
        if let (Some(((at, _), port, frame)), false) = (self.fabric.first_overrun, is_excused) {
            let place = PortName(topology, port).to_string();
            let (from, to) = (topology.name(frame.src), topology.name(frame.dst));
            let class = frame.priority;
            let fault =
                format!("a frame of lossless class {class} from {from} to {to} found no room");
            self.checks.report(Check::Lossless, at, place, fault);
        }
        if let (Some(((at, _), port, held)), false) = (self.fabric.first_credit_overrun, is_excused)
        {
            let place = PortName(self.fabric.topology(), port).to_string();
            let fault = format!("{held} bytes came, more than room was promised for");
            self.checks.report(Check::Credits, at, place, fault);
        }
    }

    /// Each switch holds what came in, less what it sent on or dropped.
    fn look_at_nodes(&mut self, now: Time) {
        for node in self.fabric.unbalanced_nodes() {
            let name = self.fabric.topology().name(node.0).to_owned();
            self.checks.report(Check::Books, now, name, node.1);
        }
    }

    fn look_for_deadlock(&mut self, now: Time) {
        let Some(free_since) = self.fabric.free_since() else {
            // A fault stops a port for ever: a port that waits for it does nothing wrong.
            return;
        };
        let patience = LOOK.max(self.fabric.patience());
        let found = self.checks.stuck.look(&self.fabric, now, patience);
        let Some((cycle, is_long)) = found else {
            return;
        };
        self.checks.marks.add(Mark::CyclicDependency, 1);
        // When nothing is left to happen no time can free it: link-level credits have no timer.
        if self.fabric.is_idle() || (is_long && now.since(free_since) >= patience) {
            self.checks.marks.add(Mark::Deadlock, 1);
            let topology = self.fabric.topology();
            let place = PortName(topology, cycle.cycle[0].port).to_string();
            let fault = cycle.describe(topology);
            self.checks.report(Check::Deadlock, now, place, fault);
        }
    }

    /// Nothing is left to happen: what is not complete never will be.
    fn look_at_end(&mut self) {
        let now = self.now();
        for host in self.fabric.topology().hosts() {
            let Some(transport) = self.transport(host) else {
                continue;
            };
            let unfinished = transport.cqs.model.unfinished();
            for (qpn, count) in unfinished.collect::<Vec<_>>() {
                let fault =
                    format!("nothing is left to happen, and {count} requests have no completion");
                self.report_at(now, host, Check::Completions, qpn, fault);
            }
        }
    }

    /// Compares QPs of a host with each other.
    fn compare_shares(&mut self, now: Time) {
        for host in self.fabric.topology().hosts() {
            let transport = self.drivers.transports[host.index()].as_mut();
            if let Some((qpn, fault)) = transport.and_then(|t| t.compare_shares()) {
                self.report_at(now, host, Check::Fairness, qpn, fault);
            }
        }
    }

    fn look_for_progress(&mut self, now: Time) {
        let Some(healed) = self.fabric.healed_at() else {
            return;
        };
        let bound = self.checks.bound;
        for host in self.fabric.topology().hosts() {
            let stuck = |waiting: Waiting| {
                let (peer, qpn) = waiting.peer;
                // Without one, the peer has crashed; the retries end some day.
                let peer = self.transport(peer)?.cqs.model.last_progress(qpn)?;
                let since = waiting.since.max(peer).max(healed);
                (now.since(since) > bound.max(waiting.bound)).then_some((waiting.qpn, since))
            };
            let transport = self.transport(host);
            let stuck = transport.and_then(|t| t.cqs.model.waiting().find_map(stuck));
            if let Some((qpn, since)) = stuck {
                let fault = format!("no request got on since {since}, though no fault is left");
                self.report_at(now, host, Check::Progress, qpn, fault);
            }
        }
    }
}

impl Sim {
    /// Compares what a host's transport just did with what was posted, there and at its peers.
    #[inline]
    pub(crate) fn check_news(&mut self, host: HostId) {
        let transport = self.drivers.transports[host.index()].as_mut();
        if transport.is_some_and(|t| core::mem::take(&mut t.cqs.model.has_news)) {
            self.compare_news(host);
        }
    }

    fn compare_news(&mut self, host: HostId) {
        let next = |place: usize| move |model: &mut Model| model.finished.get(place).copied();
        let mut place = 0;
        while let Some(finished) = self.with_model(host, next(place)) {
            place += 1;
            let order = self.next_order();
            match self.letter_to(finished.peer.0) {
                Some(letter) => letter.told.push(Told { order, finished }),
                None => self.on_told(&Told { order, finished }),
            }
        }
        let next = |place: usize| move |model: &mut Model| model.completed.get(place).copied();
        let mut place = 0;
        while let Some(completed) = self.with_model(host, next(place)) {
            place += 1;
            let expected = self.with_model(host, |model| model.on_completed(&completed));
            if let (Some(expected), Some(at)) = (expected, completed.result_at) {
                self.check_result(host, completed.qpn, at, expected);
            }
        }
        self.with_model(host, |model| {
            model.finished.clear();
            model.completed.clear();
            Some(())
        });
        let order = self.next_order();
        self.report_found(host, order);
    }

    /// A host's message was executed by its peer.
    pub(crate) fn on_told(&mut self, told: &Told) {
        let host = told.finished.peer.0;
        self.with_model(host, |model| {
            model.on_peer_finished(&told.finished);
            Some(())
        });
        self.report_found(host, told.order);
    }

    /// The place of what is told next in the order of a run.
    fn next_order(&mut self) -> Order {
        self.checks.serial += 1;
        (self.fabric.queue.place(), self.checks.serial)
    }

    fn with_model<T>(
        &mut self,
        host: HostId,
        f: impl FnOnce(&mut Model) -> Option<T>,
    ) -> Option<T> {
        f(&mut self.drivers.transports[host.index()].as_mut()?.cqs.model)
    }

    /// An atomic completed: its result is in memory.
    fn check_result(&mut self, host: HostId, qpn: u32, at: u64, expected: u64) {
        let read = self
            .transport(host)
            .and_then(|t| t.memory().read(at, 8).ok());
        if let Some(bytes) = read.filter(|bytes| *bytes != expected.to_ne_bytes()) {
            let fault = format!("an atomic returned {bytes:x?}, and found {expected:#x}");
            let order = self.next_order();
            self.report_in_order(order, host, Check::Atomics, qpn, fault);
        }
    }

    fn report_found(&mut self, host: HostId, order: Order) {
        let found = self.with_model(host, |model| Some(core::mem::take(&mut model.violations)));
        for (check, qpn, fault) in found.unwrap_or_default() {
            self.report_in_order(order, host, check, qpn, fault);
        }
    }

    /// Reports what an event brings up. In a part of a simulation it waits for what others bring up.
    fn report_in_order(
        &mut self,
        order: Order,
        host: HostId,
        check: Check,
        qpn: u32,
        fault: String,
    ) {
        let at = order.0.0;
        if self.letters.is_empty() {
            return self.report_at(at, host, check, qpn, fault);
        }
        let place = self.place_of(host, qpn);
        let violation = Violation {
            check,
            at,
            place,
            fault,
        };
        self.checks.keep(Found { order, violation });
    }

    pub(crate) fn report_at(
        &mut self,
        at: Time,
        host: HostId,
        check: Check,
        qpn: u32,
        fault: String,
    ) {
        let place = self.place_of(host, qpn);
        self.checks.report(check, at, place, fault);
    }

    fn place_of(&self, host: HostId, qpn: u32) -> String {
        let name = self.fabric.topology().name(host);
        format!("{name} QP {qpn:#x}")
    }
}
