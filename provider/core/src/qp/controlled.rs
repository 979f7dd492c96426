//! The turn of a QP under congestion control, and the input of its controller.

use urxe_wire::{Operation, Packet, Psn};

use crate::config::ShardConfig;
use crate::congestion::{Acked, Asked, CongestionControl, Controller, Rate, frame_overhead};
use crate::context::{Cx, Host};
use crate::destinations::shorter;
use crate::qp::report::PathReport;
use crate::qp::requester::{Requester, SendStep};
use crate::qp::respond::RespondStep;
use crate::qp::window::SendWindow;
use crate::qp::{Link, Qp};
use crate::time::Time;
use crate::transmit::{TxBatch, TxDest};
use crate::turns::{Budget, Turn};

/// The ECN bits that say: may be marked (RFC 3168, ECT(0)), as RoCE adapters send them.
const ECN_CAPABLE: u8 = 0b10;
const ECN_BITS: u8 = 0b11;
/// A CNP travels in a class of its own (DSCP 48), and is not marked itself.
const CNP_TOS: u8 = 48 << 2;

/// A path is long if its shortest round trip takes longer.
const LONG_NS: u64 = 1_000_000;
/// One that takes longer than this is known at once. Of shorter ones it takes some round trips to tell them from what a busy host adds:
/// with the first one alone, 64 streams over the loopback of such a host had models for up to a second, and a threefold share.
const PLAINLY_LONG_NS: u64 = 8_000_000;
const ROUND_TRIPS_MIN: u8 = 8;
/// Waiting so long for the road is no queue, on the shortest of paths; on others half the shortest round trip is none. Not all of it: a QP
/// that comes late to a road that others fill takes their queue for the road.
const QUEUE_NS: u64 = 200_000;
/// Losses, as many more of them without a queue than in one, after which the road is one that loses.
const LONE_LOSSES: u8 = 8;

impl Requester {
    /// Packets before [`Requester::una`] were acknowledged.
    #[inline]
    pub(crate) fn on_acknowledged(&mut self, packets: u32, now: Time) {
        self.acked += u64::from(packets);
        self.window.on_ack(packets, self.una);
        let rtt = self.rtt.finish(self.una, now);
        if self.congestion.is_some() {
            self.on_delivered(packets, self.acked, rtt, now);
        }
        if rtt.is_some() && self.chooses {
            self.choose();
        }
        let more = self.una != self.sent_end && self.probe.deadline().is_some();
        let patience = if more { self.patience() } else { None };
        let probed = self.probe.on_progress(patience, now);
        self.end_probe();
        if probed.is_some_and(|psn| psn.next() == self.una) {
            self.on_probe_alone(now);
        }
    }

    /// `packets` more are known to have arrived, and, in the order in which they left, something is known of those before number
    /// `reached`; [`Requester::acked`] is the number of the oldest that is not acknowledged.
    pub(crate) fn on_delivered(&mut self, packets: u32, reached: u64, rtt: Option<u64>, now: Time) {
        // The acknowledgement may have overtaken the cursor.
        let under_way = if self.next_psn.is_before(self.una) {
            0
        } else {
            self.under_way()
        };
        if let Some(congestion) = &mut self.congestion {
            let acked = Acked {
                packets,
                reached,
                under_way,
                rtt,
            };
            congestion.on_ack(acked, now);
            self.window.set_limit(congestion.window());
        }
    }

    /// Does this path want a model, or does it want none any more? The shard asks after each input, and again where only the length of the
    /// path speaks for one: others may know a shorter round trip to the same address.
    pub(crate) fn choose(&mut self) {
        let is_long = self.is_long(self.rtt.min());
        let wants = is_long || self.lone_losses >= LONE_LOSSES;
        self.reconsiders = is_long || wants != self.congestion.is_some();
    }

    /// As the shortest round trip only ever becomes shorter, a path is found to be long once at most.
    fn is_long(&self, rtt_min: u64) -> bool {
        rtt_min > PLAINLY_LONG_NS || rtt_min > LONG_NS && self.rtt.count() >= ROUND_TRIPS_MIN
    }

    /// True if the path wants a model, when `rtt_min` is the shortest round trip to its address that other QPs know.
    fn wants_model(&self, rtt_min: u64) -> bool {
        self.lone_losses >= LONE_LOSSES || self.is_long(shorter(self.rtt.min(), rtt_min))
    }

    /// A loss with an empty path is the road's, and so is one while answers take no longer than they do by and large: what a queue drops has
    /// the longest of round trips beside it. One counts in each round trip, and none while a model sends more than the path delivers:
    /// what overflows then is its own. The counter forgets one with each loss in a queue: a short road that loses has some of those, too,
    /// and a model that is dropped at the first one starts again and again.
    fn judge_loss(&mut self) {
        let is_steady = self.congestion.as_ref().is_none_or(|c| c.is_steady());
        if !is_steady || !self.window.is_news(self.una) {
            return;
        }
        let (last, min) = (self.rtt.last(), self.rtt.min());
        let queue = (min + QUEUE_NS.max(min / 2)).max(self.rtt.smooth());
        self.lone_losses = match last <= queue {
            true => (self.lone_losses + 1).min(2 * LONE_LOSSES),
            false => self.lone_losses.saturating_sub(1),
        };
    }

    /// Of all that was under way, the packet that was sent once more arrived, and no other.
    #[cold]
    fn on_probe_alone(&mut self, now: Time) {
        if self.una.is_before(self.next_psn) {
            mark!(ProbeFoundGap);
            self.on_loss(1, now);
            self.rewind();
        }
    }

    /// While a rate keeps everything from leaving (again), the peer cannot answer: the clock for
    /// that starts with the next packet.
    #[inline]
    pub(crate) fn rest_if_paced(&mut self) {
        if self.congestion.is_some() && self.outstanding() == 0 {
            self.retry.await_send();
        }
    }

    /// In the order in which packets left, something was heard of those before this one.
    fn heard(&self) -> Psn {
        let selective = self.selective.as_ref().filter(|_| self.trial.is_told);
        selective.map_or(self.una, |s| s.heard())
    }

    /// So many packets were lost, as far as is known. The window narrows once a round trip, however often this is told.
    pub(crate) fn on_loss(&mut self, packets: u32, now: Time) {
        if self.chooses {
            self.judge_loss();
        }
        let heard = self.heard();
        if let Some(congestion) = &mut self.congestion {
            congestion.on_loss(packets, now);
            self.window.set_limit(congestion.window());
            if congestion.follows_path() {
                self.window.tell(self.una, self.sent_end);
                return;
            }
        }
        self.window.on_loss(heard, self.sent_end);
    }

    /// Nothing was heard for a whole timeout.
    pub(crate) fn on_silence(&mut self, now: Time) {
        if let Some(congestion) = &mut self.congestion {
            congestion.on_silence();
        }
        if !self.follows_path() {
            self.window.on_silence(self.sent_end);
        }
        self.on_loss(1, now);
    }

    /// The path alone says what may be under way.
    pub(crate) fn follows_path(&self) -> bool {
        self.congestion.as_ref().is_some_and(|c| c.follows_path())
    }

    /// What is known of the path, for reports.
    pub(crate) fn path_report(&self, link: &Link) -> PathReport {
        let congestion = self.congestion.as_ref();
        PathReport {
            srtt_ns: self.rtt.smooth(),
            min_rtt_ns: self.rtt.min(),
            window: self.window.packets(),
            under_way: self.under_way(),
            rate_bps: congestion.and_then(|c| c.known_rate()).map(Rate::bps),
            has_model: self.follows_path(),
            is_selective: link.peer.is_known(),
        }
    }

    /// A request packet leaves, and the peer is to answer it at once: its round trip is measured.
    #[inline]
    pub(crate) fn on_asked(&mut self, psn: Psn, is_new: bool, span: u32, now: Time) {
        if is_new {
            // Of a READ, the first response ends the round trip.
            self.rtt.start(psn, now);
        }
        self.retry.asking.on_asked(now);
        if self.congestion.is_some() {
            self.mark_asked(is_new, span, now);
        }
    }

    fn mark_asked(&mut self, is_new: bool, span: u32, now: Time) {
        let outstanding = self.outstanding();
        let under_way = match self.selective {
            Some(_) => self.under_way(),
            None => outstanding,
        };
        let end = self.next_psn.add(span - 1);
        let is_last = end == self.sq.wqe(self.cursor).last_psn;
        let asked = Asked {
            // Of a READ, the last response says how fast it came.
            number: self.acked + u64::from(outstanding + span - 1),
            packets: span,
            under_way,
            limited: is_last
                && self.cursor + 1 == self.sq.tail()
                && under_way < self.window.packets() / 4 * 3,
            is_timed: is_new && span == 1,
        };
        if let Some(congestion) = &mut self.congestion {
            congestion.on_asked(asked, now);
        }
    }

    /// Nothing came for longer than a round trip should take: the oldest packet leaves once more. Not that of a READ or
    /// atomic, which brings all the data once more.
    pub(crate) fn probe(&mut self, now: Time) {
        if self.selective.is_some() {
            return;
        }
        let patience = self.patience();
        let waits = self.retry.waits_for_rnr() || self.outstanding() == 0;
        if !self.probe.expire(patience, now) || waits {
            return;
        }
        if self.sq.wqe(self.sq.head()).opcode.is_read_or_atomic() {
            return;
        }
        mark!(ProbeDue);
        self.probe.begin((self.cursor, self.next_psn));
        (self.cursor, self.next_psn) = (self.sq.head(), self.una);
        self.rtt.forget();
    }

    /// The packet that was to be sent once more has left, or is not needed any more: the cursor goes on where it was.
    #[inline]
    pub(crate) fn end_probe(&mut self) {
        if let Some(resume) = self.probe.end() {
            (self.cursor, self.next_psn) = resume;
        }
    }
}

/// Packets that a READ request asks for, the first time or again; 0 if it is none.
fn answers_of(packet: &[u8], mtu: u32) -> u32 {
    let is_read = |packet: &Packet<'_>| packet.info().operation == Operation::ReadRequest;
    let packet = Packet::parse(packet).ok().filter(is_read);
    let reth = packet.and_then(|packet| packet.reth());
    reth.map_or(0, |reth| reth.dma_len.div_ceil(mtu).max(1))
}

impl Qp {
    /// Starts, changes or ends congestion control.
    pub(crate) fn set_congestion(
        &mut self,
        control: CongestionControl,
        config: &ShardConfig,
        now: Time,
    ) {
        self.req.chooses = control == CongestionControl::Auto;
        self.control(control, config, now);
    }

    /// The path may want a model, or none any more, when `rtt_min` is the shortest round trip of other QPs to the same address. False if nothing
    /// changes: memory loses nothing, for one.
    pub(crate) fn choose(&mut self, rtt_min: u64, config: &ShardConfig, now: Time) -> bool {
        self.req.reconsiders = false;
        if self.link.dest.in_memory && !config.memory_loses
            || self.req.wants_model(rtt_min) == self.req.congestion.is_some()
        {
            return false;
        }
        mark!(PathChosen if self.req.congestion.is_none());
        let control = match self.req.congestion {
            None => CongestionControl::Path,
            Some(_) => CongestionControl::None,
        };
        self.control(control, config, now);
        true
    }

    fn control(&mut self, control: CongestionControl, config: &ShardConfig, now: Time) {
        let old = self.req.congestion.take();
        let had_model = old.as_ref().is_some_and(|old| old.follows_path());
        let is_held = old.is_some_and(|old| old.is_held);
        let new = Controller::new(control, config.pace_burst_bytes, now);
        self.req.congestion = new.map(|mut new| {
            new.restart(self.link.mtu, self.req.rtt.min(), now);
            // It may still be in the list of those that are held back.
            new.is_held = is_held;
            Box::new(new)
        });
        if had_model {
            self.begin_window(config);
        }
        self.limit_window();
        self.mark_capable();
    }

    /// The window of a path of which nothing is known.
    pub(crate) fn begin_window(&mut self, config: &ShardConfig) {
        let (bytes, packets, mtu) = (config.window_bytes, config.window_packets, self.link.mtu);
        self.req.window = SendWindow::new(bytes, packets, mtu)
            .with_floor(config.window_packets_min)
            .starting_at(config.window_packets_start);
        self.limit_window();
    }

    /// The congestion control in use.
    pub(crate) fn congestion(&self) -> CongestionControl {
        if self.req.chooses {
            return CongestionControl::Auto;
        }
        let controller = self.req.congestion.as_ref();
        controller.map_or(CongestionControl::None, |c| c.control())
    }

    /// A connection begins.
    pub(crate) fn restart_congestion(&mut self, now: Time) {
        if self.req.chooses {
            self.req.congestion = None;
        }
        if let Some(congestion) = &mut self.req.congestion {
            congestion.restart(self.link.mtu, 0, now);
        }
    }

    /// The window is never wider than congestion control allows.
    pub(crate) fn limit_window(&mut self) {
        let controller = self.req.congestion.as_ref();
        let limit = controller.map_or(u32::MAX, |c| c.window());
        if controller.is_some_and(|c| c.follows_path()) {
            self.req.window.open();
        }
        self.req.window.set_limit(limit);
    }

    /// Packets say that switches may mark them, if marks are of use; a traffic class that
    /// says something about it already stays as it is.
    pub(crate) fn mark_capable(&mut self) {
        let Some(asked) = self.attr.ah_attr.map(|path| path.traffic_class) else {
            return;
        };
        // Whether the peer looks for marks is not known where nothing was set.
        let marks = asked & ECN_BITS == 0 && self.congestion().uses_ecn();
        self.link.dest.tos = if marks { asked | ECN_CAPABLE } else { asked };
    }

    /// The peer says that a switch marked a packet of this QP.
    pub(crate) fn on_cnp(&mut self, now: Time) {
        if let Some(congestion) = &mut self.req.congestion {
            mark!(CnpSlowedDown);
            congestion.on_cnp(now);
        } else if self.req.chooses {
            let (una, sent_end) = (self.req.una, self.req.sent_end);
            self.req.window.on_loss(una, sent_end);
        }
    }

    /// As [`Qp::take_turn`], packet by packet as congestion control allows. ACKs and NAKs are
    /// not held back: the peer measures by them.
    pub(crate) fn take_controlled_turn<H: Host>(
        &mut self,
        budget: &mut Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Turn {
        let mut turn = Turn::Again;
        while !budget.is_used_up(batch) {
            match self.controlled_step(budget, cx, batch) {
                Ok(()) => {}
                Err(Turn::BatchFull) => return Turn::BatchFull,
                Err(end) => {
                    turn = end;
                    break;
                }
            }
        }
        // While a response is due, the ACK must not overtake it.
        if let RespondStep::BatchFull = self.resp.poll_ack(&self.link, cx, batch) {
            return Turn::BatchFull;
        }
        turn
    }

    /// Sends one packet, or says why not.
    fn controlled_step<H: Host>(
        &mut self,
        budget: &mut Budget,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> Result<(), Turn> {
        let response_is_due = self.resp.replay.is_due();
        // A NAK never waits: until it arrives the peer sends in vain.
        let waits = if self.resp.owes_response() {
            response_is_due && self.paces_responses()
        } else {
            self.can_send()
        };
        let controller = self.req.congestion.as_ref();
        let may_send_at = controller.map_or(Time::ZERO, |c| c.may_send_at());
        if waits && may_send_at > cx.now() {
            mark!(PacedByCongestionControl);
            return Err(Turn::Paced(may_send_at));
        }
        let before = batch.used();
        if self.resp.owes_response() {
            match self.respond(cx, batch) {
                RespondStep::Sent => {
                    if response_is_due && self.paces_responses() {
                        self.charge(batch.used() - before, 0, cx.now());
                    }
                }
                RespondStep::BatchFull => return Err(Turn::BatchFull),
                RespondStep::Nothing => {}
            }
            return Ok(());
        }
        let may_start = self.may_start().ok_or(Turn::Idle)?;
        match self.req.poll_packet(&self.link, may_start, cx, batch) {
            SendStep::Sent => {
                let packet = batch.last_from(before);
                let answers = answers_of(packet, self.link.mtu);
                self.charge(packet.len(), answers, cx.now());
                Ok(())
            }
            SendStep::Local => {
                budget.local += 1;
                Ok(())
            }
            SendStep::BatchFull => Err(Turn::BatchFull),
            SendStep::Blocked => {
                self.on_blocked(cx);
                Err(Turn::Idle)
            }
        }
    }

    fn paces_responses(&self) -> bool {
        let controller = self.req.congestion.as_ref();
        controller.is_some_and(|c| c.paces_responses())
    }

    fn charge(&mut self, bytes: usize, answers: u32, now: Time) {
        let overhead = frame_overhead(&self.link.dest.remote);
        if let Some(congestion) = &mut self.req.congestion {
            congestion.on_sent(bytes as u32 + overhead, answers, now);
        }
    }

    /// Puts the CNP that is owed into the batch. Returns false if it has no room.
    pub(crate) fn send_notification<H: Host>(
        &mut self,
        cx: &mut Cx<'_, '_, H>,
        batch: &mut TxBatch,
    ) -> bool {
        if !self.notification.is_owed() {
            return true;
        }
        if self.state().takes_requests() {
            let dest = TxDest {
                tos: CNP_TOS,
                ..self.link.dest
            };
            let Some(slot) = batch.reserve(&dest, urxe_wire::CNP_LEN) else {
                return false;
            };
            let cnp = urxe_wire::cnp(self.link.dest_qpn, &self.link.seed, slot.ident);
            slot.bytes.copy_from_slice(&cnp);
            mark!(CnpSent);
            cx.common.stats.sent_pkts += 1;
            cx.common.stats.sent_cnp += 1;
        }
        self.notification.settle();
        true
    }
}
