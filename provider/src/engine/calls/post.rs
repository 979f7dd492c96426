//! Posting work requests to QPs; [`super::inlet`] is how.

use std::sync::atomic::{AtomicU8, Ordering};

use urxe_core::qp::attr::QpCap;
use urxe_core::qp::state::QpState;
use urxe_core::table::QpIndex;
use urxe_core::work::{PostError, RecvQueue, RecvWr, SendQueue, SendRules, SendWr};
use urxe_core::{Driver, QpLimits};
use urxe_wire::Qpn;

use super::inlet::{Inlet, Owner, Queue, Refused, STAGED_MAX};
use crate::engine::Engine;
use crate::engine::ahead::fetch_for_send;
use crate::engine::drive::doorbell::Bell;
use crate::engine::drive::shard_state::ShardState;
use crate::strict::{Place, Queue as QueueName};

/// What threads that use a QP share beside the core's own state.
///
/// Where thousands of QPs take turns each post finds this out of the cache: what a post of a send reads is one cache
/// line, the first (`tests::a_post_reads_one_line`).
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QpShared {
    pub(crate) index: QpIndex,
    pub(crate) qpn: Qpn,
    sends: Inlet<SendQueue>,
    pub(in crate::engine) bell: Bell,
    /// The state that the program last asked for. The core may have failed the QP since,
    /// which changes nothing about which posts are taken.
    state: AtomicU8,
    recvs: Inlet<RecvQueue>,
    staging: Staging,
    rules: SendRules,
}

/// How large the queues for what is staged are.
#[derive(Debug)]
struct Staging {
    send_wrs: u16,
    recv_wrs: u16,
    send_sges: u16,
    recv_sges: u16,
    inline: u32,
}

const _: () = assert!(STAGED_MAX <= u16::MAX as u32);
const _: () = assert!(QpLimits::SGE_MAX <= u16::MAX as u32);

impl Staging {
    fn of(cap: &QpCap) -> Staging {
        Staging {
            send_wrs: cap.max_send_wr.min(STAGED_MAX) as u16,
            recv_wrs: cap.max_recv_wr.min(STAGED_MAX) as u16,
            send_sges: cap.max_send_sge as u16,
            recv_sges: cap.max_recv_sge as u16,
            inline: cap.max_inline_data,
        }
    }
}

impl Queue for SendQueue {
    type Place = QpIndex;
    type Wr<'a> = SendWr<'a>;
    const IS_QUIET: bool = false;

    #[inline]
    fn post(state: &mut ShardState, index: QpIndex, wr: &SendWr<'_>) -> Result<(), PostError> {
        if state.shard.has_many() {
            fetch_for_send(&state.shard, index);
        }
        state.with(|shard, env| shard.post_send(index, wr, env))
    }

    fn drain(&mut self, state: &mut ShardState, index: QpIndex) {
        state.with(|shard, env| shard.drain_send(index, self, env));
    }

    #[inline]
    fn outstanding(state: &ShardState, index: QpIndex) -> u32 {
        state.shard.sq_len(index)
    }

    fn stage(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.push(wr)
    }
}

impl Queue for RecvQueue {
    type Place = QpIndex;
    type Wr<'a> = RecvWr<'a>;
    const IS_QUIET: bool = true;

    #[inline]
    fn post(state: &mut ShardState, index: QpIndex, wr: &RecvWr<'_>) -> Result<(), PostError> {
        state.with(|shard, env| shard.post_recv(index, wr, env))
    }

    fn drain(&mut self, state: &mut ShardState, index: QpIndex) {
        state.with(|shard, env| shard.drain_recv(index, self, env));
    }

    #[inline]
    fn outstanding(state: &ShardState, index: QpIndex) -> u32 {
        state.shard.rq_len(index)
    }

    fn stage(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.push(wr)
    }
}

impl Owner<SendQueue> for QpShared {
    fn place(&self) -> QpIndex {
        self.index
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn name(&self) -> QueueName {
        QueueName::Send(self.qpn)
    }

    fn takes_posts(&self) -> Result<(), PostError> {
        match self.state() {
            state if state.takes_post_send() => Ok(()),
            state => Err(PostError::SendState(state)),
        }
    }

    fn to_stage(&self) -> SendQueue {
        SendQueue::with_rules(
            self.rules,
            self.staging.send_wrs.into(),
            self.staging.send_sges.into(),
            self.staging.inline as usize,
        )
    }
}

impl Owner<RecvQueue> for QpShared {
    fn place(&self) -> QpIndex {
        self.index
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn name(&self) -> QueueName {
        QueueName::Recv(self.qpn)
    }

    fn takes_posts(&self) -> Result<(), PostError> {
        match self.state() {
            state if state.takes_post_recv() => Ok(()),
            state => Err(PostError::RecvState(state)),
        }
    }

    fn to_stage(&self) -> RecvQueue {
        RecvQueue::new(self.staging.recv_wrs.into(), self.staging.recv_sges.into())
    }
}

impl QpShared {
    pub(crate) fn new(index: QpIndex, qpn: Qpn, cap: &QpCap, rules: SendRules) -> QpShared {
        QpShared {
            index,
            qpn,
            bell: Bell::new(index.0),
            staging: Staging::of(cap),
            rules,
            state: AtomicU8::new(QpState::Reset as u8),
            sends: Inlet::new(cap.max_send_wr),
            recvs: Inlet::new(cap.max_recv_wr),
        }
    }

    pub(crate) fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    fn state(&self) -> QpState {
        let number = self.state.load(Ordering::Relaxed);
        QpState::ALL[usize::from(number)]
    }

    /// Takes over what was staged: called by the holder of the engine.
    pub(crate) fn serve(&self, state: &mut ShardState) {
        self.bell.silence();
        state.counters.bells_served += 1;
        self.sends.serve(state, self.index);
        self.recvs.serve(state, self.index);
    }

    /// Moves the receives that are staged.
    pub(super) fn take_late(&self, queue: &mut RecvQueue) {
        self.recvs.take(|staged| staged.drain_into(queue));
    }

    /// Posts sends and starts them.
    #[inline]
    pub(crate) fn post_sends<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = SendWr<'a>>,
        at: Option<Place>,
    ) -> Result<(), Refused> {
        self.sends.post(self, engine, wrs, at, |state| {
            state.transmit(Driver::Poster);
        })
    }

    /// Posts all of the sends, or none.
    pub(crate) fn post_all_sends<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = SendWr<'a>> + Clone,
        at: Option<Place>,
    ) -> Result<(), Refused> {
        let all = wrs.clone();
        self.sends.post_all(
            self,
            engine,
            wrs,
            at,
            |state| state.shard.check_sends(self.index, all),
            |state| {
                state.transmit(Driver::Poster);
            },
        )
    }

    #[inline]
    pub(crate) fn post_recvs<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = RecvWr<'a>>,
        at: Option<Place>,
    ) -> Result<(), Refused> {
        self.recvs.post(self, engine, wrs, at, |_| {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{offset_of, size_of};

    #[test]
    fn a_post_reads_one_line() {
        assert!(offset_of!(QpShared, sends) + size_of::<Inlet<SendQueue>>() <= 64);
        assert!(offset_of!(QpShared, state) < 64);
        assert!(size_of::<QpShared>() <= 192, "of two QPs, or ten thousand");
    }
}
