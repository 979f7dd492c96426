//! Memory regions: keys, and the check that every access to memory passes.
//!
//! An lkey and an rkey are different numbers always: half the key space is for
//! each, so that a program which sends its lkey where the rkey belongs (it works
//! on adapters that make them equal) is told so here.

mod access;
mod region;
#[cfg(test)]
mod tests;

use urxe_wire::{Lkey, Rkey};

use crate::detail::MrFacts;
use crate::permute::Permutation24;
pub use access::Access;
pub use region::{AccessFault, MrInit, MrKeys, MrSpan, PdId, RegisterError};

#[derive(Clone, Copy, Debug)]
struct Slot {
    init: MrInit,
    keys: MrKeys,
    generation: u32,
    live: bool,
    rkey_valid: bool,
}

/// All regions of a device context.
#[derive(Debug)]
pub struct MrTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    permutation: Permutation24,
    variant_state: u64,
}

const SLOT_BITS: u32 = 17;
const GENERATION_BITS: u32 = 6;
const REMOTE_BIT: u32 = 1 << (SLOT_BITS + GENERATION_BITS);

impl MrTable {
    /// Most regions that may exist at once.
    pub const REGIONS_MAX: usize = 1 << SLOT_BITS;

    /// An empty table whose keys follow from `secret`.
    pub fn new(secret: u64) -> MrTable {
        MrTable {
            slots: Vec::new(),
            free: Vec::new(),
            permutation: Permutation24::new(secret),
            variant_state: secret.rotate_left(32) ^ 0x6a09_e667_f3bc_c909,
        }
    }

    /// Registers a region.
    ///
    /// # Errors
    /// [`RegisterError`] when the rights contradict each other or there is no room.
    pub fn register(&mut self, init: MrInit) -> Result<MrKeys, RegisterError> {
        const KNOWN: u32 = 0xf | Access::FLUSH_GLOBAL.0 | Access::FLUSH_PERSISTENT.0;
        // Bits 20..=29 are optional by definition: ignored where unknown.
        const OPTIONAL: u32 = 0x3ff0_0000;
        if init.access.0 & !(KNOWN | OPTIONAL) != 0 {
            return Err(RegisterError::UnknownAccess(init.access.0));
        }
        if init
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !init.access.contains(Access::LOCAL_WRITE)
        {
            return Err(RegisterError::RemoteWithoutLocalWrite);
        }
        if init.iova.checked_add(init.len).is_none()
            || init.host_addr.checked_add(init.len).is_none()
        {
            return Err(RegisterError::Wraps);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < Self::REGIONS_MAX => {
                self.slots.push(Slot {
                    init,
                    keys: MrKeys {
                        lkey: Lkey(0),
                        rkey: Rkey(0),
                    },
                    generation: 0,
                    live: false,
                    rkey_valid: false,
                });
                self.slots.len() as u32 - 1
            }
            None => return Err(RegisterError::Full(Self::REGIONS_MAX)),
        };
        let generation = (self.slots[slot as usize].generation + 1) & ((1 << GENERATION_BITS) - 1);
        let index = (generation << SLOT_BITS) | slot;
        let keys = MrKeys {
            lkey: Lkey(self.make_key(index)),
            rkey: Rkey(self.make_key(index | REMOTE_BIT)),
        };
        self.slots[slot as usize] = Slot {
            init,
            keys,
            generation,
            live: true,
            rkey_valid: true,
        };
        Ok(keys)
    }

    /// Takes a region back. From here on no check passes for its keys; spans are
    /// used up within the call that made them, so none outlives this.
    ///
    /// Returns false if no region has the key.
    pub fn deregister(&mut self, lkey: Lkey) -> bool {
        let Some(slot) = self.slot_of(lkey.0, 0) else {
            return false;
        };
        if self.slots[slot].keys.lkey != lkey {
            return false;
        }
        self.slots[slot].live = false;
        self.free.push(slot as u32);
        true
    }

    /// Checks a local scatter/gather entry.
    ///
    /// # Errors
    /// The first check that refused: key, PD, bounds, rights.
    #[inline]
    pub fn check_local(
        &self,
        lkey: Lkey,
        pd: PdId,
        addr: u64,
        len: usize,
        need: Access,
    ) -> Result<MrSpan, AccessFault> {
        let slot = self.slot_of(lkey.0, 0).ok_or(AccessFault::Key)?;
        let slot = &self.slots[slot];
        if slot.keys.lkey != lkey {
            return Err(AccessFault::Key);
        }
        slot.span(pd, addr, len, need)
    }

    /// Checks a peer's access.
    ///
    /// # Errors
    /// The first check that refused: key, PD, bounds, rights.
    #[inline]
    pub fn check_remote(
        &self,
        rkey: Rkey,
        pd: PdId,
        addr: u64,
        len: usize,
        need: Access,
    ) -> Result<MrSpan, AccessFault> {
        let slot = self.slot_of(rkey.0, REMOTE_BIT).ok_or(AccessFault::Key)?;
        let slot = &self.slots[slot];
        if slot.keys.rkey != rkey || !slot.rkey_valid {
            return Err(AccessFault::Key);
        }
        slot.span(pd, addr, len, need)
    }

    /// Checks a peer's access to all of a region.
    ///
    /// # Errors
    /// The first check that refused: key, PD, rights.
    pub fn check_remote_whole(
        &self,
        rkey: Rkey,
        pd: PdId,
        need: Access,
    ) -> Result<MrSpan, AccessFault> {
        let slot = self.slot_of(rkey.0, REMOTE_BIT).ok_or(AccessFault::Key)?;
        let init = &self.slots[slot].init;
        let len = usize::try_from(init.len).map_err(|_| AccessFault::Bounds)?;
        self.check_remote(rkey, pd, init.iova, len, need)
    }

    /// Takes an rkey back on behalf of a peer's SEND with invalidate.
    ///
    /// # Errors
    /// [`AccessFault::Key`] if no region has it, [`AccessFault::Pd`] if that is in
    /// another PD, [`AccessFault::Access`] if it may not be invalidated remotely.
    pub fn check_invalidate(&self, rkey: Rkey, pd: PdId) -> Result<(), AccessFault> {
        let slot = self.slot_of(rkey.0, REMOTE_BIT).ok_or(AccessFault::Key)?;
        let slot = &self.slots[slot];
        if slot.keys.rkey != rkey || !slot.rkey_valid {
            return Err(AccessFault::Key);
        }
        if slot.init.pd != pd {
            return Err(AccessFault::Pd);
        }
        if !slot.init.remote_invalidate {
            return Err(AccessFault::Access);
        }
        Ok(())
    }

    /// Makes an rkey useless; a passed [`MrTable::check_invalidate`] comes first.
    pub fn invalidate(&mut self, rkey: Rkey) {
        if let Some(slot) = self.slot_of(rkey.0, REMOTE_BIT)
            && self.slots[slot].keys.rkey == rkey
        {
            self.slots[slot].rkey_valid = false;
        }
    }

    /// Lets peers take a region's rkey back by SEND with invalidate, or not. Returns
    /// false if no region has the key.
    pub fn set_remote_invalidate(&mut self, lkey: Lkey, allowed: bool) -> bool {
        match self.slot_of(lkey.0, 0) {
            Some(slot) if self.slots[slot].keys.lkey == lkey => {
                self.slots[slot].init.remote_invalidate = allowed;
                true
            }
            _ => false,
        }
    }

    /// The region that has this lkey or rkey (an invalidated one too). For reports.
    pub(crate) fn facts(&self, key: u32) -> Option<MrFacts> {
        let sides = [0, REMOTE_BIT].into_iter();
        let slot = sides
            .filter_map(|side| self.slot_of(key, side))
            .find(|&n| {
                let Slot { keys, live, .. } = self.slots[n];
                live && (keys.lkey.0 == key || keys.rkey.0 == key)
            })?;
        let Slot {
            init,
            keys,
            rkey_valid,
            ..
        } = self.slots[slot];
        Some(MrFacts {
            keys,
            rkey_valid,
            pd: init.pd,
            access: init.access,
            iova: init.iova,
            len: init.len,
        })
    }

    /// The region whose lkey this is. For diagnosis: a peer that was given an lkey for an
    /// rkey sends such a number.
    pub fn region_of_lkey(&self, key: u32) -> Option<&MrInit> {
        let slot = &self.slots[self.slot_of(key, 0)?];
        (slot.keys.lkey.0 == key).then_some(&slot.init)
    }

    /// Number of registered regions.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The live slot that a key points at, if the key is of this kind.
    #[inline]
    fn slot_of(&self, key: u32, kind: u32) -> Option<usize> {
        let index = self.permutation.backward(key >> 8);
        let slot = (index & ((1 << SLOT_BITS) - 1)) as usize;
        (index & REMOTE_BIT == kind && slot < self.slots.len() && self.slots[slot].live)
            .then_some(slot)
    }

    fn make_key(&mut self, index: u32) -> u32 {
        self.variant_state = self
            .variant_state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.permutation.forward(index) << 8) | (self.variant_state >> 56) as u32
    }
}

impl Slot {
    #[inline]
    fn span(&self, pd: PdId, addr: u64, len: usize, need: Access) -> Result<MrSpan, AccessFault> {
        if self.init.pd != pd {
            return Err(AccessFault::Pd);
        }
        // In this order nothing can overflow.
        if addr < self.init.iova
            || len as u64 > self.init.len
            || addr - self.init.iova > self.init.len - len as u64
        {
            return Err(AccessFault::Bounds);
        }
        if !self.init.access.contains(need) {
            return Err(AccessFault::Access);
        }
        Ok(MrSpan {
            host_addr: self.init.host_addr + (addr - self.init.iova),
            len,
        })
    }
}
