//! Calls of programs that somebody looks at: strict mode, or a network that must know when the
//! program lets time pass. The usual calls know of both by one branch.

use urxe_core::work::{RecvWr, SendWr};

use super::Engine;
use super::cq::CqCore;
use super::doorbell::Poisoned;
use super::inlet::Refused;
use super::post::QpShared;
use super::srq::SrqShared;
use crate::network::Pause;
use crate::strict::Place;
use crate::wc::Wc;

impl QpShared {
    /// [`QpShared::post_sends`].
    #[cold]
    pub(crate) fn post_sends_observed<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = SendWr<'a>>,
        at: Place,
    ) -> Result<(), Refused> {
        engine.post_observed(
            wrs,
            |wrs| self.post_sends_strict(engine, wrs, at),
            |wrs| self.post_sends(engine, wrs),
        )
    }

    /// [`QpShared::post_all_sends`].
    #[cold]
    pub(crate) fn post_all_sends_observed<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = SendWr<'a>> + Clone,
        at: Place,
    ) -> Result<(), Refused> {
        engine.post_observed(
            wrs,
            |wrs| self.post_all_sends_strict(engine, wrs, at),
            |wrs| self.post_all_sends(engine, wrs),
        )
    }

    /// [`QpShared::post_recvs`].
    #[cold]
    pub(crate) fn post_recvs_observed<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = RecvWr<'a>>,
        at: Place,
    ) -> Result<(), Refused> {
        engine.post_observed(
            wrs,
            |wrs| self.post_recvs_strict(engine, wrs, at),
            |wrs| self.post_recvs(engine, wrs),
        )
    }
}

impl SrqShared {
    /// [`SrqShared::post_recvs`].
    #[cold]
    pub(crate) fn post_recvs_observed<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = RecvWr<'a>>,
        at: Place,
    ) -> Result<(), Refused> {
        engine.post_observed(
            wrs,
            |wrs| self.post_recvs_strict(engine, wrs, at),
            |wrs| self.post_recvs(engine, wrs),
        )
    }
}

impl Engine {
    fn post_observed<W>(
        &self,
        wrs: W,
        strictly: impl FnOnce(W) -> Result<(), Refused>,
        plainly: impl FnOnce(W) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.pause(&Pause::Post)?;
        if self.is_strict {
            strictly(wrs)
        } else {
            plainly(wrs)
        }
    }

    /// [`Engine::poll`].
    #[cold]
    pub(super) fn poll_observed(&self, cq: &CqCore, out: &mut [Wc]) -> Result<usize, Poisoned> {
        let poll = |out: &mut [Wc]| match self.is_strict {
            true => self.poll_strict(cq, out),
            false => self.poll_usual(cq, out),
        };
        let found = poll(out)?;
        if found > 0 || self.network.is_none() || !cq.is_empty() {
            return Ok(found);
        }
        self.pause(&Pause::Poll)?;
        poll(out)
    }

    /// The program is about to read or write memory by a call of the library.
    #[cold]
    pub(crate) fn on_program_access(&self, start: u64, len: usize, is_write: bool, at: Place) {
        // That the host is no more, the program hears from its next call that can fail.
        let _ = self.pause(&Pause::Memory);
        if self.is_strict {
            self.note_program_access(start, len, is_write, at);
        }
    }
}
