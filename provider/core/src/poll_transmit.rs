//! Sending: the entry point of a shard, and the order of its QPs.

use crate::ack_policy::AckMode;
use crate::context::{Cx, Env};
use crate::cq::CqSink;
use crate::memory::Memory;
use crate::qp::Answered;
use crate::shard::Shard;
use crate::table::QpIndex;
use crate::time::Time;
use crate::transmit::TxBatch;
use crate::turns::{Sending, Turn, TurnEnd};

impl Shard {
    /// Fills the batch: what is owed to peers, then data, QP after QP. Returns true if the batch is full
    /// and there is more: send it, clear it, and call again.
    #[must_use]
    pub fn poll_transmit<M: Memory, C: CqSink>(
        &mut self,
        env: &mut Env<'_, M, C>,
        batch: &mut TxBatch,
        acks: AckMode,
    ) -> bool {
        debug_assert!(self.unsettled.is_none(), "a series of packets has its end");
        if !self.notifies.is_empty() && !self.send_notifications(env, batch) {
            return true;
        }
        if self.management.has_mail && !self.send_mads(batch) {
            return true;
        }
        if let Some(index) = self.pair(batch, acks) {
            if !self.send_data(env, batch, AckMode::Defer) {
                return true;
            }
            if self.end_pair(index, env, batch) {
                return false;
            }
        }
        // Adapters acknowledge a message as it arrives, so what answers it never reaches the peer before the ACK, and programs
        // rely on that. The answer may leave on any QP.
        let acks = if self.turns.has_data() {
            acks.before_data()
        } else {
            acks
        };
        if !self.turns.owing.is_empty() && !self.send_answers(env, batch, acks) {
            return true;
        }
        !self.send_data(env, batch, acks)
    }

    /// The QP that sends a lone answer and its ACK as one train, if there is nothing else to send.
    #[inline]
    fn pair(&self, batch: &TxBatch, acks: AckMode) -> Option<QpIndex> {
        let index = self.turns.only()?;
        let is_pair = acks != AckMode::Withhold
            && batch.is_empty()
            && batch.makes_runs()
            && self.qps.at(index).is_some_and(|qp| qp.has_pair());
        is_pair.then_some(index)
    }

    /// True if it is one: if the answer could leave.
    fn end_pair<M: Memory, C: CqSink>(
        &mut self,
        index: QpIndex,
        env: &mut Env<'_, M, C>,
        batch: &mut TxBatch,
    ) -> bool {
        let Some(qp) = self.qps.at_mut(index) else {
            return false;
        };
        let is_pair = qp.end_pair(&mut Cx::new(env, &mut self.common), batch);
        if is_pair && !qp.owes_answer() {
            self.turns.settle_owing(index, &mut qp.share);
        }
        is_pair
    }

    /// Sends ACKs, NAKs and results of atomics, or holds ACKs back. Returns false if the batch is full before.
    fn send_answers<M: Memory, C: CqSink>(
        &mut self,
        env: &mut Env<'_, M, C>,
        batch: &mut TxBatch,
        acks: AckMode,
    ) -> bool {
        match acks {
            AckMode::Now => {}
            AckMode::Patient | AckMode::Answered
                if self.held.is_none_or(|until| until <= env.now) => {}
            AckMode::Defer | AckMode::Withhold if self.held.is_none() => {}
            // Nothing has happened since the last call, which found nothing to send.
            _ => return true,
        }
        self.held = None;
        self.turns.owes_more = false;
        let mut held = Time(u64::MAX);
        // Each once: those with a held-back ACK join the end again.
        for _ in 0..self.turns.owing.len() {
            let Some(&index) = self.turns.owing.front() else {
                break;
            };
            let Some(qp) = self.qps.at_mut(index) else {
                self.turns.owing.pop_front();
                continue;
            };
            match qp.answer(acks, &mut Cx::new(env, &mut self.common), batch) {
                Answered::BatchFull => {
                    self.turns.owes_more = true;
                    return false;
                }
                Answered::Held(until) => {
                    held = held.min(until);
                    self.turns.owing.rotate_left(1);
                }
                Answered::All => {
                    qp.share.owes = false;
                    self.turns.owing.pop_front();
                    if qp.has_data() {
                        self.turns.add(index, &mut qp.share);
                    }
                }
            }
        }
        if !self.turns.owing.is_empty() {
            self.held = Some(held);
        }
        true
    }

    /// Sends requests and READ responses. Returns false if the batch is full before.
    fn send_data<M: Memory, C: CqSink>(
        &mut self,
        env: &mut Env<'_, M, C>,
        batch: &mut TxBatch,
        acks: AckMode,
    ) -> bool {
        self.turns.begin(batch);
        while let Some(index) = self.turns.peek() {
            let qp = self.qps.at_mut(index).expect("a QP that goes is forgotten");
            let config = &self.common.config;
            let is_stream = qp.share.is_backlogged() && !qp.owes_data();
            let destinations = &mut self.destinations;
            let mut budget = self.turns.budget(&mut qp.share, batch);
            if destinations.before_turn(index, &mut qp.way, is_stream, env.now, config) {
                let end = TurnEnd::Blocked;
                self.turns.end(&mut qp.share, &budget, end, batch);
                self.timers.set(index, qp.deadline());
                continue;
            }
            qp.settle_way(destinations, config);
            let turn = qp.take_turn(
                acks,
                &mut budget,
                &mut Cx::new(env, &mut self.common),
                batch,
            );
            let end = match turn {
                Turn::Idle if qp.is_backlogged() => TurnEnd::Blocked,
                Turn::Idle | Turn::Paced(_) => TurnEnd::Empty,
                Turn::Again => TurnEnd::More,
                Turn::BatchFull => TurnEnd::BatchFull,
            };
            let config = &self.common.config;
            qp.settle_way(&mut self.destinations, config);
            self.destinations
                .after_turn(&mut qp.way, budget.sent(batch), end, env.now, config);
            let place = qp.way.place();
            self.turns.end(&mut qp.share, &budget, end, batch);
            if qp.owes_answer() {
                let more = qp.owes_more();
                self.turns.add_owing(index, &mut qp.share, more);
            }
            self.timers.set(index, qp.deadline());
            if let Turn::Paced(until) = turn {
                self.hold_paced(index, until);
            }
            self.move_line(place);
            if turn == Turn::BatchFull {
                return false;
            }
        }
        true
    }

    /// True if a QP has something to send (an ACK that is held back counts).
    #[inline]
    pub fn has_work(&self) -> bool {
        self.turns.has_any() || !self.notifies.is_empty() || self.management.has_mail
    }

    /// True if nothing would leave in this mode: there is nothing, or nothing but ACKs that it holds back.
    #[inline]
    pub fn holds_all(&self, acks: AckMode) -> bool {
        let holds = matches!(acks, AckMode::Defer | AckMode::Withhold) && !self.turns.owes_more;
        let may_leave = self.turns.has_data()
            || !(holds || self.turns.owing.is_empty())
            || !self.notifies.is_empty()
            || self.management.has_mail;
        !may_leave
    }

    /// What a QP had of the time to send; `None` if there is no such QP.
    pub fn sending(&self, index: QpIndex) -> Option<Sending> {
        let qp = self.qps.at(index)?;
        let congestion = qp.req.congestion.as_ref();
        let is_paced = congestion.is_some_and(|congestion| congestion.is_held);
        Some(qp.share.sending(qp.has_data() && !is_paced))
    }

    /// After every input: the QP joins the lists of those that can send, and its timer
    /// is set.
    #[inline]
    pub(crate) fn settle(&mut self, index: QpIndex) {
        self.held = None;
        let Some(qp) = self.qps.at_mut(index) else {
            return;
        };
        qp.settle_way(&mut self.destinations, &self.common.config);
        if qp.owes_answer() {
            let more = qp.owes_more();
            self.turns.add_owing(index, &mut qp.share, more);
        }
        if qp.has_data() {
            self.turns.add(index, &mut qp.share);
        }
        self.timers.set(index, qp.deadline());
        let place = qp.way.place();
        self.move_line(place);
    }

    /// Streams that waited for room at a destination have turns now, as far as there is some.
    #[inline]
    fn move_line(&mut self, place: Option<u32>) {
        if let Some(index) = self.destinations.next_in_line(place) {
            self.leave_line(index, place);
        }
    }

    fn leave_line(&mut self, first: QpIndex, place: Option<u32>) {
        let mut next = Some(first);
        while let Some(index) = next {
            let qp = self.qps.at_mut(index).expect("a QP that goes is forgotten");
            let has_data = qp.has_data();
            self.destinations.leave_line(&mut qp.way, has_data);
            if has_data {
                self.turns.add(index, &mut qp.share);
            }
            next = self.destinations.next_in_line(place);
        }
    }
}
