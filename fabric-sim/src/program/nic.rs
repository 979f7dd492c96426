//! The adapter of a host, as the contexts of `urxe` see it: their network.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use urxe::network::{Adapter, Network, Packet, Pause, Stopped};

use crate::engine::{Entity, Rng, Span, Time};
use crate::program::cpu::Cpu;
use crate::program::threads::{self, Shared};
use crate::program::wait::{Reason, Wait};
use crate::topology::HostId;

/// Bytes that wait in an adapter before its contexts are asked for more: about one packet of 4 KiB beside the
/// one that is being sent.
const WAITING_MAX: u64 = 4096 + 64;

/// Posting and looking at memory hand the turn over only once they took so long together: no other program
/// could do much meanwhile.
const SLICE: Span = Span::from_ns(500);

/// A packet that the fabric has not got yet.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) source_port: u16,
    pub(crate) dest: IpAddr,
    pub(crate) tos: u8,
    pub(crate) bytes: Vec<u8>,
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
    secrets: Rng,
    next_chunk: u16,
    /// What the host's program does beside waiting, since it last gave its turn back.
    busy: Span,
    cpu: Cpu,
    /// The counters of contexts that are closed.
    counters: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
pub(crate) struct Nic {
    host: HostId,
    addr: IpAddr,
    mtu: u32,
    now_ns: AtomicU64,
    inner: Shared<Inner>,
}

impl Nic {
    pub(crate) fn new(host: HostId, seed: u64, mtu: u32, cpu: Cpu) -> Arc<Nic> {
        Arc::new(Nic {
            host,
            addr: crate::host::address_of(host),
            mtu,
            now_ns: AtomicU64::new(0),
            inner: Shared::new(Inner {
                adapters: Vec::new(),
                outbox: VecDeque::new(),
                spare: Vec::new(),
                waiting: 0,
                is_up: true,
                secrets: Rng::stream(seed, Entity::Host(host.0), "numbers and keys"),
                next_chunk: 0,
                busy: Span::ZERO,
                cpu,
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
        });
    }

    pub(crate) fn restart(&self) {
        self.inner.with(|inner| inner.is_up = true);
    }

    /// What the program did since its last turn, and what its next doing may add.
    pub(crate) fn take_busy(&self) -> Span {
        self.inner
            .with(|inner| core::mem::replace(&mut inner.busy, Span::ZERO))
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
        if threads::wait(Wait { busy, reason }) {
            Ok(())
        } else {
            Err(Stopped)
        }
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

    fn attach(&self, adapter: Adapter) {
        self.inner.with(|inner| {
            if inner.is_up {
                inner.adapters.push(adapter);
            }
        });
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
                tos: packet.tos,
                bytes,
            });
        });
    }

    fn pause(&self, why: &Pause) -> Result<(), Stopped> {
        let busy = self.inner.with(|inner| {
            inner.busy += inner.cpu.cost_of(why);
            inner.busy
        });
        let reason = match why {
            Pause::Post | Pause::Memory if busy < SLICE => return Ok(()),
            Pause::Post | Pause::Memory => Reason::Busy,
            Pause::Poll => Reason::Poll,
            Pause::Event { event, deadline_ns } => Reason::Event {
                event: event.clone(),
                deadline: deadline_ns.map(|ns| Time::from_core(urxe_core::Time(ns))),
            },
        };
        self.wait(reason)
    }

    fn detached(&self, counters: &[(&'static str, u64)]) {
        self.inner.with(|inner| add(&mut inner.counters, counters));
    }
}

impl Nic {
    pub(crate) fn host(&self) -> HostId {
        self.host
    }
}
