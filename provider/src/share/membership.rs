//! One participant: a context that shares its addresses.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use urxe_core::cm::Destination;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::{Foreign, Time};
use urxe_udp::{UdpConfig, UdpSocket};
use urxe_wire::Qpn;

use super::entries::{ROWS, Row, SocketEntry};
use super::farewells::Farewells;
use super::hand_over::{Arrived, Delivery, Handed, Inbox, Neighbour};
use super::pace::Pace;
use super::ports::{Owner, PortName, Ports};
use super::registry::{Locked, Registry};
use super::steer;
use super::tables::SOCKETS;
use super::waiting::{Retried, Waiting};
use crate::lock::lock;

/// How long the list of holders is believed, if it names one. A chunk's holder changes seldom, and never without a rest
/// of some seconds.
const HOLDERS_NS: u64 = 20_000_000;

/// How long it is believed that the holder has no socket on an address: far less than a participant takes to join it
/// and send something; far more than it takes to read the list.
const NO_SOCKET_NS: u64 = 100_000;

/// What a QP's peer is known to be, if it is a participant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The kernel can hand it trains as a whole.
    pub(crate) gets_trains_whole: bool,
    /// Its lone packets may come from this port, and nothing else does, if it has it.
    pub(crate) direct_port: NonZeroU16,
}

/// What a context gets when it joins.
pub(crate) struct Joined {
    pub(crate) membership: Membership,
    /// The sockets, one for each address, in order.
    pub(crate) sockets: Vec<UdpSocket>,
    pub(crate) chunk: QpnChunk,
}

/// Why a context cannot share.
#[derive(Debug)]
pub(crate) enum JoinError {
    /// An address cannot be bound.
    Bind(IpAddr, io::Error),
    /// A process that is not in the registry has the port, too.
    Strangers(IpAddr),
    /// There is no registry here, or it is full: not shared, an address may still be had.
    NoRegistry(io::Error),
}

impl From<io::Error> for JoinError {
    fn from(error: io::Error) -> JoinError {
        JoinError::NoRegistry(error)
    }
}

/// A place in the registry, until it is left.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(super) inbox: Inbox,
    pub(super) me: Neighbour,
    takes_rings: bool,
    holders: Mutex<Holders>,
    waiting: Waiting,
    pub(super) farewells: Farewells,
    /// A neighbour had to hand us a packet: the program in the kernel may be wrong.
    is_stale: AtomicBool,
    pace: Mutex<Pace>,
    /// Ports that could not be given back.
    unreleased: Mutex<Vec<(PortName, bool)>>,
    /// A probe of ours came back: its number, plus 1.
    probed: AtomicU64,
    /// Dropped last: with the file the lock goes, after the sockets.
    pub(super) registry: Registry,
}

#[derive(Debug, Default)]
struct Holders {
    rows: Vec<Option<Row>>,
    sockets: Vec<SocketEntry>,
    read_at: Option<Time>,
    generation: u64,
}

impl Holders {
    fn are_younger(&self, now: Time, limit_ns: u64) -> bool {
        self.read_at
            .is_some_and(|read_at| now.since_ns(read_at) < limit_ns)
    }

    fn read(&mut self, registry: &Registry, now: Time) {
        // Before the lists: what changes meanwhile is read again.
        self.generation = registry.generation();
        (self.rows, self.sockets) = registry.holders().unwrap_or_default();
        self.read_at = Some(now);
    }

    fn of(&self, chunk: QpnChunk) -> Option<Row> {
        self.rows.get(usize::from(chunk.0)).copied().flatten()
    }

    fn find(&self, chunk: QpnChunk, addr: IpAddr) -> Option<Row> {
        self.socket(chunk, addr).map(|entry| entry.row)
    }

    fn socket(&self, chunk: QpnChunk, addr: IpAddr) -> Option<&SocketEntry> {
        let row = self.of(chunk)?;
        let is_here = |entry: &&SocketEntry| entry.row == row && entry.addr == addr;
        self.sockets.iter().find(is_here)
    }
}

/// What became of a packet for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shared {
    /// Its owner has received it.
    HandedOver,
    /// Its owner gets it as soon as there is room in the inbox, if that is soon: see
    /// [`Membership::hand_over_waiting`].
    Waits,
    /// Its owner could not take it.
    Lost,
    /// No participant has that QPN.
    NoOwner,
    /// The datagram was a probe, not a packet.
    Probe,
}

impl Membership {
    /// Takes a place, binds all addresses, and gets a chunk of QPNs.
    pub(crate) fn join(
        addrs: &[IpAddr],
        (port, key): (u16, Option<u16>),
        config: &UdpConfig,
        takes_rings: bool,
        random: impl FnMut() -> u64,
    ) -> Result<Joined, JoinError> {
        let registry = Registry::open(key)?;
        Membership::join_by(registry, addrs, port, config, takes_rings, random)
    }

    fn join_by(
        registry: Registry,
        addrs: &[IpAddr],
        port: u16,
        config: &UdpConfig,
        takes_rings: bool,
        mut random: impl FnMut() -> u64,
    ) -> Result<Joined, JoinError> {
        let mut locked = registry.lock(None)?;
        let nonce = random().max(1);
        let row = locked.add(nonce)?;
        let row = row.ok_or_else(|| full(&format!("{ROWS} contexts of this user")))?;
        let me = Neighbour { row, nonce };
        let bound = Self::bind_all(&mut locked, me, takes_rings, addrs, port, config);
        let taken = bound.and_then(|sockets| {
            let chunk = locked.grant(row, random())?;
            let chunk = chunk.ok_or_else(|| full(&"all QP numbers"))?;
            attach_all(&locked, &sockets)?;
            let inbox = Inbox::create(registry.hand_over_path(row))?;
            Ok((sockets, chunk, inbox))
        });
        let (sockets, chunk, inbox) = match taken {
            Ok(taken) => taken,
            Err(error) => {
                locked.remove(row)?;
                return Err(error);
            }
        };
        drop(locked);
        let membership = Membership {
            inbox,
            me,
            takes_rings,
            holders: Mutex::default(),
            waiting: Waiting::default(),
            farewells: Farewells::default(),
            is_stale: AtomicBool::new(false),
            pace: Mutex::default(),
            unreleased: Mutex::default(),
            probed: AtomicU64::new(0),
            registry,
        };
        // Where the folder cannot be read, peers find out by themselves.
        let _ = membership.find_farewells(addrs);
        Ok(Joined {
            membership,
            sockets,
            chunk,
        })
    }

    fn bind_all(
        locked: &mut Locked<'_>,
        me: Neighbour,
        takes_rings: bool,
        addrs: &[IpAddr],
        port: u16,
        config: &UdpConfig,
    ) -> Result<Vec<UdpSocket>, JoinError> {
        let config = UdpConfig {
            reuse_port: true,
            ..config.clone()
        };
        let mut sockets = Vec::with_capacity(addrs.len());
        for &addr in addrs {
            let socket = UdpSocket::bind(SocketAddr::new(addr, port), &config)
                .map_err(|error| JoinError::Bind(addr, error))?;
            let others = locked.sockets_on(addr).count() as u32;
            // Ours has no number yet: the program is for probes, and for the others.
            let program = steer::program(locked, addr).unwrap_or_else(steer::probes_only);
            socket.attach_steering(&program)?;
            let number = steer::find_number(&socket, me.nonce, others, others + 8)?;
            match number {
                // As many as are known were there before: the usual case.
                Some(number) if number <= others => {}
                Some(_) => return Err(JoinError::Strangers(addr)),
                // A program that does not steer: for one alone that does not matter.
                None if others == 0 => {}
                None => return Err(JoinError::Strangers(addr)),
            }
            let entry = SocketEntry {
                row: me.row,
                index: number.or(Some(0)),
                joins: socket.caps().gro(),
                takes_rings,
                addr,
            };
            if !locked.set_socket(entry)? {
                return Err(full(&format!("{SOCKETS} sockets of this user")));
            }
            sockets.push(socket);
        }
        Ok(sockets)
    }

    /// Another chunk of QPNs; `None` if all are taken.
    pub(crate) fn grant<'s>(
        &self,
        random: u64,
        sockets: impl Iterator<Item = &'s UdpSocket>,
    ) -> io::Result<Option<QpnChunk>> {
        let mut locked = self.registry.lock(Some(self.me.row))?;
        let Some(chunk) = locked.grant(self.me.row, random)? else {
            return Ok(None);
        };
        attach_all(&locked, sockets)?;
        Ok(Some(chunk))
    }

    /// Handles a packet that belongs to another participant, by what the core says.
    pub(crate) fn take_foreign(&self, handed: &Handed<'_>, foreign: Foreign, now: Time) -> Shared {
        let holder = match foreign {
            Foreign::Probe => {
                if let Some(number) = steer::parse_probe(handed.packet, self.me.nonce) {
                    self.probed.store(u64::from(number) + 1, Ordering::Relaxed);
                }
                return Shared::Probe;
            }
            // All share QP 1: what a datagram is about tells its owner.
            Foreign::Qp(chunk) | Foreign::Message(Destination::Owner(chunk)) => {
                self.holder(chunk, handed.local, now)
            }
            Foreign::Message(Destination::Service(service)) => self.listener(service, handed.local),
            Foreign::Message(Destination::Anyone) => None,
        };
        match holder {
            Some(row) if row != self.me.row => {
                let is_message = matches!(foreign, Foreign::Message(_));
                match self.send(row, handed) {
                    Delivery::Taken => Shared::HandedOver,
                    // The owner ended a moment ago. The peer still gets an answer, as from a kernel.
                    Delivery::Gone if is_message => Shared::NoOwner,
                    // Messages of the connection manager are few, and a lost one costs its sender seconds.
                    Delivery::Full if is_message && self.keep(row, handed, now) => Shared::Waits,
                    _ => Shared::Lost,
                }
            }
            _ => Shared::NoOwner,
        }
    }

    fn send(&self, row: Row, handed: &Handed<'_>) -> Delivery {
        self.inbox.send(&self.registry.hand_over_path(row), handed)
    }

    fn keep(&self, row: Row, handed: &Handed<'_>, now: Time) -> bool {
        let mut bytes = vec![0; handed.len()];
        let is_written = handed.emit(&mut bytes).is_some();
        is_written && self.waiting.keep(row, &bytes, now)
    }

    /// When [`Membership::hand_over_waiting`] is due.
    pub(crate) fn waiting_due(&self) -> Option<Time> {
        self.waiting.due()
    }

    /// Tries again to hand over what a full inbox had no room for.
    pub(crate) fn hand_over_waiting(&self, now: Time) -> Retried {
        self.waiting.retry(now, |row, bytes| {
            self.inbox
                .send_bytes(&self.registry.hand_over_path(row), bytes)
        })
    }

    /// Those that have a socket at one of these addresses.
    pub(super) fn sharers_of(&self, addrs: [IpAddr; 2], now: Time) -> Vec<Neighbour> {
        let mut holders = lock(&self.holders);
        if !holders.are_younger(now, HOLDERS_NS) {
            holders.read(&self.registry, now);
        }
        let here = holders.sockets.iter();
        let rows = here.filter(|entry| addrs.contains(&entry.addr) && entry.row != self.me.row);
        rows.filter_map(|entry| {
            let (row, nonce) = (entry.row, self.registry.nonce_of(entry.row)?);
            Some(Neighbour { row, nonce })
        })
        .collect()
    }

    /// True if a participant that takes packets through memory has a socket at this address.
    pub(crate) fn is_on_this_host(&self, addr: IpAddr, now: Time) -> bool {
        let mut holders = lock(&self.holders);
        if holders.generation != self.registry.generation() {
            holders.read(&self.registry, now);
        }
        let mut sockets = holders.sockets.iter();
        sockets.any(|entry| entry.addr == addr && entry.takes_rings)
    }

    /// The participant that has the chunk, and a socket on this address. One that has just joined is found as well: its
    /// messages are answered, and the answers are to reach it.
    fn holder(&self, chunk: QpnChunk, addr: IpAddr, now: Time) -> Option<Row> {
        let mut holders = lock(&self.holders);
        if !holders.are_younger(now, HOLDERS_NS) {
            holders.read(&self.registry, now);
        }
        if let Some(row) = holders.find(chunk, addr) {
            return Some(row);
        }
        let is_known = holders.of(chunk) == self.registry.holder_of(chunk);
        if is_known && (holders.of(chunk).is_none() || holders.are_younger(now, NO_SOCKET_NS)) {
            return None;
        }
        holders.read(&self.registry, now);
        holders.find(chunk, addr)
    }

    /// The participant that a QP at an address is of, if it is of one.
    pub(crate) fn find(&self, qpn: Qpn, addr: IpAddr, now: Time) -> Option<Found> {
        let entry = self.socket_of(QpnChunk::of(qpn), addr, now)?;
        Some(Found {
            gets_trains_whole: entry.joins,
            direct_port: entry.row.direct_port(),
        })
    }

    /// The port that this participant may send lone packets from ([`Found::direct_port`]).
    pub(crate) fn direct_port(&self) -> NonZeroU16 {
        self.me.row.direct_port()
    }

    /// The socket at an address of the participant that has the chunk.
    pub(super) fn socket_of(
        &self,
        chunk: QpnChunk,
        addr: IpAddr,
        now: Time,
    ) -> Option<SocketEntry> {
        self.holder(chunk, addr, now)?;
        lock(&self.holders).socket(chunk, addr).copied()
    }

    /// The listener for a service at an address. There is no list in memory: one that listens
    /// since a moment ago is found.
    fn listener(&self, service: u64, addr: IpAddr) -> Option<Row> {
        let (space, port) = ((service >> 16) as u16, service as u16);
        let ports = Ports::open(&self.registry).ok()?;
        let has_row = |(row, nonce)| self.registry.has_row(row, nonce);
        ports.listener((space, addr, port), has_row)
    }

    /// Binds a port for this participant. False if it is taken.
    pub(crate) fn bind_port(&self, name: PortName, reuse: bool) -> io::Result<bool> {
        self.with_ports(|locked, ports, own| ports.bind(locked, own, name, reuse))
    }

    /// A block of ports for this participant to choose from: the first of them.
    pub(crate) fn take_port_block(&self, space: u16, random: u64) -> io::Result<Option<u16>> {
        self.with_ports(|locked, ports, own| ports.take_block(locked, own, space, random))
    }

    /// Tells the others where this participant listens.
    pub(crate) fn note_listening(&self, name: PortName) -> io::Result<()> {
        self.with_ports(|locked, ports, own| ports.listen(locked, own, name))
    }

    /// Gives back what [`Membership::bind_port`] had, or what was noted; later, if the registry is locked for long.
    pub(crate) fn release_port(&self, name: PortName, listening: bool) -> io::Result<()> {
        lock(&self.unreleased).push((name, listening));
        let locked = self.registry.lock_to_give_back(self.me.row)?;
        self.ports(&locked).map(|_| ())
    }

    fn with_ports<R>(
        &self,
        act: impl FnOnce(&Locked<'_>, &mut Ports, Owner) -> io::Result<R>,
    ) -> io::Result<R> {
        let locked = self.registry.lock(Some(self.me.row))?;
        act(
            &locked,
            &mut self.ports(&locked)?,
            (self.me.row, self.me.nonce),
        )
    }

    /// The ports, without those of ours that are given back.
    fn ports(&self, _: &Locked<'_>) -> io::Result<Ports> {
        let mut ports = Ports::open(&self.registry)?;
        let mut unreleased = lock(&self.unreleased);
        while let Some((name, listening)) = unreleased.last().copied() {
            ports.remove((self.me.row, self.me.nonce), name, listening)?;
            unreleased.pop();
        }
        Ok(ports)
    }

    /// The inbox into which others put our packets.
    pub(crate) fn inbox(&self) -> BorrowedFd<'_> {
        self.inbox.as_fd()
    }

    /// Takes what others have for us. That they got packets for us shows that the kernel's
    /// program is wrong.
    pub(crate) fn drain_inbox(&self, mut take: impl FnMut(Arrived<'_>)) {
        let mut is_steered_wrong = false;
        self.inbox.drain(|arrived| {
            if let Arrived::Packet(handed) = &arrived {
                is_steered_wrong |= !handed.is_message();
            }
            match arrived {
                Arrived::Farewells(of) => self.watch_farewells(of),
                arrived => take(arrived),
            }
        });
        if is_steered_wrong {
            self.is_stale.store(true, Ordering::Relaxed);
        }
    }

    /// True if [`Membership::repair`] is due.
    pub(crate) fn needs_repair(&self, now: Time) -> bool {
        self.is_stale.load(Ordering::Relaxed)
            && lock(&self.pace).is_due(now, || self.registry.generation())
    }

    /// Corrects the kernel's program, if no other process changes the registry now.
    /// `receive` fetches packets from the sockets, as always. False if one does.
    pub(crate) fn repair<'s>(
        &self,
        now: Time,
        sockets: impl Iterator<Item = &'s UdpSocket> + Clone,
        mut receive: impl FnMut(),
    ) -> io::Result<bool> {
        let attempt = self.registry.try_lock(Some(self.me.row));
        let attempt =
            attempt.inspect_err(|_| lock(&self.pace).note(now, self.registry.generation()));
        let Some(mut locked) = attempt? else {
            return Ok(false);
        };
        for socket in sockets.clone() {
            let addr = socket.local_addr();
            let end = locked.sockets_on(addr.ip()).count() as u32 + 8;
            let mut found = None;
            for number in 0..end {
                self.probed.store(0, Ordering::Relaxed);
                steer::send_probe(socket, addr, number, self.me.nonce);
                receive();
                if self.probed.load(Ordering::Relaxed) == u64::from(number) + 1 {
                    found = Some(number);
                    break;
                }
            }
            // Without an answer the number stays what it was; the next packet that is
            // handed over has it tried again.
            if let Some(number) = found {
                locked.set_socket(SocketEntry {
                    row: self.me.row,
                    index: Some(number),
                    joins: socket.caps().gro(),
                    takes_rings: self.takes_rings,
                    addr: addr.ip(),
                })?;
            }
        }
        attach_all(&locked, sockets)?;
        self.is_stale.store(false, Ordering::Relaxed);
        lock(&self.pace).note(now, self.registry.generation());
        Ok(true)
    }

    /// Gives everything back. The registry stays locked until this is dropped, which the
    /// sockets must be before. If another process has it locked for long, the next one finds what is left, as after a kill.
    pub(crate) fn leave<'s>(
        &self,
        sockets: impl Iterator<Item = &'s UdpSocket> + Clone,
    ) -> io::Result<()> {
        self.inbox.close();
        self.remove_farewells();
        let mut locked = self.registry.lock_to_give_back(self.me.row)?;
        for socket in sockets.clone() {
            let addr = socket.local_addr().ip();
            let own = locked
                .sockets_on(addr)
                .find(|entry| entry.row == self.me.row);
            let last = locked.sockets_on(addr).max_by_key(|entry| entry.index);
            // When ours is closed the last one takes its number.
            if let (Some(own), Some(last)) = (own, last)
                && own.row != last.row
            {
                locked.set_socket(SocketEntry {
                    index: own.index,
                    ..last
                })?;
            }
        }
        locked.remove(self.me.row)?;
        attach_all(&locked, sockets)?;
        locked.keep();
        Ok(())
    }

    /// Descriptors that a child of a fork must not keep: with them the kernel would take
    /// this participant for alive.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.registry.file.as_fd(), self.inbox.as_fd()]
    }
}

/// There is no room for one more.
fn full(what: &dyn Display) -> JoinError {
    let text = format!("the registry has {what}, and no room for more");
    JoinError::NoRegistry(io::Error::new(io::ErrorKind::StorageFull, text))
}

/// Attaches the kernel's program for what the registry says; one participant alone needs none: the
/// program costs a twentieth of a microsecond for each datagram.
fn attach_all<'s>(
    locked: &Locked<'_>,
    sockets: impl IntoIterator<Item = &'s UdpSocket>,
) -> io::Result<()> {
    for socket in sockets {
        let addr = socket.local_addr().ip();
        if locked.sockets_on(addr).count() < 2 {
            socket.detach_steering();
        } else if let Some(program) = steer::program(locked, addr) {
            socket.attach_steering(&program)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
