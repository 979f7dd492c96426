//! Memory that neighbours on one host share, as what carries packets between them; UDP sockets carry the rest.
//!
//! For each neighbour that a QP has for a peer there is a ring to write ([`outgoing`]), which its owner maps when it is offered
//! ([`crate::share`]); for each that offered one there is a ring to read ([`incoming`]). The packets are what they are on a
//! network, but for the ICRC: nothing damages them here. A train is one record. Everything that judges a packet comes after
//! this, and does not know which way it came.
//!
//! A thread that polls looks at the rings, and at the sockets now and then. One that is about to sleep on the sockets asks to be
//! woken ([`Carrier::doze`]): then a writer that finds it so sends a datagram ([`wake`]) behind what it wrote.

mod incoming;
mod manner;
mod outgoing;
mod outgoings;
mod record;
pub(in crate::engine) mod wake;

use core::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use urxe_core::Time;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::transmit::{Transmit as Run, TxBatch, TxDest};
use urxe_ring::{Consumer, Push};

use self::incoming::{Buffer, Incoming};
use self::outgoing::Outgoing;
use self::outgoings::{Outgoings, Route};
use super::intake::Intake;
use super::keeper::Keeper;
use super::seam::{Carrier, Sending, Sent, Sleeper};
use super::sockets::Which;
use super::udp::SocketCarrier;
use crate::error::Error;
use crate::share::{Membership, Neighbour};

/// Bytes that are built before they are written to a ring, while nothing goes through sockets: they stay in the first-level cache
/// meanwhile. `urxe bench write` has 88 Gbit/s, and 74 with four times as much.
const BATCH_BYTES: usize = 32 << 10;

/// After a batch of so many bytes the next one is made in the ring's memory. After each, an 8-byte message would take 210 instructions more
/// (`tests/instructions`): it is copied sooner than that.
const BULK_BYTES: usize = 8 << 10;

/// Of so many looks of a polling thread, one is at the sockets too: that costs thirty times as much as a look at the rings, and a
/// message that comes by a ring waits meanwhile. `urxe bench send --lat` has 0.66 us so, and 0.84 with 64 looks.
const SOCKETS_EVERY: u32 = 512;
/// But while the sockets bring something, each look is, until so many in a row found nothing: longer than a round trip to another
/// host takes.
const SOCKET_MISSES: u32 = 256;

/// Rings in each direction, at most. Neighbours beyond that are reached through sockets.
const RINGS_MAX: usize = 512;

/// How long it is believed that there is no ring to somewhere, and how often one that is used is asked whether its reader lives.
const BELIEVED_NS: u64 = 20_000_000;
const ALIVE_NS: u64 = 1_000_000_000;

/// The rings, and the sockets for what has none.
#[derive(Debug)]
pub(in crate::engine) struct MemoryCarrier {
    below: SocketCarrier,
    membership: Arc<Membership>,
    incoming: Vec<Incoming>,
    buffer: Buffer,
    outgoing: Outgoings,
    /// A run without the room for envelopes, on its way into a ring.
    close: Vec<u8>,
    sleepers: Sleepers,
    /// Looks that found the sockets empty, and looks that left them out since.
    socket_misses: u32,
    left_out: u32,
    /// The sockets have the rest of a batch.
    is_full: bool,
    /// When neighbours are asked next whether they live.
    sweep_at: Time,
}

/// Who asked to be woken.
#[derive(Clone, Copy, Default, Debug)]
struct Sleepers {
    waiter: bool,
    progress: bool,
}

impl Sleepers {
    fn any(self) -> bool {
        self.waiter || self.progress
    }

    fn set(&mut self, sleeper: Sleeper, sleeps: bool) {
        match sleeper {
            Sleeper::Waiter => self.waiter = sleeps,
            Sleeper::Progress => self.progress = sleeps,
        }
    }
}

impl MemoryCarrier {
    pub(in crate::engine) fn new(
        below: SocketCarrier,
        membership: Arc<Membership>,
    ) -> MemoryCarrier {
        MemoryCarrier {
            below,
            membership,
            incoming: Vec::new(),
            buffer: Buffer::new(),
            outgoing: Outgoings::default(),
            sleepers: Sleepers::default(),
            socket_misses: 0,
            left_out: 0,
            close: Vec::new(),
            is_full: false,
            sweep_at: Time::ZERO,
        }
    }

    /// The ring to the owner of a chunk at an address; one is made if there is none.
    fn route_to(&mut self, remote: IpAddr, chunk: QpnChunk, now: Time) -> Route {
        let known = self.outgoing.routes.get(&(remote, chunk));
        if let Some(route) = known
            && now < route.until
        {
            return *route;
        }
        let ring = self.find_ring(remote, chunk, now);
        let believed = if ring.is_some() {
            ALIVE_NS
        } else {
            BELIEVED_NS
        };
        // As many as there are chunks and addresses, at most; those that are not used any more are forgotten all at once.
        if self.outgoing.routes.len() >= 4 * RINGS_MAX {
            self.outgoing.routes.clear();
        }
        let until = now + believed;
        let route = Route { ring, until };
        self.outgoing.routes.insert((remote, chunk), route);
        route
    }

    #[cold]
    fn find_ring(&mut self, remote: IpAddr, chunk: QpnChunk, now: Time) -> Option<usize> {
        let to = self.membership.neighbour(chunk, remote, now)?;
        self.outgoing.note_here(remote);
        let rings = &self.outgoing.rings;
        let is_to = |ring: &Option<Outgoing>| ring.as_ref().is_some_and(|ring| ring.to == to);
        if let Some(place) = rings.iter().position(is_to) {
            let is_open = rings[place].as_ref().is_some_and(|ring| !ring.is_closed());
            if is_open && self.membership.is_alive(to) {
                return Some(place);
            }
            self.outgoing.drop_ring(place, &self.membership);
            return None;
        }
        self.make_ring(to, now)
    }

    /// Makes a ring, and offers it. None if that is not possible now.
    fn make_ring(&mut self, to: Neighbour, now: Time) -> Option<usize> {
        if self.outgoing.refusers.contains(&to) {
            return None;
        }
        let free = self.outgoing.rings.iter().position(Option::is_none);
        let place = free.unwrap_or(self.outgoing.rings.len());
        if place >= RINGS_MAX {
            return None;
        }
        let (ring, memory) = Outgoing::create(to, now).ok()?;
        if self.membership.is_me(to) {
            self.accept(to, Some(memory));
        } else if !self.membership.offer_ring(to, memory.as_fd()) {
            return None;
        }
        if place == self.outgoing.rings.len() {
            self.outgoing.rings.push(None);
        }
        self.outgoing.rings[place] = Some(ring);
        Some(place)
    }

    /// Looks at all rings; true if there were packets.
    #[inline]
    fn receive_rings(&mut self, calls_max: u32, intake: &mut Intake<'_>) -> bool {
        let mut any = false;
        let mut is_over = false;
        for ring in &mut self.incoming {
            any |= ring.receive(calls_max, &mut self.buffer, self.sleepers.any(), intake);
            is_over |= ring.is_over;
        }
        if is_over {
            self.incoming.retain(|ring| !ring.is_over);
        }
        any
    }

    /// A wake-up was taken after the record that it was for, which another thread had read, and threads still sleep.
    fn ask_again(&mut self, intake: &mut Intake<'_>) {
        for ring in self.incoming.iter_mut().filter(|ring| ring.is_roused()) {
            intake.left_lying |= !ring.doze();
        }
    }

    /// True if it is not the sockets' turn.
    #[inline]
    fn leaves_out_sockets(&mut self) -> bool {
        self.left_out += 1;
        self.socket_misses >= SOCKET_MISSES
            && self.left_out < SOCKETS_EVERY
            && !self.incoming.is_empty()
    }

    /// Publishes what was made in a ring's own memory. False if there is none of that: the packets are in the batch, and no memory is lent.
    fn send_lent(&mut self, batch: &mut TxBatch, cx: &mut Sending<'_>) -> bool {
        if let Some(run) = batch.runs().first() {
            self.look_up(&run.dest, cx.now);
        }
        let outgoing = &mut self.outgoing;
        let is_ready = batch.is_away() && cx.tap.is_none();
        let Some(place) = outgoing
            .lent
            .filter(|&place| is_ready && outgoing.takes_all(place, batch.runs()))
        else {
            outgoing.end_loan(batch.take_home());
            return false;
        };
        outgoing.end_loan(batch.end_loan());
        let mut last = None;
        if let Some(Some(ring)) = outgoing.rings.get_mut(place) {
            for run in batch.runs() {
                ring.publish(run);
                cx.counters.tx_records += 1;
                cx.counters.tx_in_place += 1;
                ring.unwoken = Some(run.dest);
                last = ring.unwoken;
            }
        }
        self.wake_readers();
        self.empty(batch, last.map(|dest| (place, dest)), cx.may_lend);
        true
    }

    /// All of a batch has left by rings. If it was a large one, and there is but one ring that it left by, the next packets are made in the
    /// memory of that, as far as they go there.
    #[inline]
    fn empty(&mut self, batch: &mut TxBatch, by: Option<(usize, TxDest)>, may_lend: bool) {
        let is_bulk = may_lend && batch.used() >= BULK_BYTES;
        batch.clear();
        batch.set_capacity(BATCH_BYTES);
        if is_bulk && let Some((place, dest)) = by {
            self.lend(batch, place, &dest);
        }
    }

    fn lend(&mut self, batch: &mut TxBatch, place: usize, dest: &TxDest) {
        let ring = self.outgoing.rings.get_mut(place);
        // Those in envelopes have room for that around them, and those of a capture need an ICRC.
        if dest.in_memory
            && !self.below.is_sealed()
            && let Some(loan) = ring.and_then(Option::as_mut).and_then(|it| it.lend(dest))
        {
            self.outgoing.lent = Some(place);
            batch.lend(loan);
        }
    }

    /// Writes what there are rings for; the rest stays in the batch. Returns the ring, if it was one only.
    fn send_rings(&mut self, batch: &mut TxBatch, cx: &mut Sending<'_>) -> Option<(usize, TxDest)> {
        let now = cx.now;
        // A look in advance: making a ring needs more than what is borrowed below.
        for run in batch.runs() {
            self.look_up(&run.dest, now);
        }
        let (outgoing, membership) = (&mut self.outgoing, &self.membership);
        let close = &mut self.close;
        let (mut by, mut is_only) = (None, true);
        batch.retain_runs(|run, bytes| {
            let Some(place) = outgoing.place(&run.dest) else {
                return true;
            };
            let Some(Some(ring)) = outgoing.rings.get_mut(place) else {
                return true;
            };
            let bytes = without_gaps(run, bytes, close);
            match ring.push(&run.dest, run.segment_size, bytes) {
                Push::Done => {
                    cx.counters.tx_records += 1;
                    ring.unwoken = Some(run.dest);
                    is_only &= by.is_none_or(|(other, _)| other == place);
                    by = Some((place, run.dest));
                }
                // Nothing slows a sender of datagrams down, and none sends them again: the way through the kernel is slower, and has room.
                Push::Full if !run.dest.in_memory => return true,
                // Lost as if on the way: the receiver has four megabytes that it did not look at.
                Push::Full => cx.counters.rings_full += 1,
                Push::Closed => {
                    outgoing.drop_ring(place, membership);
                    return true;
                }
            }
            false
        });
        self.wake_readers();
        by.filter(|_| is_only)
    }

    /// Has the route of a destination ready.
    #[inline]
    fn look_up(&mut self, dest: &TxDest, now: Time) {
        let (remote, chunk) = (dest.remote, dest.chunk);
        let is_known = self.outgoing.last.is_some_and(|(addr, last, route)| {
            addr == remote && last == chunk && now < route.until
        });
        if is_known || !self.outgoing.here.contains(&remote) {
            return;
        }
        let route = self.route_to(remote, chunk, now);
        self.outgoing.last = Some((remote, chunk, route));
    }

    /// Wakes the readers that sleep.
    #[inline]
    fn wake_readers(&mut self) {
        for ring in self.outgoing.rings.iter_mut().flatten() {
            if let Some(dest) = ring.unwoken
                && (!ring.must_wake() || self.below.send_single(&dest, &wake::emit(dest.chunk)))
            {
                ring.unwoken = None;
            }
        }
    }
}

/// The packets of a run one behind the other: in a ring there is no room for envelopes.
#[inline]
fn without_gaps<'a>(run: &Run, bytes: &'a [u8], close: &'a mut Vec<u8>) -> &'a [u8] {
    if run.gap == 0 || run.segments() == 1 {
        return bytes;
    }
    close.clear();
    run.packets(bytes)
        .for_each(|packet| close.extend_from_slice(packet));
    close
}

impl Carrier for MemoryCarrier {
    fn batch(&self) -> TxBatch {
        self.below.batch()
    }

    fn send(&mut self, batch: &mut TxBatch, cx: &mut Sending<'_>) -> Sent {
        if !self.is_full {
            if batch.has_loan() && self.send_lent(batch, cx) {
                return Sent::All;
            }
            if let Some(tap) = &mut cx.tap {
                batch.seal();
                tap.sent(batch);
            }
            let by = self.send_rings(batch, cx);
            if batch.is_empty() {
                self.empty(batch, by, cx.may_lend);
                return Sent::All;
            }
            if !self.below.is_sealed() {
                batch.seal();
            }
        }
        let mut cx = Sending {
            tap: None,
            counters: &mut *cx.counters,
            ..*cx
        };
        let sent = self.below.send(batch, &mut cx);
        self.is_full = sent == Sent::Full;
        if !self.is_full {
            batch.set_capacity(usize::MAX);
        }
        sent
    }

    fn receive(&mut self, which: Which, calls_max: u32, intake: &mut Intake<'_>) -> bool {
        let any = self.receive_rings(calls_max, intake);
        if which == Which::Polled && self.leaves_out_sockets() {
            return any;
        }
        self.left_out = 0;
        let MemoryCarrier {
            below,
            incoming,
            buffer,
            sleepers,
            ..
        } = self;
        // What a neighbour wrote before it sent a datagram comes before that datagram: a disconnection overtakes no message.
        let found = below.receive_after(which, calls_max, intake, |intake| {
            for ring in incoming.iter_mut() {
                ring.receive(calls_max, buffer, sleepers.any(), intake);
            }
        });
        self.socket_misses = if found {
            0
        } else {
            self.socket_misses.saturating_add(1)
        };
        if (found || which == Which::All) && self.sleepers.any() {
            self.ask_again(intake);
        }
        any || found
    }

    #[inline]
    fn is_quiet(&mut self) -> bool {
        self.incoming.iter().all(Incoming::is_empty) && self.leaves_out_sockets()
    }

    fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        self.below.join(group)
    }

    fn leave(&mut self, has_members: &dyn Fn(IpAddr) -> bool) {
        self.below.leave(has_members);
    }

    fn prepare(&mut self, remote: IpAddr, chunk: QpnChunk, now: Time) -> bool {
        self.route_to(remote, chunk, now).ring.is_some()
    }

    fn expect(&mut self, remote: IpAddr, now: Time) {
        // The ring is made when the first datagram says to which owner it goes.
        if self.membership.is_on_this_host(remote, now) {
            self.outgoing.note_here(remote);
        }
    }

    fn has_ring_to(&self, remote: IpAddr, chunk: QpnChunk) -> bool {
        let route = self.outgoing.routes.get(&(remote, chunk));
        route.is_some_and(|route| route.ring.is_some())
    }

    fn accept(&mut self, from: Neighbour, memory: Option<OwnedFd>) {
        let memory = memory.filter(|_| self.incoming.len() < RINGS_MAX);
        let Some(consumer) = memory.and_then(|memory| Consumer::open(memory).ok()) else {
            // Its writer is to use sockets.
            return self.membership.refuse_ring(from);
        };
        let mut ring = Incoming::new(from, consumer);
        // What a neighbour wrote and then left is read all the same: it may be the ACK of what this side sent last.
        ring.is_dead = !self.membership.is_alive(from);
        if self.sleepers.any() {
            // What is there already is read by the caller.
            ring.doze();
        }
        self.incoming.push(ring);
    }

    fn refused(&mut self, by: Neighbour) {
        let to = |ring: &Option<Outgoing>| ring.as_ref().is_some_and(|ring| ring.to == by);
        if let Some(place) = self.outgoing.rings.iter().position(to) {
            self.outgoing.give_up(place);
        }
    }

    fn waits_at(&mut self, dest: &TxDest, since: Time, now: Time) -> bool {
        let Some(place) = self.outgoing.place(dest) else {
            return false;
        };
        let Some(Some(ring)) = self.outgoing.rings.get_mut(place) else {
            return false;
        };
        if ring.is_closed() || !self.membership.is_alive(ring.to) {
            self.outgoing.drop_ring(place, &self.membership);
            return false;
        }
        let waits = ring.waits_since(since, now);
        if ring.is_left_lying(now) && self.outgoing.give_up(place) {
            return false;
        }
        if waits {
            // A wake-up may have been lost.
            self.below.send_single(dest, &wake::emit(dest.chunk));
        }
        waits
    }

    fn doze(&mut self, sleeper: Sleeper) -> bool {
        self.wake_readers();
        self.sleepers.set(sleeper, true);
        let mut is_quiet = true;
        for ring in &mut self.incoming {
            is_quiet &= ring.doze();
        }
        if !is_quiet {
            self.rouse(sleeper);
        }
        is_quiet
    }

    fn has_sleeper(&self) -> bool {
        self.sleepers.any()
    }

    fn rouse(&mut self, sleeper: Sleeper) {
        self.sleepers.set(sleeper, false);
        if !self.sleepers.any() {
            for ring in &mut self.incoming {
                ring.rouse();
            }
        }
    }

    fn upkeep(&mut self, now: Time) -> Option<Time> {
        let below = self.below.upkeep(now);
        let outgoing = &mut self.outgoing;
        let has_rings = !self.incoming.is_empty() || !outgoing.is_empty();
        if has_rings && self.sweep_at <= now {
            self.sweep_at = now + ALIVE_NS;
            let membership = &self.membership;
            for place in 0..outgoing.rings.len() {
                let Some(ring) = &outgoing.rings[place] else {
                    continue;
                };
                if ring.is_closed() || !membership.is_alive(ring.to) {
                    outgoing.drop_ring(place, membership);
                } else if ring.is_left_lying(now) {
                    outgoing.give_up(place);
                }
            }
            outgoing.refusers.retain(|&to| membership.is_alive(to));
            for ring in &mut self.incoming {
                ring.is_dead |= !self.membership.is_alive(ring.from);
            }
        }
        let own = has_rings.then_some(self.sweep_at);
        Time::earliest([own, below])
    }

    fn is_sealed(&self) -> bool {
        self.below.is_sealed()
    }

    fn keeper(&mut self) -> Option<&mut dyn Keeper> {
        self.below.keeper()
    }

    fn poll_gone(&mut self) -> Option<(IpAddr, QpnChunk)> {
        self.outgoing.gone.pop()
    }
}
