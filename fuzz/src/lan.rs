//! A network in memory for contexts of `urxe`: no socket, no clock, no randomness. Packets arrive when a program
//! waits for something; time passes only when nothing is under way.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard};

use urxe::network::{Adapter, Network, Packet, Pause, Stopped};

/// Packets of one delivery: those of a connection that goes on for ever must have an end.
const DELIVERED_MAX: usize = 2_000;
/// The longest that nothing is waited for.
const IDLE_NS: u64 = 1_000_000_000;
/// What a look at an empty queue takes.
const LOOK_NS: u64 = 1_000;
/// As many timers may fire while an event is waited for.
const TIMERS_MAX: usize = 1_000;

/// The network: all hosts see one time.
#[derive(Debug, Default)]
pub struct Lan {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    now_ns: u64,
    random: u64,
    chunks: u16,
    adapters: Vec<(IpAddr, Adapter)>,
    wire: VecDeque<Frame>,
    /// Packets that are lost next.
    lost: u8,
}

#[derive(Debug)]
struct Frame {
    source: IpAddr,
    source_port: u16,
    dest: IpAddr,
    tos: u8,
    bytes: Vec<u8>,
}

/// A host: what its contexts are opened on.
#[derive(Debug)]
pub struct Host {
    lan: Arc<Lan>,
    addr: IpAddr,
}

impl Lan {
    /// The host 10.0.0.`number`.
    pub fn host(self: &Arc<Lan>, number: u8) -> Arc<Host> {
        Arc::new(Host {
            lan: self.clone(),
            addr: Ipv4Addr::new(10, 0, 0, number).into(),
        })
    }

    /// Delivers all that is under way, and what comes of it.
    pub fn deliver(&self) -> usize {
        let mut count = 0;
        while count < DELIVERED_MAX
            && let Some((frame, adapters)) = self.take()
        {
            count += 1;
            let packet = Packet {
                source: frame.source,
                source_port: frame.source_port,
                dest: frame.dest,
                tos: frame.tos,
                bytes: &frame.bytes,
            };
            // Without the lock: they send.
            adapters.iter().find(|adapter| adapter.receive(&packet));
        }
        count
    }

    /// Lets time pass until something is due, and does that. False if nothing is.
    pub fn pass_time(&self) -> bool {
        let adapters = self.adapters();
        let due = adapters.iter().filter_map(Adapter::due_ns).min();
        let Some(due) = due else {
            return false;
        };
        let mut inner = self.lock();
        inner.now_ns = due.clamp(inner.now_ns + 1, inner.now_ns + IDLE_NS);
        drop(inner);
        adapters.iter().for_each(Adapter::on_time);
        true
    }

    /// True if every context was closed.
    pub fn is_empty(&self) -> bool {
        self.adapters().iter().all(Adapter::is_gone)
    }

    /// What a script asks for beside delivery: nothing, losses, or time.
    pub fn act(&self, what: u8) {
        self.deliver();
        match what % 4 {
            1 => self.lose(what / 4 % 4),
            2 => {
                self.pass_time();
            }
            _ => {}
        }
    }

    /// The next packets are lost.
    pub fn lose(&self, count: u8) {
        self.lock().lost = count;
    }

    fn take(&self) -> Option<(Frame, Vec<Adapter>)> {
        let mut inner = self.lock();
        let frame = inner.wire.pop_front()?;
        inner.adapters.retain(|(_, adapter)| !adapter.is_gone());
        let there = inner.adapters.iter().filter(|(at, _)| *at == frame.dest);
        let adapters = there.map(|(_, adapter)| adapter.clone()).collect();
        Some((frame, adapters))
    }

    fn adapters(&self) -> Vec<Adapter> {
        let inner = self.lock();
        let adapters = inner.adapters.iter();
        adapters.map(|(_, adapter)| adapter.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics under it")
    }
}

impl Host {
    pub fn addr(&self) -> IpAddr {
        self.addr
    }
}

impl Network for Host {
    fn now_ns(&self) -> u64 {
        self.lan.lock().now_ns
    }

    fn random(&self) -> u64 {
        let mut inner = self.lan.lock();
        inner.random = inner.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (inner.random ^ (inner.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    }

    fn interface_mtu(&self, addr: IpAddr) -> Option<u32> {
        (addr == self.addr).then_some(9000)
    }

    fn attach(&self, adapter: Adapter) {
        self.lan.lock().adapters.push((self.addr, adapter));
    }

    fn detached(&self, _: &[(&'static str, u64)]) {}

    fn grant_qpns(&self) -> Option<u16> {
        let mut inner = self.lan.lock();
        inner.chunks += 1;
        (inner.chunks < 1 << 12).then_some(inner.chunks)
    }

    fn has_room(&self) -> bool {
        true
    }

    fn send(&self, packet: &Packet<'_>) {
        let mut inner = self.lan.lock();
        if inner.lost > 0 {
            inner.lost -= 1;
            return;
        }
        inner.wire.push_back(Frame {
            source: packet.source,
            source_port: packet.source_port,
            dest: packet.dest,
            tos: packet.tos,
            bytes: packet.bytes.to_vec(),
        });
    }

    fn pause(&self, why: &Pause) -> Result<(), Stopped> {
        match why {
            Pause::Poll => {
                self.lan.lock().now_ns += LOOK_NS;
                self.lan.deliver();
            }
            Pause::Event { event, deadline_ns } => {
                let is_late = || deadline_ns.is_some_and(|deadline| deadline <= self.now_ns());
                let is_over = || event.is_ready() || is_late();
                for _ in 0..TIMERS_MAX {
                    self.lan.deliver();
                    if is_over() {
                        return Ok(());
                    }
                    if !self.lan.pass_time() {
                        break;
                    }
                }
                let Some(deadline) = *deadline_ns else {
                    // It would never come.
                    return Err(Stopped);
                };
                let mut inner = self.lan.lock();
                inner.now_ns = inner.now_ns.max(deadline);
            }
            _ => {}
        }
        Ok(())
    }
}
