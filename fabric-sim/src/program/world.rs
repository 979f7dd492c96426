//! The simulation's side: which program runs, and what the network does meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use urxe::network::{Network, Packet};
use urxe_core::qpn_table::QpnChunk;
use urxe_core::transmit::TxDest;

use crate::engine::{Span, Time, TraceHash};
use crate::envelope::{decode, is_group};
use crate::fabric::Upcall;
use crate::frame::Payload;
use crate::host::{Sim, TimerFor, address_of};
use crate::program::TaskId;
use crate::program::here::Here;
use crate::program::nic::{Nic, Outgoing};
use crate::program::page::{Page, Paging};
use crate::program::report::{Cause, HostEnd};
use crate::program::threads::{Coroutine, Ending, Shared, Turn, Watch};
use crate::program::wait::{Reason, Wait};
use crate::topology::HostId;

/// The delay from one QP of a host to another of the same host.
const LOOPBACK: Span = Span::from_ns(500);
/// A program that polls in vain looks again after a sixteenth of the time that nothing happened, but not later
/// than this.
const POLL_AGAIN_MAX: Span = Span::from_ms(1);
/// Between two calls of a context that always has something to do.
const TICK: Span = Span::from_ns(50);

/// Turns that an ending program may take to come to its end.
const LAST_TURNS: u32 = 1000;

/// A program, or what starts it again.
pub(crate) type Body = Box<dyn FnOnce() + Send>;
pub(crate) type Service = Arc<dyn Fn() + Send + Sync>;

/// What programs and the simulation share.
#[derive(Default)]
pub(crate) struct Common {
    /// Words that programs left for each other.
    pub(crate) board: Shared<BTreeMap<String, String>>,
    /// Tasks to be.
    pub(crate) spawned: Shared<Vec<(TaskId, HostId, Body)>>,
    pub(crate) next_task: Shared<u32>,
}

impl Common {
    pub(crate) fn task_id(&self) -> TaskId {
        self.next_task.with(|next| {
            *next += 1;
            TaskId(*next - 1)
        })
    }
}

/// What a task does now.
#[derive(Debug)]
pub(super) enum Status {
    /// The program is in the list of those that run next.
    Ready,
    Waits(Reason),
}

pub(super) struct Task {
    pub(super) host: HostId,
    coroutine: Option<Coroutine>,
    pub(super) status: Status,
    /// Before that it does not come back: it is busy.
    earliest: Time,
    /// When it comes back by itself.
    wake_at: Time,
    /// Since when nothing has happened that a poll could find.
    idle_since: Time,
    killed: bool,
}

pub(super) struct Host {
    pub(super) nic: Arc<Nic>,
    timer_at: Option<Time>,
    /// Packets from the host to itself.
    loopback: VecDeque<(Time, Outgoing)>,
    service: Option<Service>,
    /// Started by the simulation, not by another task of the host.
    first: Option<TaskId>,
    pub(super) end: Option<HostEnd>,
}

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(super) hosts: Vec<Host>,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    ready: VecDeque<TaskId>,
    common: Arc<Common>,
    /// Which program went on, and when.
    order: TraceHash,
    watch: Arc<Watch>,
    /// The run has a page.
    pub(super) paging: Option<Paging>,
}

impl World {
    pub(crate) fn new(sim: Sim, nics: Vec<Arc<Nic>>, watch: Arc<Watch>) -> World {
        let host = |nic| Host {
            nic,
            timer_at: None,
            loopback: VecDeque::new(),
            service: None,
            first: None,
            end: None,
        };
        World {
            sim,
            hosts: nics.into_iter().map(host).collect(),
            tasks: BTreeMap::new(),
            ready: VecDeque::new(),
            common: Arc::default(),
            order: TraceHash::default(),
            watch,
            paging: None,
        }
    }

    /// Starts a program on a host, now.
    pub(crate) fn start(&mut self, host: HostId, body: Body) {
        let id = self.common.task_id();
        self.hosts[host.index()].first = Some(id);
        self.add(id, host, body);
    }

    /// Starts a program on a host now, and again whenever the host starts again.
    pub(crate) fn serve(&mut self, host: HostId, service: Service) {
        self.hosts[host.index()].service = Some(service.clone());
        self.start(host, Box::new(move || service()));
    }

    fn add(&mut self, id: TaskId, host: HostId, body: Body) {
        let here = Arc::new(Here {
            nic: self.nic(host).clone(),
            common: self.common.clone(),
        });
        let coroutine = Coroutine::new(here, body);
        let now = self.now();
        let task = Task {
            host,
            coroutine: Some(coroutine),
            status: Status::Ready,
            earliest: now,
            wake_at: now,
            idle_since: now,
            killed: false,
        };
        self.tasks.insert(id, task);
        self.ready.push_back(id);
    }

    fn nic(&self, host: HostId) -> &Arc<Nic> {
        &self.hosts[host.index()].nic
    }

    pub(crate) fn now(&self) -> Time {
        self.sim.fabric().now()
    }

    /// The order in which tasks had their turns.
    pub(crate) fn order(&self) -> TraceHash {
        self.order
    }

    /// Runs until all programs have ended.
    pub(crate) fn run(&mut self, until: Time) -> Result<(), Cause> {
        loop {
            while let Some(id) = self.ready.pop_front() {
                self.give_turn(id)?;
            }
            if self.tasks.is_empty() && !self.may_restart() {
                return Ok(());
            }
            match self.step(until) {
                Some(upcall) => self.on_upcall(upcall)?,
                // A crashed host does not start again in this run.
                None if self.tasks.is_empty() => return Ok(()),
                None => return Err(self.nothing_happens(until)),
            }
        }
    }

    fn step(&mut self, until: Time) -> Option<Upcall> {
        match &mut self.paging {
            Some(paging) => paging.step(&mut self.sim, until),
            None => self.sim.step_for_programs(until),
        }
    }

    /// Samples the run for its page from now on.
    pub(crate) fn begin_page(&mut self, page: &Page) {
        let nic = self.nic(HostId(0)).clone();
        nic.keep_flows();
        self.paging = Some(Paging::begin(&mut self.sim, page, nic));
    }

    /// A crashed host has a service that will go on.
    fn may_restart(&self) -> bool {
        self.hosts
            .iter()
            .any(|host| host.service.is_some() && host.end == Some(HostEnd::Crashed))
    }

    /// Lets a task go on until it waits or ends.
    fn give_turn(&mut self, id: TaskId) -> Result<(), Cause> {
        let now = self.now();
        let Some(task) = self.tasks.get_mut(&id) else {
            return Ok(());
        };
        let (host, killed) = (task.host, task.killed);
        let Some(mut coroutine) = task.coroutine.take() else {
            return Ok(());
        };
        let turn = self.order.events();
        let whose = u64::from(id.0) << 32 | u64::from(host.0);
        self.order.record(now, turn, whose);
        self.prepare(host);
        let turn = self.resume(host, &mut coroutine, killed);
        if let Some(drawn) = self.nic(host).take_drawn() {
            self.order.record(now, self.order.events(), drawn);
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            task.coroutine = Some(coroutine);
        }
        self.after_call(host);
        match turn {
            Turn::Waits(wait) => self.on_wait(id, wait),
            Turn::Ended(ending) => self.on_end(id, ending)?,
        }
        self.start_spawned();
        self.on_words();
        self.on_events();
        Ok(())
    }

    fn resume(&self, host: HostId, coroutine: &mut Coroutine, kill: bool) -> Turn {
        let _network = urxe::network::enter(self.nic(host).clone());
        let turn = || coroutine.resume(kill);
        self.watch.during(host.0, self.now().ps(), turn)
    }

    fn start_spawned(&mut self) {
        for (id, host, body) in self.common.spawned.with(core::mem::take) {
            self.add(id, host, body);
        }
    }

    fn on_end(&mut self, id: TaskId, ending: Ending) -> Result<(), Cause> {
        let Some(task) = self.tasks.remove(&id) else {
            return Ok(());
        };
        let now = self.now();
        let side = &mut self.hosts[task.host.index()];
        if side.first == Some(id) {
            side.end = Some(match ending {
                Ending::Killed => HostEnd::Crashed,
                _ => HostEnd::Finished(now),
            });
        }
        let waits = |reason: &Reason| matches!(reason, Reason::End(other) if *other == id);
        for (id, _) in self.waiting(waits) {
            self.come_back(id, now);
        }
        match ending {
            Ending::Panicked(words) => Err(Cause::Panicked {
                host: self.sim.fabric().topology().name(task.host).to_owned(),
                words,
            }),
            Ending::Returned | Ending::Killed => Ok(()),
        }
    }

    fn on_wait(&mut self, id: TaskId, wait: Wait) {
        let now = self.now();
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.earliest = now + wait.busy;
        let again = match &wait.reason {
            Reason::Busy => Some(task.earliest),
            Reason::Poll { until } => {
                let idle = Span::from_ps(now.since(task.idle_since).ps() / 16);
                let again = now + idle.min(POLL_AGAIN_MAX);
                Some(again.min(until.unwrap_or(again)).max(task.earliest))
            }
            Reason::Event { deadline, .. } => deadline.map(|at| at.max(task.earliest)),
            Reason::Until(at) => Some((*at).max(task.earliest)),
            Reason::Word(_) => None,
            Reason::End(other) => (!self.tasks.contains_key(other)).then_some(now),
        };
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        if !matches!(wait.reason, Reason::Poll { .. } | Reason::Busy) {
            task.idle_since = now;
        }
        task.status = Status::Waits(wait.reason);
        task.wake_at = Time::NEVER;
        if let Some(at) = again {
            self.come_back(id, at);
        }
    }

    /// The task goes on at a time, or sooner if that is set already; not while it is busy.
    fn come_back(&mut self, id: TaskId, at: Time) {
        let now = self.now();
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let at = at.max(task.earliest);
        if matches!(task.status, Status::Ready) || at >= task.wake_at {
            return;
        }
        task.wake_at = at;
        if at <= now {
            task.status = Status::Ready;
            self.ready.push_back(id);
        } else {
            self.sim.set_timer(task.host, at, TimerFor::Task(id.0));
        }
    }

    fn on_upcall(&mut self, upcall: Upcall) -> Result<(), Cause> {
        match upcall {
            Upcall::Received(host, id) => {
                let frame = self.sim.fabric_mut().take(id);
                self.prepare(host);
                self.deliver(host, &frame);
                self.sim.fabric_mut().release_body(&frame);
                self.something_happened(host);
            }
            Upcall::Room(host) => {
                self.prepare(host);
                let nic = self.nic(host).clone();
                let mut has_room = true;
                for (place, adapter) in nic.adapters().into_iter().enumerate() {
                    adapter.on_room();
                    if has_room && !nic.has_room() {
                        has_room = false;
                        nic.go_on_after(place);
                    }
                }
                self.after_call(host);
            }
            Upcall::Timer(host, token) => match TimerFor::of(token) {
                TimerFor::Task(id) => self.on_task_timer(TaskId(id)),
                _ => self.on_adapter_timer(host),
            },
            Upcall::Crashed(host) => self.on_crash(host),
            Upcall::Restarted(host) => {
                let side = &mut self.hosts[host.index()];
                side.nic.restart();
                if let Some(service) = side.service.clone() {
                    side.end = None;
                    self.start(host, Box::new(move || service()));
                }
            }
        }
        Ok(())
    }

    fn on_task_timer(&mut self, id: TaskId) {
        let now = self.now();
        if let Some(task) = self.tasks.get_mut(&id)
            && task.wake_at <= now
            && matches!(task.status, Status::Waits(_))
        {
            task.status = Status::Ready;
            self.ready.push_back(id);
        }
    }

    /// The programs of the host end where they are, as soon as they would go on.
    fn on_crash(&mut self, host: HostId) {
        let side = &mut self.hosts[host.index()];
        side.nic.crash();
        side.timer_at = None;
        side.loopback.clear();
        if side.end.is_none() && side.first.is_some() {
            side.end = Some(HostEnd::Crashed);
        }
        self.tell_groups(host);
        for (id, task) in &mut self.tasks {
            if task.host == host {
                task.killed = true;
                if !matches!(task.status, Status::Ready) {
                    task.status = Status::Ready;
                    self.ready.push_back(*id);
                }
            }
        }
    }

    /// A frame has come for the contexts of a host.
    fn deliver(&self, host: HostId, frame: &crate::frame::Frame) {
        let Payload::Roce { body, .. } = frame.payload else {
            return;
        };
        let bytes = &self.sim.fabric().bodies.get(body)[..frame.len as usize - 4];
        let Some((envelope, packet)) = decode(bytes) else {
            return;
        };
        if envelope.dst == host || is_group(envelope.dst) {
            let packet = Packet {
                source: address_of(envelope.src),
                source_port: envelope.source_port,
                dest: address_of(envelope.dst),
                tos: envelope.tos,
                bytes: packet,
            };
            self.hand_over(host, &packet);
        }
    }

    /// One of the contexts of the host takes it, or none.
    fn hand_over(&self, host: HostId, packet: &Packet<'_>) {
        let adapters = self.nic(host).adapters();
        if packet.dest.is_multicast() {
            return self.nic(host).hear(packet);
        }
        if !adapters.iter().any(|adapter| adapter.receive(packet))
            && let Some(any) = adapters.first()
        {
            // A request for a port without a listener is answered; the rest is dropped, as by a closed socket.
            any.receive_unowned(packet);
        }
    }

    fn on_adapter_timer(&mut self, host: HostId) {
        let now = self.now();
        if self.hosts[host.index()].timer_at.is_none_or(|at| at > now) {
            return;
        }
        self.hosts[host.index()].timer_at = None;
        self.prepare(host);
        while let Some((at, _)) = self.hosts[host.index()].loopback.front()
            && *at <= now
            && let Some((_, sent)) = self.hosts[host.index()].loopback.pop_front()
        {
            let packet = Packet {
                source: address_of(host),
                source_port: sent.source_port,
                dest: sent.dest,
                tos: sent.tos,
                bytes: &sent.bytes,
            };
            self.hand_over(host, &packet);
        }
        let now_ns = now.to_core().0;
        for adapter in self.nic(host).adapters() {
            if adapter.due_ns().is_some_and(|due| due <= now_ns) {
                adapter.on_time();
            }
        }
        self.something_happened(host);
    }

    /// Before anything calls into contexts of the host.
    fn prepare(&self, host: HostId) {
        let nic = self.nic(host);
        nic.set_now(self.now());
        nic.set_waiting(self.sim.fabric().waiting_in_all(host));
    }

    /// After it: what was sent goes into the fabric, and timers are set.
    fn after_call(&mut self, host: HostId) {
        let now = self.now();
        let place = host.index();
        self.tell_groups(host);
        while let Some(sent) = self.hosts[place].nic.take_outgoing() {
            if self.paging.is_some() {
                let nic = &self.hosts[place].nic;
                nic.with_flows(|flows| flows.on_sent(sent.dest, &sent.bytes));
            }
            if sent.dest == address_of(host) {
                self.hosts[place].loopback.push_back((now + LOOPBACK, sent));
                continue;
            }
            if sent.dest.is_multicast() && self.hosts[place].nic.hears(sent.dest) {
                let copy = (now + LOOPBACK, sent.clone());
                self.hosts[place].loopback.push_back(copy);
            }
            let dest = TxDest {
                local: address_of(host),
                remote: sent.dest,
                tos: sent.tos,
                source_port: sent.source_port,
                chunk: QpnChunk(0),
                in_memory: false,
                near_port: None,
            };
            let fabric = self.sim.fabric_mut();
            if let Some(frame) = fabric.enclose(host, &dest, &sent.bytes) {
                fabric.send(host, frame);
            }
            self.hosts[place].nic.give_back(sent.bytes);
        }
        let side = &self.hosts[place];
        let adapters = side.nic.adapters();
        let dues = adapters.iter().filter_map(|adapter| adapter.due_ns());
        let dues = dues.map(|ns| Time::from_core(urxe_core::Time(ns)).max(now + TICK));
        let dues = dues.chain(side.loopback.front().map(|(at, _)| *at));
        if let Some(at) = dues.min()
            && side.timer_at.is_none_or(|set| at < set)
        {
            self.hosts[place].timer_at = Some(at);
            self.sim.set_timer(host, at, TimerFor::Contexts);
        }
    }

    /// Something that programs of the host may be waiting for.
    fn something_happened(&mut self, host: HostId) {
        self.after_call(host);
        let now = self.now();
        let polling = self.tasks.iter_mut().filter(|(_, task)| task.host == host);
        let polling = polling.filter_map(|(id, task)| {
            task.idle_since = now;
            matches!(task.status, Status::Waits(Reason::Poll { .. })).then_some(*id)
        });
        for id in polling.collect::<Vec<_>>() {
            self.come_back(id, now);
        }
        self.on_events();
    }

    /// Programs that waited for an event that has come go on. Wakers, and words, reach programs of other hosts, too.
    fn on_events(&mut self) {
        let is_ready =
            |reason: &Reason| matches!(reason, Reason::Event { event, .. } if event.is_ready());
        for (id, host) in self.waiting(is_ready) {
            self.wake(id, host);
        }
    }

    /// Programs that waited for a word that was told go on.
    fn on_words(&mut self) {
        let board = &self.common.board;
        let is_told = |reason: &Reason| match reason {
            Reason::Word(key) => board.with(|board| board.contains_key(key)),
            _ => false,
        };
        for (id, host) in self.waiting(is_told) {
            self.wake(id, host);
        }
    }

    /// The tasks that wait for such a reason, with their hosts.
    fn waiting(&self, is_such: impl Fn(&Reason) -> bool) -> Vec<(TaskId, HostId)> {
        let tasks = self.tasks.iter();
        let waiting = tasks.filter(|(_, task)| match &task.status {
            Status::Waits(reason) => is_such(reason),
            Status::Ready => false,
        });
        waiting.map(|(id, task)| (*id, task.host)).collect()
    }

    /// What the task waits for is there: only its thread must still wake up.
    fn wake(&mut self, id: TaskId, host: HostId) {
        let later = self.nic(host).wake_up();
        self.come_back(id, self.now() + later);
        if let Some(task) = self.tasks.get_mut(&id)
            && matches!(task.status, Status::Waits(_))
        {
            task.status = Status::Waits(Reason::Busy);
        }
    }

    /// Ends all programs where they are. Returns those that do not end.
    pub(crate) fn end_all(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        while let Some((_, mut task)) = self.tasks.pop_first() {
            let Some(coroutine) = &mut task.coroutine else {
                continue;
            };
            self.hosts[task.host.index()].nic.crash();
            let ended = (0..LAST_TURNS)
                .any(|_| !matches!(self.resume(task.host, coroutine, true), Turn::Waits(_)));
            if !ended {
                let name = self.sim.fabric().topology().name(task.host);
                left.push(name.to_owned());
            }
            let more = self.common.spawned.with(core::mem::take);
            drop(more);
        }
        for host in &self.hosts {
            // Contexts of connections stay open as long as their host is up.
            host.nic.crash();
        }
        left
    }
}
