//! The shard: all protocol state that one thread drives at a time.

use core::cmp::Reverse;
use core::num::NonZeroU16;
use core::ops::Range;
use std::collections::{BinaryHeap, VecDeque};

use urxe_wire::{Opcode, Qpn, Service};

use crate::cm::{Destination, Management};
use crate::config::{QpLimits, Recovery, ShardConfig};
use crate::context::{Common, Cx, Env};
use crate::cq::{CqId, CqSink};
use crate::create_error::CreateQpError;
use crate::destinations::Destinations;
use crate::detail::ErrorDetail;
use crate::error::DropReason;
use crate::memory::Memory;
use crate::multicast::Groups;
use crate::qp::attr::{AttrMask, QpAttr};
use crate::qp::recovery::{Peer, Room};
use crate::qp::report::QpReport;
use crate::qp::state::{ModifyError, QpState, QpType};
use crate::qp::{Qp, QpInit, RecvSource, SourceIdents};
use crate::qpn_table::{CHUNK_BITS, QpnChunk, QpnTable};
use crate::srq::SrqTable;
use crate::stats::Stats;
use crate::table::QpIndex;
use crate::time::Time;
use crate::timer::TimerWheel;
use crate::transmit::TxDest;
use crate::turns::Turns;
use crate::work::{PostError, RecvQueue, RecvWr, SendQueue, SendRules, SendWr};

/// The outcome of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handled {
    /// It was for a QP of this shard, or for none: nothing is left to do.
    Here,
    /// If another owner shares the address, the packet is for that owner. Nothing was counted.
    OfAnother(Foreign),
}

/// What tells the owner of a packet that is for another sharer of the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// It is for a QP of this chunk, which was not granted.
    Qp(QpnChunk),
    /// It is a message to QP 1, about something of another owner.
    Message(Destination),
    /// It is a [`PROBE`](crate::qpn_table::PROBE).
    Probe,
}

/// Queue pairs, their timers, and their turns. See the crate's documentation
/// for the order of calls.
#[derive(Debug)]
pub struct Shard {
    pub(crate) qps: QpnTable<Box<Qp>>,
    pub(crate) turns: Turns,
    pub(crate) destinations: Destinations,
    pub(crate) timers: TimerWheel,
    pub(crate) common: Common,
    pub(crate) groups: Groups,
    /// Nothing is ready but ACKs that are held back, the first until this time.
    pub(crate) held: Option<Time>,
    /// QPs that congestion control holds back, the next one first.
    pub(crate) paced: BinaryHeap<Reverse<(Time, QpIndex)>>,
    /// QPs that owe their peer a congestion notification.
    pub(crate) notifies: VecDeque<QpIndex>,
    /// QP 1.
    pub(crate) management: Management,
    /// The QP that packets were for which are not settled yet.
    pub(crate) unsettled: Option<QpIndex>,
}

impl Shard {
    /// An empty shard.
    pub fn new(config: ShardConfig) -> Shard {
        Shard {
            qps: QpnTable::new(config.secret),
            turns: Turns::default(),
            destinations: Destinations::default(),
            timers: TimerWheel::default(),
            common: Common {
                stats: Stats::default(),
                events: VecDeque::new(),
                srqs: SrqTable::new(config.secret),
                room: Room::new(config.keep_bytes),
                config,
                failed_cqs: Vec::new(),
                sources: SourceIdents::default(),
                direct_ident: 0,
                has_cm: false,
                expects_pairs: false,
                waits_until: Time::ZERO,
            },
            groups: Groups::default(),
            held: None,
            paced: BinaryHeap::new(),
            notifies: VecDeque::new(),
            management: Management::default(),
            unsettled: None,
        }
    }

    /// Takes a chunk of QPNs, for a shard that shares the space with others
    /// ([`ShardConfig::shares_qpns`]). One that does not takes chunks by itself.
    pub fn grant_qpns(&mut self, chunk: QpnChunk) {
        self.qps.grant(chunk);
    }

    /// Creates a QP in RESET.
    ///
    /// # Errors
    /// [`CreateQpError`] if the service or a capability is beyond what there is.
    pub fn create_qp(&mut self, init: &QpInit) -> Result<(QpIndex, Qpn), CreateQpError> {
        self.create_numbered(init, None)
    }

    /// Sets QPNs aside that only [`Shard::create_qp_as`] gives out: for a shard that does not share the space with others. Returns them.
    pub fn set_qpns_aside(&mut self) -> Range<u32> {
        let Range { start, end } = self.qps.set_aside();
        u32::from(start) << CHUNK_BITS..u32::from(end) << CHUNK_BITS
    }

    /// Creates a QP in RESET, with a number that was set aside: a peer may know it before there is the QP.
    ///
    /// # Errors
    /// [`CreateQpError`], as of [`Shard::create_qp`]; or another QP has the number.
    pub fn create_qp_as(&mut self, init: &QpInit, qpn: Qpn) -> Result<QpIndex, CreateQpError> {
        self.create_numbered(init, Some(qpn))
            .map(|(index, _)| index)
    }

    fn create_numbered(
        &mut self,
        init: &QpInit,
        number: Option<Qpn>,
    ) -> Result<(QpIndex, Qpn), CreateQpError> {
        let cap = &init.cap;
        for (name, value, max) in [
            ("max_send_wr", cap.max_send_wr, QpLimits::WR_MAX),
            ("max_recv_wr", cap.max_recv_wr, QpLimits::WR_MAX),
            ("max_send_sge", cap.max_send_sge, QpLimits::SGE_MAX),
            ("max_recv_sge", cap.max_recv_sge, QpLimits::SGE_MAX),
            ("max_inline_data", cap.max_inline_data, QpLimits::INLINE_MAX),
        ] {
            if value > max {
                return Err(CreateQpError::Cap { name, value, max });
            }
        }
        let recvs = RecvSource::of(init, &self.common.srqs)?;
        let rules = self.rules(init);
        let make = |index, qpn| Box::new(Qp::new(index, qpn, init, recvs, rules));
        let is_shared = self.common.config.shares_qpns;
        let inserted = match number {
            Some(qpn) => self.qps.insert_as(qpn, make).map(|index| (index, qpn)),
            None if self.qps.is_exhausted() && (is_shared || !self.qps.grant_any()) => {
                return Err(CreateQpError::NoQpn);
            }
            None => self.qps.insert_with(make),
        };
        let full = CreateQpError::Full(QpnTable::<Box<Qp>>::LEN_MAX);
        let (index, qpn) = inserted.ok_or(full)?;
        if let Some(srq) = init.srq {
            self.common.srqs.attach(srq, true);
        }
        self.begin_congestion_control(index);
        self.timers.reserve(index);
        // From here on its lists have a place for every QP.
        self.turns.reserve(self.qps.len());
        Ok((index, qpn))
    }

    /// Which requests the send queue of such a QP takes.
    pub fn rules(&self, init: &QpInit) -> SendRules {
        SendRules {
            qp_type: init.qp_type,
            pd: init.pd,
            datagram_max: self.common.config.mtu_max.bytes(),
            has_tags: init.srq.is_some_and(|srq| self.common.srqs.has_tags(srq)),
        }
    }

    /// The peer of a QP is (or is not) one that gets trains whole and takes the ACK of a pair first
    /// ([`ends_pair`](crate::ends_pair)): from now on a lone answer and the ACK before it leave as one train. For RC.
    pub fn set_takes_pairs(&mut self, index: QpIndex, takes_pairs: bool) {
        if let Some(qp) = self.qps.at_mut(index) {
            qp.link.takes_pairs = takes_pairs && qp.init.qp_type == QpType::Rc;
        }
    }

    /// The peer of a connection says which packets it has, and understands it of this side: from now on only what is
    /// missing is sent again. Both sides must have said so to each other; nothing changes unless
    /// [`ShardConfig::recovery`] is [`Recovery::Selective`].
    pub fn set_selective_peer(&mut self, index: QpIndex) {
        if self.may_be_selective(index)
            && let Some(qp) = self.qps.at_mut(index)
        {
            qp.link.peer = Peer::Selective;
        }
    }

    /// The peer of such a QP can be told that this side says which packets are here.
    pub fn may_be_selective(&self, index: QpIndex) -> bool {
        let qp = self.qps.at(index);
        self.common.config.recovery == Recovery::Selective
            && qp.is_some_and(|qp| !qp.is_unreliable())
    }

    /// Says that the peer of a connection is on this host, and which port its lone packets may come from, by a socket that counts Identifications up from
    /// anywhere. Nothing damages packets on the way through the kernel, and no stranger sends from a port that the peer has: so
    /// any Identification is believed of what comes from there, and nothing is learnt from it. For RC.
    pub fn set_near(&mut self, index: QpIndex, port: Option<NonZeroU16>) {
        if let Some(qp) = self.qps.at_mut(index) {
            qp.link.dest.near_port = port.filter(|_| qp.init.qp_type == QpType::Rc);
        }
    }

    /// Says whether a QP's peer is on this host and takes packets through memory, without an ICRC.
    pub fn set_in_memory(&mut self, index: QpIndex, in_memory: bool) {
        if let Some(qp) = self.qps.at_mut(index) {
            qp.link.dest.in_memory = in_memory;
            qp.link.seed = qp.link.dest.usual_seed();
        }
    }

    /// True from when a message leaves, or is about to, that may be acknowledged by the end of a pair: before that a driver need
    /// not see to it that trains arrive whole.
    #[inline]
    pub fn expects_pairs(&self) -> bool {
        self.common.expects_pairs
    }

    /// The program waits for events. For a while all messages ask for ACKs, and those that do not are acknowledged with their answers:
    /// a thread that sleeps would have to be woken for an ACK that leaves by itself.
    #[inline]
    pub fn note_waiting(&mut self, now: Time) {
        /// Longer than a round trip of two threads that sleep.
        const A_WHILE_NS: u64 = 1_000_000;
        self.common.waits_until = now + A_WHILE_NS;
    }

    /// Has a QP that is about to go owe the ACK of its last message again, if packets of its connection were lost before: a peer that
    /// misses it could not ask any more. Returns false if there is nothing to be said again. For callers that send each time,
    /// [`LAST_ACK_COPIES`](crate::LAST_ACK_COPIES) times.
    pub fn owe_last_ack(&mut self, index: QpIndex) -> bool {
        let owes = self.qps.at_mut(index).is_some_and(|qp| qp.owe_last_ack());
        if owes {
            self.settle(index);
        }
        owes
    }

    /// Has a QP that is about to go owe an ACK of messages that did not ask for one, as nothing can be asked of it any more.
    pub fn owe_unasked(&mut self, index: QpIndex) {
        if let Some(qp) = self.qps.at_mut(index) {
            qp.resp.ack.owe_unasked();
            self.settle(index);
        }
    }

    /// Destroys a QP. What was outstanding makes no completions.
    ///
    /// Returns false if there is no such QP.
    pub fn destroy_qp(&mut self, index: QpIndex) -> bool {
        self.timers.cancel(index);
        let removed = if self.cm_rests(index) {
            self.qps.remove_resting(index)
        } else {
            self.qps.remove(index)
        };
        match removed {
            Some(mut qp) => {
                qp.resp.forget_kept(&mut self.common);
                qp.resp.forget_tagged(&mut self.common);
                qp.req.end_selective(&mut self.common);
                self.destinations
                    .leave(index, &mut qp.way, &self.common.config);
                if let Some(srq) = qp.init.srq {
                    self.common.srqs.attach(srq, false);
                }
                if qp.service == Service::Ud {
                    self.groups.forget(index);
                }
                self.turns.forget(index, &qp.share);
                true
            }
            None => false,
        }
    }

    /// Changes attributes and state of a QP.
    ///
    /// # Errors
    /// [`ModifyError`], and nothing has changed.
    pub fn modify_qp<M: Memory, C: CqSink>(
        &mut self,
        index: QpIndex,
        attr: &QpAttr,
        mask: AttrMask,
        env: &mut Env<'_, M, C>,
    ) -> Result<(), ModifyError> {
        let qp = self.qps.at_mut(index).ok_or(ModifyError::NoQp)?;
        let result = qp.modify(attr, mask, &mut Cx::new(env, &mut self.common));
        qp.find_way(&mut self.destinations, &self.common.config);
        self.settle(index);
        result
    }

    /// The attributes of a QP.
    pub fn query_qp(&self, index: QpIndex) -> Option<(QpAttr, QpInit)> {
        let qp = self.qps.at(index)?;
        let mut attr = qp.attr;
        (attr.qp_state, attr.cur_qp_state) = (qp.state(), qp.state());
        Some((attr, qp.init))
    }

    /// A QP as reports show it.
    pub fn qp_report(&self, index: QpIndex) -> Option<QpReport<'_>> {
        Some(self.qps.at(index)?.report())
    }

    /// Why a QP failed last; `None` if it did not since its last reset.
    pub fn last_error(&self, index: QpIndex) -> Option<&ErrorDetail> {
        self.qps.at(index)?.last_error.as_deref()
    }

    /// Appends to the send queue. [`Shard::poll_transmit`] sends.
    ///
    /// # Errors
    /// [`PostError`]; the queue is unchanged.
    #[inline]
    pub fn post_send<M: Memory, C: CqSink>(
        &mut self,
        index: QpIndex,
        wr: &SendWr<'_>,
        env: &mut Env<'_, M, C>,
    ) -> Result<(), PostError> {
        let qp = self.qps.at_mut(index).ok_or(PostError::NoQp)?;
        let waits = qp.is_backlogged();
        let result = qp.post_send(wr, &mut Cx::new(env, &mut self.common));
        if qp.share.is_listed() {
            // It has a turn, after which all is settled: so a list of requests is settled once.
            self.held = None;
        } else if waits {
            // What is before it waits for something else than a post.
        } else if qp.has_data() {
            self.held = None;
            self.destinations.begin(&mut qp.way, &self.common.config);
            self.turns.add(index, &mut qp.share);
        } else {
            self.settle(index);
        }
        result
    }

    /// Appends to the receive queue.
    ///
    /// # Errors
    /// [`PostError`]; the queue is unchanged.
    #[inline]
    pub fn post_recv<M: Memory, C: CqSink>(
        &mut self,
        index: QpIndex,
        wr: &RecvWr<'_>,
        env: &mut Env<'_, M, C>,
    ) -> Result<(), PostError> {
        let qp = self.qps.at_mut(index).ok_or(PostError::NoQp)?;
        let result = qp.post_recv(wr, &mut Cx::new(env, &mut self.common));
        let flushes = matches!(qp.state(), QpState::Sqe | QpState::Err);
        if flushes {
            self.settle(index);
        } else if qp.owes_answer() {
            // A receive lets nothing leave but news of credits.
            self.held = None;
            let more = qp.owes_more();
            self.turns.add_owing(index, &mut qp.share, more);
        }
        result
    }

    /// Moves posts that waited elsewhere into the send queue, as many as fit.
    pub fn drain_send<M: Memory, C: CqSink>(
        &mut self,
        index: QpIndex,
        staged: &mut SendQueue,
        env: &mut Env<'_, M, C>,
    ) {
        let Some(qp) = self.qps.at_mut(index) else {
            return staged.clear();
        };
        qp.drain_send(staged, &mut Cx::new(env, &mut self.common));
        self.settle(index);
    }

    /// Moves posts that waited elsewhere into the receive queue, as many as fit.
    pub fn drain_recv<M: Memory, C: CqSink>(
        &mut self,
        index: QpIndex,
        staged: &mut RecvQueue,
        env: &mut Env<'_, M, C>,
    ) {
        let Some(qp) = self.qps.at_mut(index) else {
            return staged.clear();
        };
        qp.drain_recv(staged, &mut Cx::new(env, &mut self.common));
        self.settle(index);
    }

    /// Requests in a QP's send queue that are not complete.
    #[inline]
    pub fn sq_len(&self, index: QpIndex) -> u32 {
        self.qps.at(index).map_or(0, |qp| qp.req.sq.posted())
    }

    /// Receives in a QP's receive queue.
    #[inline]
    pub fn rq_len(&self, index: QpIndex) -> u32 {
        self.qps.at(index).map_or(0, |qp| qp.resp.rq.len())
    }

    /// There are so many QPs that those which packets are for, or posts, are rarely in the cache.
    #[inline]
    pub fn has_many(&self) -> bool {
        /// With fewer they all stay in the cache.
        const MANY: usize = 256;
        self.qps.len() >= MANY
    }

    /// The addresses of what posts of sends need of a QP, which are the same for as long as it lives, for a caller that prefetches them
    /// into the cache ahead of a post: where there are [many](Shard::has_many).
    #[inline]
    pub fn place_of(&self, index: QpIndex) -> Option<Range<usize>> {
        self.place_in(index, Qp::ASKING)
    }

    /// The same of where the next send that is posted to a QP will be stored.
    #[inline]
    pub fn places_of_next(&self, index: QpIndex) -> Option<[Range<usize>; 2]> {
        Some(self.qps.at(index)?.req.sq.next_place())
    }

    /// The same of the QP that a packet is for, of which the first bytes are here, and of what such a packet needs.
    #[inline]
    pub fn place_for(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let &[opcode, _, _, _, _, a, b, c] = bytes.first_chunk()?;
        let index = self.qps.find(Qpn::new(u32::from_be_bytes([0, a, b, c])))?;
        let part = match Opcode(opcode).info() {
            Some(info) if info.is_response() => Qp::ASKING,
            _ => Qp::SERVING,
        };
        self.place_in(index, part)
    }

    #[inline]
    fn place_in(&self, index: QpIndex, part: Range<usize>) -> Option<Range<usize>> {
        let qp = core::ptr::from_ref::<Qp>(self.qps.at(index)?).addr();
        Some(qp + part.start..qp + part.end)
    }

    /// True if the QPNs of a chunk are this shard's.
    pub fn has_chunk(&self, chunk: QpnChunk) -> bool {
        self.qps.has_chunk(chunk)
    }

    /// Counts a packet that was [`Handled::OfAnother`] and turned out to have no owner.
    pub fn count_unowned(&mut self) {
        self.common.stats.rcvd_pkts += 1;
        self.common.stats.drop_packet(DropReason::NoQp);
    }

    /// Does what is due at `env.now`.
    pub fn handle_timeout<M: Memory, C: CqSink>(&mut self, env: &mut Env<'_, M, C>) {
        self.handle_timeout_unless(env, |_, _| false);
    }

    /// As [`Shard::handle_timeout`], where a carrier knows of packets that are not lost: `waits` says of a destination that what was
    /// sent there before a time waits for a receiver which lives. While it does, sending it again would be no use, and is not tried.
    pub fn handle_timeout_unless<M: Memory, C: CqSink>(
        &mut self,
        env: &mut Env<'_, M, C>,
        mut waits: impl FnMut(&TxDest, Time) -> bool,
    ) {
        while let Some(index) = self.timers.poll_expired(env.now) {
            let Some(qp) = self.qps.at_mut(index) else {
                continue;
            };
            qp.handle_timeout(&mut waits, &mut Cx::new(env, &mut self.common));
            self.settle(index);
        }
        if !self.paced.is_empty() {
            self.release_paced(env.now);
        }
        if self.management.due <= env.now {
            self.handle_cm_timeout(env.now);
        }
    }

    /// No call of [`Shard::handle_timeout`] is needed before this time.
    #[inline]
    pub fn next_timeout(&self) -> Option<Time> {
        let mut timer = self.timers.next_deadline();
        let cm = self.management.due;
        if cm != Time(u64::MAX) {
            timer = Some(timer.map_or(cm, |timer| timer.min(cm)));
        }
        match self.paced.peek() {
            Some(&Reverse((paced, _))) => Some(timer.map_or(paced, |timer| timer.min(paced))),
            None => timer,
        }
    }

    /// Fails every QP that uses a completion queue, because that lost a completion: for
    /// the caller that takes out [`AsyncEvent::CqErr`](crate::event::AsyncEvent::CqErr). Looks at all QPs.
    pub fn fail_cq<M: Memory, C: CqSink>(&mut self, cq: CqId, env: &mut Env<'_, M, C>) {
        let users = self.qps.iter().filter(|(_, qp)| qp.uses_cq(cq));
        let users: Vec<QpIndex> = users.map(|(index, _)| index).collect();
        for index in users {
            if let Some(qp) = self.qps.at_mut(index) {
                qp.on_cq_failed(&mut Cx::new(env, &mut self.common));
            }
            self.settle(index);
        }
    }

    /// A completion queue is gone, and its number may be given to another.
    pub fn forget_cq(&mut self, cq: CqId) {
        self.common.failed_cqs.retain(|&failed| failed != cq);
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.common.stats
    }
}
