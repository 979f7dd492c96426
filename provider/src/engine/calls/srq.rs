//! Shared receive queues: posting to them, and their creation and end.

use std::sync::Arc;

use urxe_core::srq::{SrqAttr, SrqAttrMask, SrqError, SrqId, SrqInit};
use urxe_core::tm::{TagHandle, TagWr};
use urxe_core::work::{PostError, RecvQueue, RecvWr};
use urxe_wire::Qpn;

use super::inlet::{Inlet, Owner, Queue, Refused, STAGED_MAX};
use crate::engine::Engine;
use crate::engine::drive::doorbell::Bell;
use crate::engine::drive::shard_state::ShardState;
use crate::error::Error;
use crate::strict::{Place, Queue as QueueName};

/// Bells of shared receive queues have numbers from here on; those of QPs are below.
const BELLS_FROM: u32 = 1 << 31;

/// What threads that use a shared receive queue have in common.
#[derive(Debug)]
pub(crate) struct SrqShared {
    pub(crate) id: SrqId,
    pub(crate) srqn: Qpn,
    bell: Bell,
    max_sge: usize,
    recvs: Inlet<SharedRecvs>,
}

/// Receives on their way into a shared receive queue.
#[derive(Debug)]
struct SharedRecvs(RecvQueue);

impl Queue for SharedRecvs {
    type Place = SrqId;
    type Wr<'a> = RecvWr<'a>;
    const IS_QUIET: bool = true;

    #[inline]
    fn post(state: &mut ShardState, at: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        state.shard.post_srq_recv(at, wr)
    }

    fn drain(&mut self, state: &mut ShardState, at: SrqId) {
        state.shard.drain_srq_recv(at, &mut self.0);
    }

    #[inline]
    fn outstanding(state: &ShardState, at: SrqId) -> u32 {
        state.shard.srq_len(at)
    }

    fn stage(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.0.push(wr)
    }
}

impl Owner<SharedRecvs> for SrqShared {
    fn place(&self) -> SrqId {
        self.id
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn name(&self) -> QueueName {
        QueueName::Shared(self.id)
    }

    fn takes_posts(&self) -> Result<(), PostError> {
        Ok(())
    }

    fn to_stage(&self) -> SharedRecvs {
        // Whatever its size is: it may grow.
        SharedRecvs(RecvQueue::new(STAGED_MAX, self.max_sge))
    }
}

impl SrqShared {
    /// Posts receives. Nothing is sent: a peer that found the queue empty tries again.
    #[inline]
    pub(crate) fn post_recvs<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = RecvWr<'a>>,
        at: Option<Place>,
    ) -> Result<(), Refused> {
        self.recvs.post(self, engine, wrs, at, |_| {})
    }

    /// Moves the receives that are staged.
    pub(super) fn take_late(&self, queue: &mut RecvQueue) {
        self.recvs.take(|staged| staged.0.drain_into(queue));
    }

    fn serve(&self, state: &mut ShardState) {
        self.bell.silence();
        state.counters.bells_served += 1;
        self.recvs.serve(state, self.id);
    }
}

impl ShardState {
    /// Takes over what was left at a bell, if it is that of a shared receive queue.
    pub(in crate::engine) fn serve_srq(&mut self, bell: u32) -> bool {
        let Some(place) = bell.checked_sub(BELLS_FROM) else {
            return false;
        };
        if let Some(Some(srq)) = self.inlets.srqs.get(place as usize) {
            srq.clone().serve(self);
        }
        true
    }
}

impl Engine {
    pub(crate) fn create_srq(&self, init: &SrqInit) -> Result<Arc<SrqShared>, Error> {
        let mut state = self.enter()?;
        let (id, srqn) = state.shard.create_srq(init)?;
        state.strict_mut(|strict, _, _| strict.on_srq_created(id, init));
        let (max_wr, max_sge) = (init.attr.max_wr, init.attr.max_sge as usize);
        let srq = Arc::new(SrqShared {
            id,
            srqn,
            bell: Bell::new(BELLS_FROM | id.0),
            max_sge,
            recvs: Inlet::new(max_wr),
        });
        let place = id.0 as usize;
        if state.inlets.srqs.len() <= place {
            state.inlets.srqs.resize(place + 1, None);
        }
        state.inlets.srqs[place] = Some(srq.clone());
        self.combiner
            .reserve(state.inlets.qps.len() + state.inlets.srqs.len())?;
        Ok(srq)
    }

    /// Called when no QP uses the queue any more.
    pub(crate) fn destroy_srq(&self, srq: &SrqShared) {
        // After a fork or a panic there is nothing to destroy.
        let Ok(mut state) = self.enter() else { return };
        state.strict_mut(|strict, _, _| strict.on_srq_destroyed(srq.id));
        let gone = state.shard.destroy_srq(srq.id);
        debug_assert!(gone.is_ok(), "QPs keep their queue alive");
        self.combiner.forget(&srq.bell);
        if let Some(place) = state.inlets.srqs.get_mut(srq.id.0 as usize) {
            *place = None;
        }
    }

    /// Waits for the engine: an operation is carried out when the call returns.
    pub(crate) fn post_srq_op(
        &self,
        srq: &SrqShared,
        wr: &TagWr<'_>,
    ) -> Result<Option<TagHandle>, Error> {
        let mut state = self.enter()?;
        Ok(state.with(|shard, env| shard.post_srq_op(srq.id, wr, env))?)
    }

    pub(crate) fn modify_srq(
        &self,
        srq: &SrqShared,
        attr: &SrqAttr,
        mask: SrqAttrMask,
    ) -> Result<(), Error> {
        self.check_process()?;
        srq.recvs.change(srq, self, |state| {
            state.shard.modify_srq(srq.id, attr, mask)?;
            let attr = state.shard.query_srq(srq.id).ok_or(SrqError::NoSrq)?;
            Ok(attr.max_wr)
        })
    }

    pub(crate) fn query_srq(&self, srq: &SrqShared) -> Result<SrqAttr, Error> {
        let attr = self.enter()?.shard.query_srq(srq.id);
        Ok(attr.ok_or(SrqError::NoSrq)?)
    }
}
