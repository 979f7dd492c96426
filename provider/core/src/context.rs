//! The environment of a call into the core: the caller's time, memory and completion
//! queues, and the shard's own counters and events.

use std::collections::VecDeque;

use crate::cq::{CqId, CqSink, Cqe};
use crate::error::{Fault, WcStatus};
use crate::event::AsyncEvent;
use crate::late::LateReceives;
use crate::memory::Memory;
use crate::mr::MrTable;
use crate::qp::SourceIdents;
use crate::qp::recovery::Room;
use crate::stats::Stats;
use crate::time::Time;

/// The world as the caller hands it in, for the length of one call.
#[derive(Debug)]
pub struct Env<'a, M: Memory, C: CqSink> {
    /// What time it is.
    pub now: Time,
    /// The registered regions.
    pub mrs: &'a mut MrTable,
    /// The bytes behind them.
    pub memory: &'a M,
    /// Where completions go.
    pub cqs: &'a mut C,
    /// Posted meanwhile.
    pub late: Option<&'a dyn LateReceives>,
}

/// Asynchronous events kept until they are fetched; more are dropped, oldest first. One for
/// every QP that there can be, twice: none is lost when a queue fails that all QPs use.
const EVENTS_MAX: usize = 1 << 17;

/// What all QPs of a shard share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) stats: Stats,
    pub(crate) events: VecDeque<AsyncEvent>,
    pub(crate) config: crate::config::ShardConfig,
    pub(crate) srqs: crate::srq::SrqTable,
    /// For packets ahead of gaps.
    pub(crate) room: Room,
    /// Completion queues that lost a completion. Few: a program has few queues that fail.
    pub(crate) failed_cqs: Vec<CqId>,
    /// What hosts that send datagrams use as Identifications.
    pub(crate) sources: SourceIdents,
    /// The Identification of the next packet, if it is of the neighbour that sent the last one by a socket for lone packets.
    pub(crate) direct_ident: u16,
    /// There is a connection manager, which waits for first packets.
    pub(crate) has_cm: bool,
    /// Messages left that a neighbour may acknowledge behind its answer, in one train.
    pub(crate) expects_pairs: bool,
    /// Until then its program is one that waits for events.
    pub(crate) waits_until: Time,
}

impl Common {
    pub(crate) fn push_event(&mut self, event: AsyncEvent) {
        tell!(INFO, ?event, "asynchronous event");
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// A completion was lost: told once for a queue, however many are lost after it.
    #[cold]
    fn on_overrun(&mut self, cq: CqId) {
        if !self.failed_cqs.contains(&cq) {
            self.failed_cqs.push(cq);
            self.push_event(AsyncEvent::CqErr(cq));
        }
    }
}

/// The types of the caller's memory and completion queues, which go together everywhere.
pub(crate) trait Host {
    type Memory: Memory;
    type Cqs: CqSink;
}

impl<M: Memory, C: CqSink> Host for (M, C) {
    type Memory = M;
    type Cqs = C;
}

/// One call's view of everything outside the QP.
pub(crate) struct Cx<'a, 'e, H: Host> {
    pub(crate) env: &'a mut Env<'e, H::Memory, H::Cqs>,
    pub(crate) common: &'a mut Common,
    /// A completion was lost in this call: the QP must fail.
    pub(crate) overrun: bool,
    /// A rendezvous begins or ended in this call.
    pub(crate) has_rendezvous: bool,
}

impl<'a, 'e, M: Memory, C: CqSink> Cx<'a, 'e, (M, C)> {
    pub(crate) fn new(env: &'a mut Env<'e, M, C>, common: &'a mut Common) -> Self {
        Cx {
            env,
            common,
            overrun: false,
            has_rendezvous: false,
        }
    }
}

impl<H: Host> Cx<'_, '_, H> {
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.env.now
    }

    /// Hands a completion over; an overrun is noted, and reported once.
    pub(crate) fn complete(&mut self, cq: CqId, cqe: Cqe) {
        if cqe.status != WcStatus::Success && cqe.fault != Fault::Flushed {
            self.common.stats.completer_err += 1;
        }
        if self.env.cqs.push(cq, cqe).is_err() {
            mark!(CqOverrun);
            self.overrun = true;
            self.common.on_overrun(cq);
        }
    }
}
