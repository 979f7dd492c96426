//! What the engine's lock protects: the core's shard, and what it needs to run.
//! Passive: whoever holds the lock drives it.

use core::cell::RefCell;
use core::net::SocketAddr;
use std::sync::Arc;

use urxe_core::cm::destination;
use urxe_core::event::AsyncEvent as CoreEvent;
use urxe_core::mr::MrTable;
use urxe_core::table::QpIndex;
use urxe_core::transmit::TxBatch;
use urxe_core::{AckMode, Env, Handled, RxPath, Shard, Time};
use urxe_udp::RecvBatch;
use urxe_wire::Qpn;

use super::channel::Channel;
use super::clock::Clock;
use super::cm::CmTable;
use super::counters::EngineCounters;
use super::cq_table::CqTable;
use super::doorbell::Combined;
use super::pairs::{Joining, in_order};
use super::post::QpShared;
use super::progress::ProgressShared;
use super::sockets::{ListensAt, Port, Sockets, Which};
use super::srq::SrqShared;
use super::strict::{handle_strictly, strict_acks};
use super::tap::Tap;
use super::tx::TxPath;
use crate::async_event::AsyncEvent;
use crate::faults::FaultyPath;
use crate::mem::UserMemory;
use crate::network::Network;
use crate::share::{Handed, Membership, Shared, is_probe};
use crate::strict::Strict;

/// Receive calls that one turn makes on one socket, at most: 8 datagrams each, which
/// may be trains of 64 KiB. Then timers and sending have their turn.
const RECEIVES_PER_TURN: u32 = 4;

/// How long an ACK may be held back in the hope of a reply to travel with, and how
/// long packets wait for a full socket. A program that answers does so within
/// microseconds; peers wait for tens of milliseconds at least. It is the tick of the
/// progress thread while the program drives by itself, so it costs no wake-up more.
pub(crate) const DEFER_NS: u64 = 1_000_000;

/// A QP as the engine keeps it.
#[derive(Debug)]
pub(crate) struct QpSlot {
    pub(crate) shared: Arc<QpShared>,
    /// The addresses whose sockets it keeps active.
    pub(crate) listens_at: ListensAt,
}

#[derive(Debug)]
pub(crate) struct ShardState {
    pub(crate) shard: Shard,
    pub(crate) mrs: MrTable,
    pub(crate) cqs: CqTable,
    /// By place in the shard.
    pub(crate) qps: Vec<Option<QpSlot>>,
    /// By place in the shard.
    pub(crate) srqs: Vec<Option<Arc<SrqShared>>>,
    pub(crate) tx: TxPath,
    pub(crate) rx: RecvBatch,
    pub(crate) counters: EngineCounters,
    pub(crate) tap: Option<Tap>,
    pub(crate) sockets: Arc<Sockets>,
    pub(crate) clock: Clock,
    /// When the present holder of the lock began.
    pub(crate) now: Time,
    pub(crate) progress: Arc<ProgressShared>,
    pub(crate) events: Arc<Channel<AsyncEvent>>,
    /// Others who have the same addresses.
    pub(crate) membership: Option<Arc<Membership>>,
    /// The holder of the lock changed nothing, so there is nothing to tell anyone.
    pub(crate) nothing_new: bool,
    /// The path of the last datagram, as its sender is likely to send the next.
    last_path: Option<(SocketAddr, RxPath)>,
    /// The sockets of the groups that QPs are attached to.
    pub(crate) groups: Vec<Port>,
    pub(crate) strict: Option<Box<RefCell<Strict>>>,
    /// Faults on the way out, on purpose.
    pub(crate) faults: Option<Box<FaultyPath>>,
    /// Where packets go, if not to sockets.
    pub(crate) network: Option<Arc<dyn Network>>,
    /// Whom the connection manager's events are for.
    pub(crate) cm: CmTable,
    joining: Joining,
    /// Packets go another way than straight to the sockets: `faults` or `network`.
    is_detoured: bool,
}

/// Calls a method of the shard with everything it needs. (A method of `ShardState`
/// could not lend out the shard and its surroundings at once.)
macro_rules! with_env {
    ($state:expr, |$shard:ident, $env:ident| $call:expr) => {{
        let state = &mut *$state;
        $crate::engine::shard_state::with_parts!(state, |$shard, $env| $call)
    }};
}

/// The same, leaving the other fields of `$state` to the caller. With strict mode on the
/// core works on other memory and queues: it is compiled for both.
macro_rules! with_parts {
    ($state:ident, |$shard:ident, $env:ident| $call:expr) => {{
        let $shard = &mut $state.shard;
        match &$state.strict {
            None => {
                let $env = &mut urxe_core::Env {
                    now: $state.now,
                    mrs: &mut $state.mrs,
                    memory: &$crate::mem::UserMemory,
                    cqs: &mut $state.cqs,
                };
                $call
            }
            Some(strict) => {
                let $env = &mut urxe_core::Env {
                    now: $state.now,
                    mrs: &mut $state.mrs,
                    memory: &$crate::strict::StrictMemory(strict),
                    cqs: &mut $crate::strict::StrictCqs {
                        strict,
                        cqs: &mut $state.cqs,
                    },
                };
                $call
            }
        }
    }};
}
pub(crate) use {with_env, with_parts};

impl ShardState {
    #[allow(
        clippy::too_many_arguments,
        reason = "a constructor of many parts, called once"
    )]
    pub(crate) fn new(
        shard: Shard,
        mrs: MrTable,
        tx: TxPath,
        tap: Option<Tap>,
        sockets: Arc<Sockets>,
        clock: Clock,
        progress: Arc<ProgressShared>,
        events: Arc<Channel<AsyncEvent>>,
        strict: Option<Box<RefCell<Strict>>>,
        membership: Option<Arc<Membership>>,
        faults: Option<Box<FaultyPath>>,
        network: Option<Arc<dyn Network>>,
    ) -> ShardState {
        // Without sockets nothing is received into it.
        let slots = if network.is_some() {
            1
        } else {
            RecvBatch::DEFAULT_SLOTS
        };
        ShardState {
            shard,
            mrs,
            cqs: CqTable::default(),
            qps: Vec::new(),
            srqs: Vec::new(),
            tx,
            rx: RecvBatch::new(slots),
            counters: EngineCounters::default(),
            tap,
            sockets,
            clock,
            now: Time::ZERO,
            progress,
            events,
            membership,
            nothing_new: false,
            last_path: None,
            groups: Vec::new(),
            strict,
            cm: CmTable::default(),
            joining: Joining::default(),
            is_detoured: faults.is_some() || network.is_some(),
            faults,
            network,
        }
    }

    /// Reads the clock: at the beginning of every turn.
    #[inline]
    pub(crate) fn start_turn(&mut self) {
        self.now = self.clock.now();
        self.cqs.set_now(self.now);
        if let Some(strict) = &mut self.strict {
            strict.get_mut().set_now(self.now);
        }
    }

    /// Fetches and handles packets; returns true if there were any.
    #[inline]
    pub(crate) fn receive(&mut self, calls_max: u32, which: Which) -> bool {
        let ShardState {
            shard,
            mrs,
            cqs,
            rx,
            tap,
            last_path,
            counters,
            sockets,
            groups,
            strict,
            membership,
            progress,
            ..
        } = self;
        let mut env = Env {
            now: self.now,
            mrs,
            memory: &UserMemory,
            cqs,
        };
        let mut any = false;
        for port in sockets.which(which).chain(groups.iter()) {
            for _ in 0..calls_max {
                match port.socket.recv(rx) {
                    Ok(0) => {
                        counters.rx_empty += 1;
                        break;
                    }
                    Ok(count) => {
                        counters.rx_calls += 1;
                        any = true;
                        prefetch(shard, rx);
                        let trains = Trains {
                            port,
                            rx,
                            last_path,
                            tap,
                            counters,
                            others: membership.as_deref(),
                            progress,
                            now: env.now,
                        };
                        let unowned = if let Some(strict) = strict {
                            trains.walk(|path, place, packet| {
                                handle_strictly(strict, shard, &mut env, path, place, packet)
                            })
                        } else {
                            trains.walk(|path, place, packet| {
                                shard.handle_packet(path, place, packet, &mut env)
                            })
                        };
                        unowned.settle(shard, env.now);
                        // A batch that is not full was all there was.
                        if count < rx.slots() {
                            break;
                        }
                    }
                    Err(_) => {
                        counters.rx_errors += 1;
                        break;
                    }
                }
            }
        }
        any
    }

    /// Takes the packets that others of this address got in our place, and has the
    /// kernel steer right from now on.
    #[cold]
    pub(crate) fn receive_handed_over(&mut self) {
        let Some(membership) = self.membership.clone() else {
            return;
        };
        let count = membership.drain_inbox(|handed| {
            let Handed {
                source,
                source_port,
                local,
                place,
                tos,
                packet,
            } = handed;
            let path = RxPath::new(source, source_port, local, tos);
            let handled = with_env!(self, |shard, env| shard
                .handle_packet(&path, place, packet, env));
            if handled == Handled::OfAnother {
                // It came to the wrong one twice: of QP 1, somebody listens no longer.
                self.shard.handle_unowned_mad(&path, packet, self.now);
            }
        });
        self.counters.taken_over += count as u64;
        if membership.needs_repair(self.now) {
            let sockets = self.sockets.clone();
            let repaired = membership.repair(self.now, sockets.each(), || {
                self.receive(1, Which::All);
            });
            // Failing (somebody holds the registry) is no harm: the next one tries again.
            self.counters.steering_repairs += u64::from(repaired.unwrap_or(false));
        }
    }

    /// Does what is due; returns true if something was.
    #[inline]
    pub(crate) fn handle_timers(&mut self) -> bool {
        let is_due = self.shard.next_timeout().is_some_and(|due| due <= self.now);
        if is_due {
            with_env!(self, |shard, env| shard.handle_timeout(env));
        }
        if self.cqs.due().is_some_and(|due| due <= self.now) {
            self.cqs.raise_due();
        }
        let any_held = match &mut self.strict {
            None => false,
            Some(strict) => strict.get_mut().release_due(&mut self.cqs),
        };
        is_due || any_held
    }

    /// Sends what is ready. Returns false if a socket is full.
    #[inline]
    pub(crate) fn transmit(&mut self, acks: AckMode) -> bool {
        let acks = self
            .strict
            .as_deref()
            .map_or(acks, |s| strict_acks(s, acks));
        if self.is_detoured {
            return self.transmit_detoured(acks);
        }
        let sockets = &*self.sockets;
        // A batch that could not be sent stays: the core must not fill it again.
        if self.tx.has_backlog() && !self.tx.send(sockets, &mut self.counters, None) {
            return false;
        }
        while self.shard.has_work() {
            let batch: &mut TxBatch = &mut self.tx.batch;
            let more = with_parts!(self, |shard, env| shard.poll_transmit(env, batch, acks));
            self.joining.look(&self.shard, sockets);
            if !self.tx.send(sockets, &mut self.counters, self.tap.as_mut()) {
                return false;
            }
            if !more {
                break;
            }
        }
        true
    }

    /// Everything that can be done now: what is left over, packets, timers, sending.
    /// Returns true if there were packets.
    pub(crate) fn turn(&mut self, acks: AckMode) -> bool {
        self.start_turn();
        let any = self.receive(RECEIVES_PER_TURN, Which::All);
        self.handle_timers();
        self.transmit(acks);
        any
    }

    /// Somebody keeps account of when things happen: strict mode, or a network.
    pub(super) fn is_watched(&self) -> bool {
        self.strict.is_some() || self.network.is_some()
    }

    /// After a post that started nothing: nobody has to be told of anything, as what there was to do before (`had_work`)
    /// was told before.
    #[inline]
    pub(super) fn is_quiet(&self, had_work: bool) -> bool {
        (had_work || !self.shard.has_work())
            && !self.shard.has_events()
            && self.cqs.due().is_none()
            && !self.is_watched()
    }

    /// When somebody must come back at the latest: a timer, or something held back.
    pub(crate) fn due(&self) -> Option<Time> {
        let held = self.strict.as_ref().and_then(|s| s.borrow().due());
        let late = self.faults.as_ref().and_then(|path| path.due());
        let timers = [self.shard.next_timeout(), self.cqs.due(), held, late];
        let timer = timers.into_iter().flatten().min();
        if self.shard.has_work() || self.tx.has_backlog() {
            let soon = self.now + DEFER_NS;
            return Some(timer.map_or(soon, |timer| timer.min(soon)));
        }
        timer
    }

    /// The number of the QP at a place, if there is one.
    pub(super) fn qpn(&self, index: QpIndex) -> Option<Qpn> {
        Some(self.qps.get(index.0 as usize)?.as_ref()?.shared.qpn)
    }

    /// Hands asynchronous events over to the program.
    fn publish_events(&mut self) {
        self.deliver_cm_events();
        while let Some(event) = self.shard.poll_event() {
            let event = match event {
                CoreEvent::CqErr(cq) => {
                    with_env!(self, |shard, env| shard.fail_cq(cq, env));
                    Some(AsyncEvent::CqErr(cq))
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
                    let is_live = matches!(self.srqs.get(id.0 as usize), Some(Some(_)));
                    is_live.then_some(AsyncEvent::SrqLimitReached(id))
                }
                // A kind that this version of the API does not know.
                _ => None,
            };
            // Of a QP that is gone by now nobody wants to hear.
            if let Some(event) = event {
                self.events.push(event);
            }
        }
    }
}

/// Fetches the QPs that packets came for into the cache all at once, not each when its packet's turn comes, if there are
/// too many QPs for it.
#[inline]
fn prefetch(shard: &Shard, rx: &RecvBatch) {
    if !shard.has_many() {
        return;
    }
    for datagram in rx.iter() {
        for (_, packet) in datagram.segments() {
            shard.prefetch(packet);
        }
    }
}

/// What a receive call brought.
struct Trains<'a> {
    port: &'a Port,
    rx: &'a RecvBatch,
    last_path: &'a mut Option<(SocketAddr, RxPath)>,
    tap: &'a mut Option<Tap>,
    counters: &'a mut EngineCounters,
    others: Option<&'a Membership>,
    progress: &'a ProgressShared,
    now: Time,
}

impl Trains<'_> {
    /// Hands out each packet, with the place that it has in its train; what is another's
    /// goes to him. Returns which packets were nobody's.
    #[inline(always)]
    fn walk(self, mut each: impl FnMut(&RxPath, u16, &[u8]) -> Handled) -> Unowned {
        let Trains {
            port,
            rx,
            last_path,
            tap,
            counters,
            others,
            progress,
            now,
        } = self;
        let mut unowned = Unowned::default();
        for datagram in rx.iter() {
            if datagram.truncated {
                counters.rx_truncated += 1;
                continue;
            }
            let same = last_path.as_ref().is_some_and(|(source, path)| {
                *source == datagram.source && path.local == port.addr && path.tos == datagram.tos
            });
            if !same {
                let (ip, udp_port) = (datagram.source.ip(), datagram.source.port());
                let path = RxPath::new(ip, udp_port, port.addr, datagram.tos);
                *last_path = Some((datagram.source, path));
            }
            let (_, path) = last_path.as_ref().expect("just set");
            for (place, packet) in in_order(&datagram) {
                if each(path, place as u16, packet) == Handled::OfAnother {
                    let handed = Handed {
                        source: datagram.source.ip(),
                        source_port: datagram.source.port(),
                        local: port.addr,
                        place: place as u16,
                        tos: datagram.tos,
                        packet,
                    };
                    let shared = pass_on(others, &handed, now, counters);
                    if shared == Shared::Waits {
                        progress.kick();
                    }
                    if shared == Shared::NoOwner {
                        unowned.add(&handed);
                    }
                }
            }
            if let Some(tap) = tap
                && !(others.is_some() && is_probe(datagram.data))
            {
                tap.received(path, &datagram);
            }
        }
        unowned
    }
}

/// Packets that are nobody's.
#[derive(Default)]
struct Unowned {
    count: u64,
    /// Those to QP 1: who asks gets an answer.
    mads: Vec<(RxPath, Box<[u8]>)>,
}

impl Unowned {
    /// They are counted; who asks QP 1 is told that nobody is there.
    #[inline]
    fn settle(self, shard: &mut Shard, now: Time) {
        for _ in 0..self.count {
            shard.count_unowned();
        }
        for (path, mad) in &self.mads {
            shard.handle_unowned_mad(path, mad, now);
        }
    }

    #[cold]
    fn add(&mut self, handed: &Handed<'_>) {
        if destination(handed.packet).is_none() {
            self.count += 1;
            return;
        }
        let Handed {
            source,
            source_port,
            local,
            tos,
            ..
        } = *handed;
        let path = RxPath::new(source, source_port, local, tos);
        self.mads.push((path, handed.packet.into()));
    }
}

/// A packet that is not for this context goes to whoever it is for.
#[cold]
fn pass_on(
    others: Option<&Membership>,
    handed: &Handed<'_>,
    now: Time,
    counters: &mut EngineCounters,
) -> Shared {
    let shared = others.map_or(Shared::NoOwner, |others| others.take_foreign(handed, now));
    match shared {
        Shared::HandedOver => counters.handed_over += 1,
        Shared::Lost => counters.hand_over_lost += 1,
        Shared::Waits | Shared::NoOwner | Shared::Probe => {}
    }
    shared
}

impl Combined for ShardState {
    fn serve(&mut self, index: u32) {
        if self.serve_srq(index) {
            return;
        }
        if let Some(Some(slot)) = self.qps.get(index as usize) {
            let qp = slot.shared.clone();
            qp.serve(self);
        }
    }

    fn served(&mut self) {
        self.nothing_new = false;
        self.transmit(AckMode::Defer);
    }

    #[inline]
    fn leave(&mut self, hand_over: bool) {
        if std::thread::panicking() {
            // The last holder of the lock: it is poisoned from here on.
            self.events.push(AsyncEvent::DeviceFatal);
        }
        if std::mem::take(&mut self.nothing_new) && !hand_over {
            return;
        }
        self.publish_events();
        if hand_over {
            self.progress.kick_to_serve();
        } else if let Some(due) = self.due() {
            self.progress.wake_by(due);
        }
    }
}
