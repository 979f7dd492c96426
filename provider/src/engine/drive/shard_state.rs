//! What the engine's lock protects: the core's shard, and what it needs to run.
//! Passive: the holder of the lock drives it.

use core::net::{IpAddr, SocketAddr};
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use urxe_core::event::AsyncEvent as CoreEvent;
use urxe_core::mr::MrTable;
use urxe_core::qpn_table::QpnChunk;
use urxe_core::table::QpIndex;
use urxe_core::transmit::TxBatch;
use urxe_core::{AckMode, Driver, Foreign, Handled, RxPath, Shard, Time};
use urxe_wire::Qpn;

use super::clock::Clock;
use super::ended::Ended;
use super::parts::Parts;
use super::patience::Patience;
use super::progress_shared::{DEFER_NS, ProgressShared};
use crate::async_event::AsyncEvent;
use crate::engine::calls::inlets::Inlets;
use crate::engine::carrier::Opened;
use crate::engine::carrier::intake::Intake;
use crate::engine::carrier::memory::wake;
use crate::engine::carrier::seam::{Carrier, Sending, Sent, Sleeper};
use crate::engine::carrier::sockets::{Sockets, Which};
use crate::engine::objects::cm::CmTable;
use crate::engine::upkeep::counters::EngineCounters;
use crate::engine::upkeep::tap::Tap;
use crate::error::Error;
use crate::faults::FaultyPath;
use crate::queues::Channel;
use crate::queues::CqTable;
use crate::share::{Arrived, Handed, Membership};
use crate::strict::Watching;

/// Receive calls that one turn makes on one socket, at most: 8 datagrams each, which
/// may be trains of 64 KiB. Then timers and sending have their turn.
const RECEIVES_PER_TURN: u32 = 4;

/// As many before what was handed over: more than a window of one connection takes.
const RECEIVES_BEFORE_HANDED: u32 = 64;

/// As many are as much as a ring holds.
const LYING_CALLS: u32 = 128;

#[derive(Debug)]
pub(crate) struct ShardState {
    /// Reached by dereferencing, too.
    pub(in crate::engine) parts: Parts,
    /// Where the program posts.
    pub(crate) inlets: Inlets,
    /// Packets that the core made.
    batch: TxBatch,
    pub(in crate::engine) carrier: Box<dyn Carrier>,
    /// What became of the last batch.
    sent: Sent,
    pub(crate) counters: EngineCounters,
    pub(crate) tap: Option<Tap>,
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) clock: Clock,
    pub(crate) progress: Arc<ProgressShared>,
    pub(crate) events: Arc<Channel<AsyncEvent>>,
    /// Others who have the same addresses.
    pub(crate) membership: Option<Arc<Membership>>,
    /// The holder of the lock changed nothing, so no thread has to be told.
    pub(crate) nothing_new: bool,
    pub(in crate::engine) patience: Patience,
    /// Something lies there that the threads which sleep are not woken for.
    pub(in crate::engine) left_lying: bool,
    pub(super) ended: Ended,
    /// The receivers of the connection manager's events.
    pub(crate) cm: CmTable,
    /// Which of the context's shards it is.
    pub(in crate::engine) number: u32,
}

impl Deref for ShardState {
    type Target = Parts;

    #[inline(always)]
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl DerefMut for ShardState {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.parts
    }
}

impl ShardState {
    pub(in crate::engine) fn new(
        shard: Shard,
        mrs: MrTable,
        opened: Opened,
        progress: Arc<ProgressShared>,
        events: Arc<Channel<AsyncEvent>>,
        number: u32,
        watching: Option<Box<Watching>>,
    ) -> ShardState {
        ShardState {
            parts: Parts {
                shard,
                mrs,
                cqs: CqTable::default(),
                watching,
                now: Time::ZERO,
            },
            inlets: Inlets::default(),
            batch: opened.carrier.batch(),
            carrier: opened.carrier,
            sent: Sent::All,
            counters: EngineCounters::default(),
            tap: opened.tap,
            sockets: opened.sockets,
            clock: opened.clock,
            progress,
            events,
            membership: opened.membership,
            nothing_new: false,
            patience: Patience::default(),
            left_lying: false,
            ended: Ended::default(),
            cm: CmTable::default(),
            number,
        }
    }

    /// Reads the clock: at the beginning of every turn.
    #[inline]
    pub(crate) fn start_turn(&mut self) {
        let now = self.clock.now();
        self.now = now;
        self.cqs.clock.now = now;
        if self.cqs.clock.met_armed {
            self.cqs.clock.met_armed = false;
            self.shard.note_waiting(now);
        }
        if let Some(strict) = self.parts.strict_mut() {
            strict.set_now(now);
        }
    }

    /// Fetches and handles packets; returns true if there were any.
    #[inline]
    pub(crate) fn receive(&mut self, calls_max: u32, which: Which) -> bool {
        let mut intake = Intake {
            parts: &mut self.parts,
            late: &self.inlets,
            counters: &mut self.counters,
            tap: self.tap.as_mut(),
            others: self.membership.as_deref(),
            progress: &self.progress,
            left_lying: false,
        };
        let any = self.carrier.receive(which, calls_max, &mut intake);
        self.left_lying = intake.left_lying;
        any
    }

    /// Hands a packet to the core.
    pub(in crate::engine) fn handle_packet(
        &mut self,
        path: &RxPath,
        place: u16,
        packet: &[u8],
    ) -> Handled {
        let handled = self.parts.handle_one_of(&self.inlets, path, place, packet);
        self.parts.shard.settle_rest();
        handled
    }

    /// Takes the packets that others of this address got in our place, and has the
    /// kernel steer right from now on.
    #[cold]
    pub(crate) fn receive_handed_over(&mut self) {
        let Some(membership) = self.membership.clone() else {
            return;
        };
        let mut has_more = false;
        membership.drain_inbox(|arrived| {
            let handed = match arrived {
                Arrived::Packet(handed) => handed,
                Arrived::Ring(from, memory) => {
                    self.carrier.accept(from, memory);
                    has_more = true;
                    return;
                }
                Arrived::NoRing(by) => return self.carrier.refused(by),
                Arrived::Farewells(_) => return,
            };
            // Packets of QPs have PSNs.
            if self.is_sealed() || handed.is_message() {
                self.receive_what_came_before();
            }
            has_more |= self.take_handed(&handed);
        });
        if has_more {
            // What is in memory, behind a datagram that says so: all of it, as the threads that sleep are woken for more only then. No
            // ACK leaves meanwhile, so it ends.
            while self.receive(1, Which::All) {}
        }
        if membership.needs_repair(self.now) {
            let sockets = self.sockets.clone();
            let repaired = membership.repair(self.now, sockets.each(), || {
                self.receive(1, Which::All);
            });
            // Failing (another process holds the registry) does no harm: the next one tries again.
            self.counters.steering_repairs += u64::from(repaired.unwrap_or(false));
        }
    }

    /// Takes a packet that was handed over. True if it says that there is something in memory.
    fn take_handed(&mut self, handed: &Handed<'_>) -> bool {
        self.counters.taken_over += 1;
        let (now, tos, packet) = (self.now, handed.tos, handed.packet);
        let ends = urxe_seal::Path {
            source: handed.source,
            dest: handed.local,
        };
        if handed.is_sealed {
            self.take_sealed(&ends, handed);
            return false;
        }
        if let Some(envelope) = &handed.envelope
            && let Some(keeper) = self.carrier.keeper()
            && let Err(refusal) = keeper.note_opened(&ends, envelope, packet, now)
        {
            self.counters.count_refusal(refusal);
            return false;
        }
        if wake::parse(packet).is_some() {
            return true;
        }
        let path = match handed.envelope {
            // The tag was in the place of an ICRC.
            Some(_) => RxPath::in_memory(handed.source, handed.local, tos),
            None => RxPath::new(handed.source, handed.source_port, handed.local, tos),
        };
        self.capture_handed(&path, handed, packet);
        let handled = self.handle_packet(&path, handed.place, packet);
        if let Handled::OfAnother(Foreign::Message(_)) = handled {
            // It came to the wrong one twice: on QP 1, its listener is gone.
            self.shard.handle_unowned_mad(&path, packet, now);
        }
        false
    }

    /// Takes a packet of a pair that another of this address got: as it came, as only this one has the keys.
    #[cold]
    fn take_sealed(&mut self, ends: &urxe_seal::Path, handed: &Handed<'_>) {
        let (now, counters) = (self.parts.now, &mut self.counters);
        let keeper = self.carrier.keeper();
        let opened = keeper.and_then(|it| it.open_handed(ends, handed.packet, now, counters));
        let Some(opened) = opened else {
            return;
        };
        let path = RxPath::in_memory(handed.source, handed.local, handed.tos);
        self.capture_handed(&path, handed, &opened);
        self.handle_packet(&path, 0, &opened);
    }

    /// A capture has what is handled here, wherever it was received.
    fn capture_handed(&mut self, path: &RxPath, handed: &Handed<'_>, packet: &[u8]) {
        if let Some(tap) = &mut self.tap {
            let from = SocketAddr::new(handed.source, handed.source_port);
            tap.handed_over(from, path, packet);
        }
    }

    /// What is handed over has come a longer way than what lies in the sockets by then: a peer sends "ready to use" of one connection, which
    /// is steered here, and then the request of the next one, which is not. And no sealed message to QP 1 is steered: the end of a
    /// connection may be handed over, behind its last packets.
    pub(in crate::engine) fn receive_what_came_before(&mut self) {
        for _ in 0..RECEIVES_BEFORE_HANDED {
            if !self.receive(1, Which::All) {
                break;
            }
        }
    }

    /// Does what is due; returns true if something was.
    #[inline]
    pub(crate) fn handle_timers(&mut self) -> bool {
        let is_due = self.shard.next_timeout().is_some_and(|due| due <= self.now);
        if is_due {
            let (parts, carrier) = (&mut self.parts, &mut self.carrier);
            let now = parts.now;
            parts.with(|shard, env| {
                shard.handle_timeout_unless(env, |dest, since| carrier.waits_at(dest, since, now));
            });
        }
        if self.cqs.clock.due.is_some_and(|due| due <= self.now) {
            self.cqs.clock.fire();
        }
        self.look_at_ends();
        let parts = &mut self.parts;
        let strict = parts.watching.as_mut().and_then(|it| it.strict.as_mut());
        let any_held = match strict {
            None => false,
            Some(strict) => strict.get_mut().release_due(&mut parts.cqs),
        };
        is_due || any_held
    }

    /// Sends what is ready. Returns false if a socket is full.
    #[inline]
    pub(crate) fn transmit(&mut self, driver: Driver) -> bool {
        // Most polls find it so.
        if self.sent == Sent::All && !self.shard.has_work() {
            return true;
        }
        self.transmit_work(driver)
    }

    #[inline]
    fn transmit_work(&mut self, driver: Driver) -> bool {
        let strict = self.parts.strict();
        let acks = driver.acks(strict.is_none_or(|strict| !strict.borrow().holds_writes()));
        if self.sent == Sent::All && self.shard.holds_all(acks) {
            return true;
        }
        self.transmit_in(acks)
    }

    fn transmit_in(&mut self, acks: AckMode) -> bool {
        // A batch that could not be sent stays: the core must not fill it again.
        if self.sent != Sent::All && self.send() == Sent::Full {
            return false;
        }
        while self.shard.has_work() && self.carrier.has_room() {
            let batch = &mut self.batch;
            let more = self
                .parts
                .with(|shard, env| shard.poll_transmit(env, batch, acks));
            if !self.batch.is_empty() && self.send() == Sent::Full {
                return false;
            }
            if !more {
                break;
            }
        }
        true
    }

    fn send(&mut self) -> Sent {
        let mut cx = Sending {
            now: self.parts.now,
            counters: &mut self.counters,
            tap: self.tap.as_mut(),
            expects_pairs: self.parts.shard.expects_pairs(),
            may_lend: true,
        };
        self.sent = self.carrier.send(&mut self.batch, &mut cx);
        self.sent
    }

    /// A full socket holds packets back.
    #[inline]
    pub(in crate::engine) fn is_full(&self) -> bool {
        self.sent == Sent::Full
    }

    /// A QP is about to go: whatever the carrier keeps leaves.
    pub(in crate::engine) fn settle_carrier(&mut self) {
        if self.carrier.settle(self.now) {
            if self.sent == Sent::All {
                self.sent = Sent::Kept;
            }
            self.transmit(Driver::Visitor);
        }
    }

    /// A QP's peer is the owner of that chunk at that address. True if packets go there through memory.
    pub(in crate::engine) fn prepare(&mut self, remote: IpAddr, chunk: QpnChunk) -> bool {
        self.carrier.prepare(remote, chunk, self.parts.now)
    }

    /// An address handle leads there.
    pub(in crate::engine) fn expect(&mut self, remote: IpAddr) {
        self.carrier.expect(remote, self.parts.now);
    }

    /// Packets that pass sockets are in envelopes.
    pub(in crate::engine) fn is_sealed(&self) -> bool {
        self.carrier.is_sealed()
    }

    /// True if packets to the owner of that chunk at that address leave through memory now.
    pub(in crate::engine) fn has_ring_to(&self, remote: IpAddr, chunk: QpnChunk) -> bool {
        self.carrier.has_ring_to(remote, chunk)
    }

    /// A thread is about to sleep on the sockets. False if there is something for it to do elsewhere.
    pub(in crate::engine) fn doze(&mut self, sleeper: Sleeper) -> bool {
        let is_quiet = self.carrier.doze(sleeper);
        // One that sleeps already relies on this thread.
        self.left_lying = !is_quiet && self.carrier.has_sleeper();
        is_quiet
    }

    /// Takes what lies there while the threads that would be woken for it sleep. No ACK leaves meanwhile, so it ends; but for
    /// datagrams, which are left for the next time.
    pub(in crate::engine) fn receive_what_lies(&mut self) {
        let mut calls = LYING_CALLS;
        while self.left_lying && calls > 0 {
            self.receive(1, Which::All);
            calls -= 1;
        }
    }

    /// It is awake.
    pub(in crate::engine) fn rouse(&mut self, sleeper: Sleeper) {
        self.carrier.rouse(sleeper);
    }

    /// Looks whether neighbours are gone. Returns when to look again.
    pub(in crate::engine) fn carrier_upkeep(&mut self) -> Option<Time> {
        let due = self.carrier.upkeep(self.parts.now);
        while let Some(path) = (self.carrier.keeper()).and_then(|keeper| keeper.poll_refusing()) {
            let ends = (path.source, path.dest);
            self.with(|shard, env| shard.fail_peer(ends, env));
        }
        Time::earliest([due, self.fail_gone()])
    }

    /// Fails requests to owners that have ended, some time after. Returns when there is more to do.
    fn fail_gone(&mut self) -> Option<Time> {
        let now = self.now;
        while let Some(owner) = self.carrier.poll_gone() {
            self.ended.found(owner, now);
        }
        let due = self.ended.take_due(now);
        if !due.is_empty() {
            // What they sent is in rings that were not taken yet, and in the sockets.
            self.receive_handed_over();
            for _ in 0..LYING_CALLS {
                if !self.receive(1, Which::All) {
                    break;
                }
            }
        }
        for owner in due {
            // Perhaps another has the place by now.
            if !self.has_ring_to(owner.0, owner.1) {
                self.with(|shard, env| shard.fail_gone(owner, env));
            }
        }
        self.ended.next()
    }

    /// Hears a multicast group from now on.
    pub(in crate::engine) fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        self.carrier.join(group)
    }

    /// Leaves the groups that no QP is attached to any more.
    pub(in crate::engine) fn leave_groups(&mut self) {
        let shard = &self.parts.shard;
        self.carrier.leave(&|group| shard.has_members(group));
    }

    /// The faults that packets meet on purpose.
    pub(in crate::engine) fn faults(&self) -> Option<&FaultyPath> {
        self.carrier.faults()
    }

    /// Everything that can be done now: what is left over, packets, timers, sending.
    /// Returns true if there were packets.
    pub(crate) fn turn(&mut self, driver: Driver, which: Which) -> bool {
        self.start_turn();
        let any = self.receive(RECEIVES_PER_TURN, which);
        self.handle_timers();
        self.transmit(driver);
        any
    }

    /// A thread that polls finds nothing to do: not even the clock need be read.
    #[inline]
    pub(in crate::engine) fn is_idle(&mut self) -> bool {
        self.sent == Sent::All
            && !self.shard.has_work()
            && self.parts.strict().is_none()
            && self.cqs.clock.due.is_none()
            && self.cm.ends.due().is_none()
            && self.carrier.is_quiet()
    }

    /// True if strict mode or a network keeps account of when things happen.
    pub(in crate::engine) fn is_watched(&self) -> bool {
        self.parts.strict().is_some() || self.clock.is_of_network()
    }

    /// After a post that started nothing: no thread has to be told, as what there was to do before (`had_work`)
    /// was told before.
    #[inline]
    pub(in crate::engine) fn is_quiet(&self, had_work: bool) -> bool {
        (had_work || !self.shard.has_work())
            && !self.shard.has_events()
            && self.cqs.clock.due.is_none()
            && !self.is_watched()
    }

    /// When the engine must be driven again at the latest: for a timer, or something held back.
    pub(crate) fn due(&self) -> Option<Time> {
        let held = self.parts.strict().and_then(|s| s.borrow().due());
        let late = match self.sent {
            Sent::All => None,
            Sent::Kept | Sent::Full => self.carrier.due(),
        };
        let timer = [self.cqs.clock.due, held, late, self.cm.ends.due()]
            .into_iter()
            .fold(self.shard.next_timeout(), sooner);
        if self.shard.has_work() || self.is_full() || self.left_lying {
            let soon = self.now + DEFER_NS;
            return Some(timer.map_or(soon, |timer| timer.min(soon)));
        }
        timer
    }

    /// The number of the QP at a place, if there is one.
    pub(in crate::engine) fn qpn(&self, index: QpIndex) -> Option<Qpn> {
        Some(self.inlets.qps.get(index.0 as usize)?.as_ref()?.shared.qpn)
    }

    /// Hands asynchronous events over to the program.
    pub(super) fn publish_events(&mut self) {
        self.deliver_cm_events();
        self.note_farewells();
        while let Some(event) = self.shard.poll_event() {
            let event = match event {
                CoreEvent::CqErr(cq) => {
                    self.with(|shard, env| shard.fail_cq(cq, env));
                    // Of several shards the first that met it tells.
                    let is_news = self.cqs.at(cq).is_none_or(|cq| cq.tell_overrun());
                    is_news.then_some(AsyncEvent::CqErr(cq))
                }
                CoreEvent::QpFatal(index) => self.qpn(index).map(AsyncEvent::QpFatal),
                CoreEvent::QpReqErr(index) => self.qpn(index).map(AsyncEvent::QpReqErr),
                CoreEvent::QpAccessErr(index) => self.qpn(index).map(AsyncEvent::QpAccessErr),
                CoreEvent::CommEst(index) => self.qpn(index).map(AsyncEvent::CommEst),
                CoreEvent::SqDrained(index) => self.qpn(index).map(AsyncEvent::SqDrained),
                CoreEvent::QpLastWqeReached(index) => {
                    self.qpn(index).map(AsyncEvent::QpLastWqeReached)
                }
                CoreEvent::SrqLimitReached(id) => {
                    let is_live = matches!(self.inlets.srqs.get(id.0 as usize), Some(Some(_)));
                    is_live.then_some(AsyncEvent::SrqLimitReached(id.of_shard(self.number)))
                }
                // A kind that this version of the API does not know.
                _ => None,
            };
            // Drop events of QPs that were destroyed meanwhile.
            if let Some(event) = event {
                self.events.push(event);
            }
        }
    }
}

fn sooner(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}
