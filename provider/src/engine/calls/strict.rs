//! The engine with strict mode on: each call of the program takes the lock, and tells strict mode what it does.

use urxe_core::work::PostError;
use urxe_core::{Driver, Shard};

use crate::engine::Engine;
use crate::engine::carrier::sockets::Which;
use crate::engine::drive::doorbell::Poisoned;
use crate::engine::drive::shard_state::ShardState;
use crate::network::Act;
use crate::queues::CqCore;
use crate::queues::CqTable;
use crate::strict::{Place, Queue, Strict, StrictReport, Watched};
use crate::wc::Wc;

impl Engine {
    /// Drives the engine, and takes completions that are due.
    pub(crate) fn poll_strict(&self, cq: &CqCore, out: &mut [Wc]) -> Result<usize, Poisoned> {
        let mut state = self.combiner.lock()?;
        state.start_turn();
        self.progress.note_driven(state.now);
        state.serve_bells();
        state.transmit(Driver::Poller { yields: false });
        state.receive(1, Which::Active);
        state.handle_timers();
        let count = cq.take(out);
        if count == 0 {
            state.on_polled_empty(cq.id);
        }
        for wc in &out[..count] {
            state.note(&Act::Polled(wc));
            state.strict_mut(|strict, _, _| strict.on_polled(wc));
        }
        state.transmit(Driver::Poller { yields: count > 0 });
        Ok(count)
    }

    /// Does something with strict mode, if it is on.
    fn with_strict<R>(
        &self,
        act: impl FnOnce(&mut Strict, &mut CqTable) -> R,
    ) -> Result<Option<R>, Poisoned> {
        let watcher = self.watcher.as_ref();
        if watcher.is_none_or(|watcher| !watcher.is_strict) {
            return Ok(None);
        }
        let mut state = self.combiner.lock()?;
        state.start_turn();
        Ok(state.strict_mut(|strict, _, cqs| act(strict, cqs)))
    }

    /// A completion was taken otherwise than by [`Engine::poll`].
    #[inline]
    pub(crate) fn note_polled(&self, wc: &Wc) {
        // Of a failed engine there is nothing to find.
        let _ = self.with_strict(|strict, _| strict.on_polled(wc));
        if let Some(network) = self.network() {
            network.note(&Act::Polled(wc));
        }
    }

    /// Completions that are held back come now: their queue is about to change.
    pub(crate) fn settle_completions(&self) -> Result<(), Poisoned> {
        self.with_strict(|strict, cqs| strict.settle_completions(cqs))?;
        Ok(())
    }

    pub(crate) fn take_strict_reports(&self) -> Result<Vec<StrictReport>, Poisoned> {
        let reports = self.with_strict(|strict, _| strict.take_reports())?;
        Ok(reports.unwrap_or_default())
    }

    /// The program reads or writes memory by a call of the library.
    pub(in crate::engine) fn note_program_access(
        &self,
        start: u64,
        len: usize,
        is_write: bool,
        at: Place,
    ) {
        let note = |strict: &mut Strict, _: &mut _| {
            strict.on_program_access(start, len, is_write, at);
        };
        let _ = self.with_strict(note);
    }
}

impl ShardState {
    /// Tells strict mode, if it is on.
    #[inline]
    pub(in crate::engine) fn strict_mut<R>(
        &mut self,
        tell: impl FnOnce(&mut Strict, &Shard, &mut CqTable) -> R,
    ) -> Option<R> {
        let parts = &mut self.parts;
        let strict = parts.watching.as_mut()?.strict.as_mut()?;
        Some(tell(strict.get_mut(), &parts.shard, &mut parts.cqs))
    }

    /// Objects are about to be changed.
    #[inline]
    pub(in crate::engine) fn settle_strict(&mut self) {
        self.strict_mut(|strict, _, _| strict.settle());
    }

    /// Posts a request, and tells what watches before and after.
    #[cold]
    pub(in crate::engine) fn post_watched(
        &mut self,
        queue: Queue,
        wr: &impl Watched,
        at: Place,
        post: impl FnOnce(&mut ShardState) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let parts = &mut self.parts;
        if let Some(watching) = &mut parts.watching {
            if let Some(network) = &watching.network {
                wr.tell(&**network, queue, &parts.mrs);
            }
            if let Some(strict) = &mut watching.strict {
                wr.begin(strict.get_mut(), queue, &parts.mrs, at);
            }
        }
        let posted = post(self);
        let parts = &mut self.parts;
        if posted.is_err() {
            parts.note(&Act::Refused);
        }
        if let Some(strict) = parts.watching.as_mut().and_then(|it| it.strict.as_mut()) {
            let strict = strict.get_mut();
            match posted {
                Ok(()) => {
                    let cq = strict.cq_of(queue);
                    let room = cq.map_or(0, |cq| parts.cqs.capacity(cq));
                    wr.finish(strict, queue, &parts.mrs, room);
                }
                Err(error) => wr.cancel(strict, queue, error, at),
            }
        }
        posted
    }
}
