//! Memory keys: regions and windows come and go under the engine's lock, so that no packet
//! is being handled meanwhile.

use urxe_core::mr::{Access, MrChange, MrCopy, MrInit, MrKeys, MwType, PdId, RegisterError};
use urxe_core::work::Sge;
use urxe_wire::{Lkey, Rkey};

use crate::advice::{Advice, AdviseFault};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::mem;

/// Bytes that are prefetched while other threads wait.
const PREFETCH_BYTES: usize = 256 << 10;

impl Engine {
    pub(crate) fn register(&self, init: MrInit) -> Result<MrKeys, Error> {
        Ok(self.enter()?.mrs.register(init)?)
    }

    pub(crate) fn register_null(&self, pd: PdId, scratch: u64) -> Result<Lkey, Error> {
        Ok(self.enter()?.mrs.register_null(pd, scratch)?)
    }

    pub(crate) fn reregister(&self, lkey: Lkey, change: &MrChange) -> Result<MrKeys, Error> {
        Ok(self.enter()?.mrs.reregister(lkey, change)?)
    }

    /// A region, for another shard.
    pub(crate) fn copy_of(&self, lkey: Lkey) -> Result<MrCopy, Error> {
        let copy = self.enter()?.mrs.copy_of(lkey);
        // Keys are only lost with the engine.
        copy.ok_or_else(|| ErrorKind::EngineFailed.into())
    }

    /// Another shard's region.
    pub(crate) fn put(&self, copy: MrCopy) -> Result<(), Error> {
        self.enter()?.mrs.put(copy);
        Ok(())
    }

    /// Lets peers invalidate the rkey of a region, or not.
    pub(crate) fn set_remote_invalidate(&self, lkey: Lkey, allowed: bool) -> Result<(), Error> {
        let known = self.enter()?.mrs.set_remote_invalidate(lkey, allowed);
        debug_assert!(known, "a live region's key is known");
        Ok(())
    }

    /// Returns once no packet can touch the region any more: spans live no longer than
    /// the lock is held.
    pub(crate) fn deregister(&self, lkey: Lkey) {
        if let Ok(mut state) = self.enter() {
            state.strict_mut(|strict, shard, _| strict.on_deregister(lkey, shard));
            state.mrs.deregister(lkey);
        }
    }

    /// Refuses if windows are bound to the region.
    pub(crate) fn check_unbound(&self, lkey: Lkey) -> Result<(), Error> {
        match self.enter()?.mrs.windows_of(lkey) {
            0 => Ok(()),
            bound => Err(RegisterError::Bound(bound).into()),
        }
    }

    pub(crate) fn alloc_mw(&self, pd: PdId, mw_type: MwType) -> Result<Rkey, Error> {
        Ok(self.enter()?.mrs.alloc_mw(pd, mw_type)?)
    }

    pub(crate) fn dealloc_mw(&self, rkey: Rkey) {
        if let Ok(mut state) = self.enter() {
            state.mrs.dealloc_mw(rkey);
        }
    }

    /// Brings an entry's pages in, a part at a time: a region may be deregistered between.
    pub(crate) fn prefetch(&self, pd: PdId, advice: Advice, sge: &Sge) -> Result<(), AdviseFault> {
        let need = match advice {
            Advice::PrefetchWrite => Access::LOCAL_WRITE,
            Advice::Prefetch | Advice::PrefetchNoFault => Access::NONE,
        };
        let mut done = 0;
        loop {
            let len = (sge.length as usize - done).min(PREFETCH_BYTES);
            let addr = sge.addr.checked_add(done as u64);
            let addr = addr.ok_or(AdviseFault::Bounds)?;
            let state = self.enter().map_err(|_| AdviseFault::Engine)?;
            let span = state.mrs.check_local(sge.lkey, pd, addr, len, need)?;
            if advice != Advice::PrefetchNoFault {
                mem::touch(span, advice == Advice::PrefetchWrite)?;
            }
            done += len;
            if done == sge.length as usize {
                return Ok(());
            }
        }
    }
}
