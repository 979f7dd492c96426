//! The adapter of a host, as the contexts of `urxe` see it: their network.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use urxe::network::{Act, Adapter, Groups, Network, Packet, Pause, Ready, Shelf, Stopped, Tasks};

use crate::engine::{Entity, Rng, Span, Time, mix64};
use crate::program::calls::Calls;
use crate::program::cpu::Cpu;
use crate::program::executor::Executor;
use crate::program::flows::Flows;
use crate::program::model::{Finding, Model, REGION_BITS};
use crate::program::threads::{self, Shared};
use crate::program::wait::{Reason, Wait};
use crate::topology::HostId;

/// Bytes that wait in an adapter before its contexts are asked for more: about one packet of 4 KiB beside the
/// one that is being sent.
const WAITING_MAX: u64 = 4096 + 64;

/// Posting and looking at memory hand the turn over only once they took so long together: no other program
/// could do much meanwhile. (A thread that is interrupted, by a draw, has nearly always been that long.)
const SLICE: Span = Span::from_ns(500);

const PAGE: u64 = 4096;
/// Atomics need the alignment of the memory behind an address.
const WORD: u64 = 8;

/// A packet that the fabric has not got yet.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) source_port: u16,
    pub(crate) dest: IpAddr,
    pub(crate) tos: u8,
    pub(crate) bytes: Vec<u8>,
}

/// Memory that was registered, perhaps some time ago.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// Where it is in this process.
    here: u64,
    len: u64,
    /// Its address on the network.
    addr: u64,
}

#[derive(Debug)]
struct Inner {
    adapters: Vec<Adapter>,
    outbox: VecDeque<Outgoing>,
    /// Buffers for packets to be.
    spare: Vec<Vec<u8>>,
    /// Bytes that wait in the outbox and in the fabric's queues.
    waiting: u64,
    is_up: bool,
    /// How many contexts hear each multicast group.
    groups: BTreeMap<Ipv4Addr, u32>,
    /// Groups that the host joined (true) or left, and that switches have not heard of.
    changed_groups: VecDeque<(Ipv4Addr, bool)>,
    secrets: Rng,
    /// The address of the next region.
    next_region: u64,
    regions: Vec<Region>,
    next_chunk: u16,
    calls: Calls,
    /// What the host's program does beside waiting, since it last gave its turn back.
    busy: Span,
    cpu: Cpu,
    /// Which of several tasks goes on.
    lots: Rng,
    /// The counters of contexts that are closed.
    counters: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
pub(crate) struct Nic {
    host: HostId,
    addr: IpAddr,
    mtu: u32,
    /// The traffic class of packets for which the program names none.
    tos: u8,
    now_ns: AtomicU64,
    shelf: Shelf,
    /// What all programs must get from their verbs.
    model: Arc<Shared<Model>>,
    /// The tasks of the program that has the turn, while one of them goes on.
    tasks: Shared<Option<Arc<Executor>>>,
    /// There are such: blocking programs pay no lock for them.
    has_tasks: AtomicBool,
    /// Which tasks went on, of several, since this was taken.
    drawn: AtomicU64,
    inner: Shared<Inner>,
}

impl Nic {
    pub(crate) fn new(
        host: HostId,
        seed: u64,
        mtu: u32,
        tos: u8,
        cpu: Cpu,
        model: Arc<Shared<Model>>,
    ) -> Arc<Nic> {
        Arc::new(Nic {
            host,
            addr: crate::host::address_of(host),
            mtu,
            tos,
            now_ns: AtomicU64::new(0),
            shelf: Shelf::default(),
            model,
            tasks: Shared::new(None),
            has_tasks: AtomicBool::new(false),
            drawn: AtomicU64::new(0),
            inner: Shared::new(Inner {
                adapters: Vec::new(),
                outbox: VecDeque::new(),
                spare: Vec::new(),
                waiting: 0,
                is_up: true,
                groups: BTreeMap::new(),
                changed_groups: VecDeque::new(),
                secrets: Rng::stream(seed, Entity::Host(host.0), "numbers and keys"),
                next_region: u64::from(host.0 + 1) << REGION_BITS,
                regions: Vec::new(),
                next_chunk: 0,
                calls: Calls::default(),
                busy: Span::ZERO,
                cpu,
                lots: Rng::stream(seed, Entity::Host(host.0), "tasks"),
                counters: BTreeMap::new(),
            }),
        })
    }

    pub(crate) fn set_now(&self, now: Time) {
        self.now_ns.store(now.to_core().0, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_core(urxe_core::Time(self.now_ns.load(Ordering::Relaxed)))
    }

    pub(crate) fn adapters(&self) -> Vec<Adapter> {
        self.inner.with(|inner| {
            inner.adapters.retain(|adapter| !adapter.is_gone());
            inner.adapters.clone()
        })
    }

    /// The context at this place took the last room: next time the one behind it is the first.
    pub(crate) fn go_on_after(&self, place: usize) {
        self.inner.with(|inner| {
            let first = (place + 1) % inner.adapters.len().max(1);
            inner.adapters.rotate_left(first);
        });
    }

    /// What was sent since the last call; `waiting` is what the fabric's queues hold.
    pub(crate) fn take_outgoing(&self) -> Option<Outgoing> {
        self.inner.with(|inner| inner.outbox.pop_front())
    }

    /// The packet is in the fabric.
    pub(crate) fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.inner.with(|inner| inner.spare.push(bytes));
    }

    pub(crate) fn set_waiting(&self, bytes: u64) {
        self.inner.with(|inner| inner.waiting = bytes);
    }

    /// The host crashes: its contexts are cut off.
    pub(crate) fn crash(&self) {
        self.inner.with(|inner| {
            inner.is_up = false;
            inner.adapters.clear();
            inner.outbox.clear();
            for (group, _) in core::mem::take(&mut inner.groups) {
                inner.changed_groups.push_back((group, false));
            }
        });
        self.shelf.clear();
        self.model.with(|model| model.on_crash(self.host));
    }

    /// A group that the host joined (true) or left since the last call.
    pub(crate) fn take_changed_group(&self) -> Option<(Ipv4Addr, bool)> {
        self.inner.with(|inner| inner.changed_groups.pop_front())
    }

    /// A packet to a group has come: each context that has members takes it.
    pub(crate) fn hear(&self, packet: &Packet<'_>) {
        for adapter in self.adapters() {
            adapter.receive(packet);
        }
    }

    /// Whether a context of the host hears the group.
    pub(crate) fn hears(&self, group: IpAddr) -> bool {
        let IpAddr::V4(group) = group else {
            return false;
        };
        self.inner.with(|inner| inner.groups.contains_key(&group))
    }

    pub(crate) fn restart(&self) {
        self.inner.with(|inner| inner.is_up = true);
    }

    /// What the program did since its last turn, and what its next doing may add.
    pub(crate) fn take_busy(&self) -> Span {
        self.inner
            .with(|inner| core::mem::replace(&mut inner.busy, Span::ZERO))
    }

    /// What the verbs of any host did that they must not, since this was asked last.
    pub(crate) fn take_findings(&self) -> Vec<Finding> {
        self.model.with(Model::take_findings)
    }

    /// The flows of all programs, if the run has a page.
    pub(crate) fn with_flows<T>(&self, work: impl FnOnce(&mut Flows) -> T) -> Option<T> {
        self.model
            .with(|model| model.flows.as_mut().map(|flows| work(flows)))
    }

    /// Keeps flows from now on.
    pub(crate) fn keep_flows(&self) {
        self.model.with(|model| model.flows = Some(Box::default()));
    }

    /// The last calls of the host's programs, in order, with their times.
    pub(crate) fn last_calls(&self) -> Vec<String> {
        self.inner.with(|inner| inner.calls.describe())
    }

    /// How long the program's thread sleeps on after its event.
    pub(crate) fn wake_up(&self) -> Span {
        self.inner.with(|inner| inner.cpu.wake_up())
    }

    /// A number from the stream that keys and QPNs come from.
    pub(crate) fn draw(&self) -> u64 {
        self.inner.with(|inner| inner.secrets.bits())
    }

    /// Counters of closed contexts, and of those that are open.
    pub(crate) fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut sums = self.inner.with(|inner| inner.counters.clone());
        for adapter in self.adapters() {
            add(&mut sums, &adapter.counters());
        }
        sums
    }

    /// The calling program gives its turn back.
    pub(crate) fn wait(&self, reason: Reason) -> Result<(), Stopped> {
        let busy = self.take_busy();
        // Other programs of the host have tasks of their own.
        let tasks = self.set_tasks(None);
        let goes_on = threads::wait(Wait { busy, reason });
        self.set_tasks(tasks);
        if goes_on { Ok(()) } else { Err(Stopped) }
    }
}

impl Inner {
    /// The addresses by which peers and work requests name what an act changes: several, if it was registered several times.
    fn addrs_of(&self, act: &Act<'_>) -> Vec<u64> {
        let (Act::Placed { at, .. } | Act::Atomic { at, .. } | Act::Written { at, .. }) = *act
        else {
            return Vec::new();
        };
        let at_in = |region: &Region| {
            let offset = at.checked_sub(region.here)?;
            (offset < region.len).then_some(region.addr + offset)
        };
        self.regions.iter().filter_map(at_in).collect()
    }
}

impl Groups for Nic {
    fn join(&self, group: IpAddr) -> bool {
        let IpAddr::V4(group) = group else {
            return false;
        };
        self.inner.with(|inner| {
            let contexts = inner.groups.entry(group).or_default();
            *contexts += 1;
            if *contexts == 1 {
                inner.changed_groups.push_back((group, true));
            }
        });
        true
    }

    fn leave(&self, group: IpAddr) {
        let IpAddr::V4(group) = group else {
            return;
        };
        self.inner.with(|inner| {
            // After a crash there are none.
            let Some(contexts) = inner.groups.get_mut(&group) else {
                return;
            };
            *contexts -= 1;
            if *contexts == 0 {
                inner.groups.remove(&group);
                inner.changed_groups.push_back((group, false));
            }
        });
    }
}

fn add(sums: &mut BTreeMap<&'static str, u64>, counters: &[(&'static str, u64)]) {
    for &(name, count) in counters {
        *sums.entry(name).or_default() += count;
    }
}

impl Network for Nic {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn random(&self) -> u64 {
        self.draw()
    }

    fn interface_mtu(&self, addr: IpAddr) -> Option<u32> {
        (addr == self.addr).then_some(self.mtu)
    }

    fn route_to(&self, dest: IpAddr) -> Option<IpAddr> {
        dest.is_ipv4().then_some(self.addr)
    }

    fn shelf(&self) -> Option<&Shelf> {
        Some(&self.shelf)
    }

    fn attach(&self, adapter: Adapter) {
        self.inner.with(|inner| {
            if inner.is_up {
                inner.adapters.push(adapter);
            }
        });
    }

    fn region_addr(&self, here: u64, len: u64) -> u64 {
        self.inner.with(|inner| {
            // A page is left out behind each, so that an access beyond the end is none of the next region.
            let addr = inner.next_region + here % WORD;
            inner.next_region = (addr + len).next_multiple_of(PAGE) + PAGE;
            inner.regions.push(Region { here, len, addr });
            addr
        })
    }

    fn groups(&self) -> Option<&dyn Groups> {
        Some(self)
    }

    fn tasks(&self) -> Option<&dyn Tasks> {
        Some(self)
    }

    fn grant_qpns(&self) -> Option<u16> {
        self.inner.with(|inner| {
            // Not in turn: a program that counts on it should not get away with that.
            let last = inner.next_chunk;
            inner.next_chunk = last.checked_add(1).filter(|next| *next < 1 << 12)?;
            Some((u32::from(inner.next_chunk) * 0x3fd % (1 << 12)) as u16)
        })
    }

    fn has_room(&self) -> bool {
        self.inner
            .with(|inner| inner.waiting < WAITING_MAX || !inner.is_up)
    }

    fn send(&self, packet: &Packet<'_>) {
        self.inner.with(|inner| {
            if !inner.is_up {
                return;
            }
            let mut bytes = inner.spare.pop().unwrap_or_default();
            bytes.extend_from_slice(packet.bytes);
            inner.waiting += bytes.len() as u64;
            inner.outbox.push_back(Outgoing {
                source_port: packet.source_port,
                dest: packet.dest,
                tos: if packet.tos == 0 {
                    self.tos
                } else {
                    packet.tos
                },
                bytes,
            });
        });
    }

    fn note(&self, act: &Act<'_>) {
        let now_ns = self.now_ns();
        let addrs = self.inner.with(|inner| {
            inner.calls.note_act(now_ns, act);
            inner.addrs_of(act)
        });
        self.model
            .with(|model| model.note(self.now(), self.host, act, &addrs));
    }

    fn pause(&self, why: &Pause) -> Result<(), Stopped> {
        let now_ns = self.now_ns();
        let busy = self.inner.with(|inner| {
            inner.calls.note_pause(now_ns, why);
            inner.busy += inner.cpu.cost_of(why);
            inner.busy
        });
        let reason = match why {
            Pause::Poll => match self.executor() {
                Some(tasks) if tasks.polls_in_vain() => Reason::Busy,
                Some(tasks) => Reason::Poll {
                    until: tasks.deadline_ns().map(time_of),
                },
                None => Reason::Poll { until: None },
            },
            Pause::Event { event, deadline_ns } => Reason::Event {
                event: event.clone(),
                deadline: deadline_ns.map(time_of),
            },
            // Between a poll that found nothing and the request for an event anything may happen.
            Pause::Arm | Pause::Look => Reason::Busy,
            _ if busy < SLICE => return Ok(()),
            _ => Reason::Busy,
        };
        self.wait(reason)
    }

    fn detached(&self, counters: &[(&'static str, u64)]) {
        self.inner.with(|inner| add(&mut inner.counters, counters));
    }
}

impl Tasks for Nic {
    fn wake_when(&self, event: &Arc<dyn Ready>, deadline_ns: Option<u64>, waker: &Waker) {
        let tasks = self.executor();
        let tasks =
            tasks.expect("a simulated program awaits inside fabric_sim::program::task::block_on");
        tasks.wake_when(event, deadline_ns, waker);
    }
}

impl Nic {
    pub(crate) fn host(&self) -> HostId {
        self.host
    }

    /// The tasks of the program that has the turn, if one of them goes on.
    pub(crate) fn executor(&self) -> Option<Arc<Executor>> {
        let has_tasks = self.has_tasks.load(Ordering::Relaxed);
        has_tasks.then(|| self.tasks.with(|tasks| tasks.clone()))?
    }

    /// Returns what was before.
    fn set_tasks(&self, tasks: Option<Arc<Executor>>) -> Option<Arc<Executor>> {
        if tasks.is_none() && !self.has_tasks.load(Ordering::Relaxed) {
            return None;
        }
        self.has_tasks.store(tasks.is_some(), Ordering::Relaxed);
        self.tasks
            .with(|current| core::mem::replace(current, tasks))
    }

    /// What the work does, one of these tasks does.
    pub(crate) fn with_tasks<T>(&self, tasks: &Arc<Executor>, work: impl FnOnce() -> T) -> T {
        struct Current<'a>(&'a Nic);
        impl Drop for Current<'_> {
            fn drop(&mut self) {
                self.0.set_tasks(None);
            }
        }
        self.set_tasks(Some(tasks.clone()));
        let _current = Current(self);
        work()
    }

    /// Which of several tasks goes on.
    pub(crate) fn choose_task(&self, count: usize) -> usize {
        let place = self.inner.with(|inner| inner.lots.below(count as u64));
        let drawn = self.drawn.load(Ordering::Relaxed);
        let drawn = mix64(drawn ^ (place + 1));
        self.drawn.store(drawn, Ordering::Relaxed);
        place as usize
    }

    /// What was drawn for tasks since the last call, if anything.
    pub(crate) fn take_drawn(&self) -> Option<u64> {
        let drawn = self.drawn.load(Ordering::Relaxed);
        if drawn == 0 {
            return None;
        }
        self.drawn.store(0, Ordering::Relaxed);
        Some(drawn)
    }

    /// A task went on. That takes time, and now and then others go on meanwhile.
    pub(crate) fn step(&self) {
        let busy = self.inner.with(|inner| {
            inner.busy += inner.cpu.step();
            inner.busy
        });
        if busy >= SLICE {
            // Being ended is no matter of this: the next call says so.
            let _ = self.wait(Reason::Busy);
        }
    }
}

fn time_of(ns: u64) -> Time {
    Time::from_core(urxe_core::Time(ns))
}
