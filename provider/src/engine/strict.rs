//! The engine with strict mode on: every call takes the lock, and tells strict mode what
//! it does. The usual paths know of this by one branch a call.

use core::cell::RefCell;

use urxe_core::work::{PostError, RecvWr, SendWr};
use urxe_core::{AckMode, Shard};

use super::Engine;
use super::cq::CqCore;
use super::cq_table::CqTable;
use super::doorbell::{Guard, Poisoned};
use super::inlet::Refused;
use super::post::QpShared;
use super::shard_state::ShardState;
use super::sockets::Which;
use super::srq::SrqShared;
use crate::strict::{Place, Queue, Strict, StrictReport};
use crate::wc::Wc;

impl QpShared {
    /// Posts sends and starts them.
    pub(crate) fn post_sends_strict<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = SendWr<'a>>,
        at: Place,
    ) -> Result<(), Refused> {
        let mut state = self.lock_strict(engine)?;
        let mut result = Ok(());
        for (index, wr) in wrs.enumerate() {
            if let Err(error) = self.post_send_strict(&mut state, &wr, at) {
                result = Err(Refused::Wr(index, error));
                break;
            }
        }
        state.transmit(AckMode::Defer);
        result
    }

    /// Posts all of the sends, or none.
    pub(crate) fn post_all_sends_strict<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = SendWr<'a>> + Clone,
        at: Place,
    ) -> Result<(), Refused> {
        let mut state = self.lock_strict(engine)?;
        let checked = state.shard.check_sends(self.index, wrs.clone());
        checked.map_err(|(index, error)| Refused::Wr(index, error))?;
        for (index, wr) in wrs.enumerate() {
            let posted = self.post_send_strict(&mut state, &wr, at);
            posted.map_err(|error| Refused::Wr(index, error))?;
        }
        state.transmit(AckMode::Defer);
        Ok(())
    }

    /// Posts receives.
    pub(crate) fn post_recvs_strict<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = RecvWr<'a>>,
        at: Place,
    ) -> Result<(), Refused> {
        let mut state = self.lock_strict(engine)?;
        for (index, wr) in wrs.enumerate() {
            let posted = post_recv(&mut state, Queue::Recv(self.qpn), &wr, at, |state| {
                state.with(|shard, env| shard.post_recv(self.index, &wr, env))
            });
            posted.map_err(|error| Refused::Wr(index, error))?;
        }
        Ok(())
    }

    fn lock_strict<'e>(&self, engine: &'e Engine) -> Result<Guard<'e, ShardState>, Poisoned> {
        let mut state = engine.combiner.lock()?;
        state.start_turn();
        Ok(state)
    }

    fn post_send_strict(
        &self,
        state: &mut ShardState,
        wr: &SendWr<'_>,
        at: Place,
    ) -> Result<(), PostError> {
        let qpn = self.qpn;
        let (strict, mrs, _) = state.strict_parts();
        strict.begin_send(qpn, wr, mrs, at);
        let posted = state.with(|shard, env| shard.post_send(self.index, wr, env));
        let (strict, mrs, cqs) = state.strict_parts();
        match posted {
            Ok(()) => {
                let cq = strict.cq_of(Queue::Send(qpn));
                let room = cq.map_or(0, |cq| cqs.capacity(cq));
                strict.finish_send(qpn, wr, mrs, room);
            }
            Err(error) => strict.cancel_send(qpn, wr, error, at),
        }
        posted
    }
}

impl SrqShared {
    /// Posts receives.
    pub(crate) fn post_recvs_strict<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = RecvWr<'a>>,
        at: Place,
    ) -> Result<(), Refused> {
        let mut state = engine.combiner.lock()?;
        state.start_turn();
        for (index, wr) in wrs.enumerate() {
            let posted = post_recv(&mut state, Queue::Shared(self.id), &wr, at, |state| {
                state.shard.post_srq_recv(self.id, &wr)
            });
            posted.map_err(|error| Refused::Wr(index, error))?;
        }
        Ok(())
    }
}

fn post_recv(
    state: &mut ShardState,
    queue: Queue,
    wr: &RecvWr<'_>,
    at: Place,
    post: impl FnOnce(&mut ShardState) -> Result<(), PostError>,
) -> Result<(), PostError> {
    state.strict_parts().0.begin_recv(queue, wr, at);
    let posted = post(state);
    let (strict, mrs, cqs) = state.strict_parts();
    match posted {
        Ok(()) => {
            let cq = strict.cq_of(queue);
            let room = cq.map_or(0, |cq| cqs.capacity(cq));
            strict.finish_recv(queue, wr, mrs, room);
        }
        Err(_) => strict.cancel_recv(queue),
    }
    posted
}

impl Engine {
    /// Drives the engine, and takes completions whose time has come.
    pub(crate) fn poll_strict(&self, cq: &CqCore, out: &mut [Wc]) -> Result<usize, Poisoned> {
        let mut state = self.combiner.lock()?;
        state.start_turn();
        self.progress.note_driven(state.now);
        state.serve_bells();
        state.transmit(AckMode::Patient);
        state.receive(1, Which::Active);
        state.handle_timers();
        let count = cq.take(out);
        for wc in &out[..count] {
            state.strict_mut(|strict, _, _| strict.on_polled(wc));
        }
        let acks = if count == 0 {
            AckMode::Patient
        } else {
            AckMode::Defer
        };
        state.transmit(acks);
        Ok(count)
    }

    /// A completion was taken otherwise than by [`Engine::poll`].
    #[inline]
    pub(crate) fn note_polled(&self, wc: &Wc) {
        if self.is_strict
            && let Ok(mut state) = self.combiner.lock()
        {
            state.strict_mut(|strict, _, _| strict.on_polled(wc));
        }
    }

    /// Completions that are held back come now: their queue is about to change.
    pub(crate) fn settle_completions(&self) -> Result<(), Poisoned> {
        if self.is_strict {
            let mut state = self.combiner.lock()?;
            state.start_turn();
            state.strict_mut(|strict, _, cqs| strict.settle_completions(cqs));
        }
        Ok(())
    }

    /// What strict mode found.
    pub(crate) fn take_strict_reports(&self) -> Result<Vec<StrictReport>, Poisoned> {
        if !self.is_strict {
            return Ok(Vec::new());
        }
        let mut state = self.combiner.lock()?;
        Ok(state.strict_parts().0.take_reports())
    }

    /// The program read or wrote memory by a call of the library.
    pub(super) fn note_program_access(&self, start: u64, len: usize, is_write: bool, at: Place) {
        if let Ok(mut state) = self.combiner.lock() {
            let strict = state.strict_parts().0;
            strict.on_program_access(start, len, is_write, at);
        }
    }
}

impl ShardState {
    /// Tells strict mode, if it is on.
    #[inline]
    pub(super) fn strict_mut(&mut self, tell: impl FnOnce(&mut Strict, &Shard, &mut CqTable)) {
        if let Some(strict) = &mut self.strict {
            tell(strict.get_mut(), &self.shard, &mut self.cqs);
        }
    }

    /// Objects are about to be changed.
    #[inline]
    pub(super) fn settle_strict(&mut self) {
        self.strict_mut(|strict, _, _| strict.settle());
    }

    fn strict_parts(&mut self) -> (&mut Strict, &urxe_core::mr::MrTable, &CqTable) {
        let strict = self
            .strict
            .as_mut()
            .expect("only called with strict mode on");
        (strict.get_mut(), &self.mrs, &self.cqs)
    }
}

/// An acknowledgement says that bytes are placed: it waits while they are not.
#[cold]
pub(super) fn strict_acks(strict: &RefCell<Strict>, acks: AckMode) -> AckMode {
    if strict.borrow().holds_writes() {
        AckMode::Withhold
    } else {
        acks
    }
}
