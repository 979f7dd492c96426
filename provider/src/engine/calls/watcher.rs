//! What watches the calls of a program: the seam above the engine.
//!
//! Strict mode looks at each call, and a custom `Network` must know when the program lets time pass. A watcher is asked before and after each call. Where there is none, a call pays one branch for it.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::drive::doorbell::Poisoned;
use crate::error::BadWr;
use crate::network::{Act, Network, Pause};
use crate::queues::{CqCore, Taker};
use crate::strict::Place;
use crate::wc::Wc;

#[derive(Debug)]
pub(in crate::engine) struct Watcher {
    /// Strict mode is on; its state is behind the lock.
    pub(in crate::engine) is_strict: bool,
    /// What the engine is opened on, if not on sockets.
    network: Option<Arc<dyn Network>>,
}

impl Watcher {
    /// A watcher, if there is something to watch for.
    pub(in crate::engine) fn new(
        is_strict: bool,
        network: Option<Arc<dyn Network>>,
    ) -> Option<Watcher> {
        let is_needed = is_strict || network.is_some();
        is_needed.then_some(Watcher { is_strict, network })
    }

    /// The program is about to do something that takes a while.
    fn pause(&self, why: &Pause) -> Result<(), Poisoned> {
        match &self.network {
            // If the simulated host was stopped, the engine is reported as failed.
            Some(network) => network.pause(why).map_err(|_| Poisoned),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// What the engine is opened on, if not on sockets.
    pub(crate) fn network(&self) -> Option<&Arc<dyn Network>> {
        self.watcher.as_ref()?.network.as_ref()
    }

    /// A post begins. Where it is, if something watches.
    ///
    /// # Errors
    /// In a child of the process that opened the engine, and if a simulated host was stopped.
    #[inline]
    #[track_caller]
    pub(crate) fn begin_post(&self) -> Result<Option<Place>, BadWr> {
        let none = |error| BadWr { index: 0, error };
        self.check_process().map_err(none)?;
        let Some(watcher) = &self.watcher else {
            return Ok(None);
        };
        let at = Place::here();
        let paused = watcher.pause(&Pause::Post);
        paused.map_err(|poisoned| none(poisoned.into()))?;
        Ok(Some(at))
    }

    /// The program is about to ask for an event.
    ///
    /// # Errors
    /// If a simulated host was stopped.
    #[inline]
    pub(crate) fn begin_arming(&self) -> Result<(), Poisoned> {
        match &self.watcher {
            Some(watcher) => watcher.pause(&Pause::Arm),
            None => Ok(()),
        }
    }

    /// A call returns to the program.
    #[inline]
    pub(crate) fn end_call(&self) {
        if let Some(watcher) = &self.watcher {
            // That the host was stopped, the program learns from its next call that can fail.
            let _ = watcher.pause(&Pause::Return);
        }
    }

    /// Takes completions; when there are none, drives the engine and looks again.
    #[inline]
    pub(crate) fn poll<T>(&self, cq: &CqCore, out: &mut T) -> Result<usize, Poisoned>
    where
        T: Taker + ?Sized,
    {
        match &self.watcher {
            None => self.poll_usual(cq, out),
            Some(watcher) => out.take_by(|wcs| self.poll_watched(watcher, cq, wcs)),
        }
    }

    #[cold]
    fn poll_watched(
        &self,
        watcher: &Watcher,
        cq: &CqCore,
        out: &mut [Wc],
    ) -> Result<usize, Poisoned> {
        let poll = |out: &mut [Wc]| {
            if watcher.is_strict {
                self.poll_strict(cq, out)
            } else {
                let found = self.poll_usual(cq, out)?;
                if let Some(network) = &watcher.network {
                    out[..found]
                        .iter()
                        .for_each(|wc| network.note(&Act::Polled(wc)));
                }
                Ok(found)
            }
        };
        let found = poll(out)?;
        if watcher.network.is_none() {
            return Ok(found);
        }
        if found > 0 || !cq.is_empty() {
            let _ = watcher.pause(&Pause::Return);
            return Ok(found);
        }
        watcher.pause(&Pause::Poll)?;
        poll(out)
    }

    /// The program is about to read or write memory by a call of the library.
    #[inline]
    #[track_caller]
    pub(crate) fn on_program_access(&self, start: u64, len: usize, is_write: bool) {
        if let Some(watcher) = &self.watcher
            && len > 0
            && self.check_process().is_ok()
        {
            let at = Place::here();
            // That the host was stopped, the program learns from its next call that can fail.
            let _ = watcher.pause(&Pause::Memory);
            if is_write && let Some(network) = &watcher.network {
                network.note(&Act::Written { at: start, len });
            }
            self.note_program_access(start, len, is_write, at);
        }
    }
}
