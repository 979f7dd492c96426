//! Memory regions and windows: keys, and the check that every access to memory passes.
//!
//! An lkey and an rkey are different numbers: half the key space is for
//! each, so that a program which sends its lkey where the rkey belongs (it works
//! on adapters that make them equal) is told so here. For programs as they are a table
//! can make them equal, too ([`MrTable::with_equal_keys`]).

mod access;
mod copies;
mod region;
mod rereg;
#[cfg(test)]
mod tests;
mod window;
#[cfg(test)]
mod window_tests;

use urxe_wire::{Lkey, Rkey};

use crate::detail::MrFacts;
use crate::permute::Permutation24;
use crate::table::shrink;
pub use access::Access;
pub use copies::MrCopy;
pub use region::{AccessFault, Accessor, MrInit, MrKeys, MrSpan, PdId, RegisterError};
pub use rereg::MrChange;
use window::Window;
pub use window::{BindMw, MwType, WindowFault, inc_rkey};

#[derive(Clone, Copy, Debug)]
struct Slot {
    init: MrInit,
    keys: MrKeys,
    live: bool,
    rkey_valid: bool,
    kind: Kind,
}

/// What a slot is used for.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A region to which so many windows are bound.
    Region { windows: u32 },
    /// A region without bytes, of this domain.
    Null(PdId),
    /// A window: its bytes, when bound, are a region's.
    Window(Window),
}

/// All regions and windows of a device context.
#[derive(Debug)]
pub struct MrTable {
    slots: Vec<Slot>,
    /// By slot: counts how often it was used, so that keys come back late. It outlives the slot ([`MrTable::shrink`]).
    generations: Vec<u8>,
    /// Windows that are bound to a QP.
    qp_windows: u32,
    free: Vec<u32>,
    permutation: Permutation24,
    variant_state: u64,
    has_equal_keys: bool,
    /// By what a key hides: a slot that such a key was made for last. Most keys are found here, without the permutation.
    hints: Box<[u32; HINTS]>,
}

const SLOT_BITS: u32 = 17;
const GENERATION_BITS: u32 = 6;
const REMOTE_BIT: u32 = 1 << (SLOT_BITS + GENERATION_BITS);
/// More than most programs have keys. Each packet of a short message checks two or three.
const HINTS: usize = 1024;

impl MrTable {
    /// Most regions that may exist at once.
    pub const REGIONS_MAX: usize = 1 << SLOT_BITS;
    /// Bytes of each half of what stands behind a region without bytes: more than a
    /// packet has.
    pub const NULL_BYTES: usize = 1 << 16;

    /// An empty table; its keys follow from `secret`.
    pub fn new(secret: u64) -> MrTable {
        MrTable {
            slots: Vec::new(),
            generations: Vec::new(),
            qp_windows: 0,
            free: Vec::new(),
            permutation: Permutation24::new(secret),
            variant_state: secret.rotate_left(32) ^ 0x6a09_e667_f3bc_c909,
            has_equal_keys: false,
            hints: Box::new([0; HINTS]),
        }
    }

    /// The same table, still empty, in which a region's lkey and rkey are one number, or two.
    pub fn with_equal_keys(mut self, are_equal: bool) -> MrTable {
        self.has_equal_keys = are_equal;
        self
    }

    /// Registers a region.
    ///
    /// # Errors
    /// [`RegisterError`] when the rights contradict each other or there is no room.
    pub fn register(&mut self, init: MrInit) -> Result<MrKeys, RegisterError> {
        init.check()?;
        let kind = Kind::Region { windows: 0 };
        self.insert(init, kind, true)
    }

    /// A region of this domain that has no bytes: reading it yields zeros, and what is
    /// written to it is gone. Every address is in it.
    ///
    /// `scratch` is the place of [`MrTable::NULL_BYTES`] bytes that stay zero and as many
    /// that are written to.
    ///
    /// # Errors
    /// [`RegisterError::Full`].
    pub fn register_null(&mut self, pd: PdId, scratch: u64) -> Result<Lkey, RegisterError> {
        let init = MrInit {
            pd: PdId::NONE,
            access: Access::LOCAL_WRITE,
            host_addr: scratch,
            iova: 0,
            len: 0,
            remote_invalidate: false,
        };
        Ok(self.insert(init, Kind::Null(pd), false)?.lkey)
    }

    fn insert(
        &mut self,
        init: MrInit,
        kind: Kind,
        rkey_valid: bool,
    ) -> Result<MrKeys, RegisterError> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < Self::REGIONS_MAX => self.slots.len() as u32,
            None => return Err(RegisterError::Full(Self::REGIONS_MAX)),
        };
        if self.generations.len() == slot as usize {
            self.generations.push(0);
        }
        let generation = &mut self.generations[slot as usize];
        *generation = (*generation + 1) & ((1 << GENERATION_BITS) - 1);
        let index = (u32::from(*generation) << SLOT_BITS) | slot;
        let rkey = Rkey(self.make_key(index | REMOTE_BIT));
        let lkey = match self.has_equal_keys {
            true => Lkey(rkey.0),
            false => Lkey(self.make_key(index)),
        };
        let keys = MrKeys { lkey, rkey };
        for key in [keys.lkey.0, keys.rkey.0] {
            self.hints[hint_of(key)] = slot;
        }
        let new = Slot {
            init,
            keys,
            live: true,
            rkey_valid,
            kind,
        };
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = new,
            None => self.slots.push(new),
        }
        Ok(keys)
    }

    /// Takes a region back. From here on no check passes for its keys; spans are
    /// used up within the call that made them, so none outlives this. Windows that are
    /// bound to it are unbound.
    ///
    /// Returns false if no region has the key.
    pub fn deregister(&mut self, lkey: Lkey) -> bool {
        let Some(slot) = self.region_slot(lkey) else {
            return false;
        };
        self.unbind_all_of(slot);
        self.slots[slot].live = false;
        self.free.push(slot as u32);
        true
    }

    /// Number of windows that are bound to a region.
    pub fn windows_of(&self, lkey: Lkey) -> u32 {
        match self.region_slot(lkey).map(|slot| self.slots[slot].kind) {
            Some(Kind::Region { windows }) => windows,
            _ => 0,
        }
    }

    /// The slot of the region (with bytes or without) that has this lkey.
    fn region_slot(&self, lkey: Lkey) -> Option<usize> {
        self.slot_of(lkey.0, 0)
            .filter(|&slot| self.slots[slot].keys.lkey == lkey)
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
        if slot.init.pd != pd {
            return slot.null_span(pd, len, need);
        }
        slot.span(addr, len, need)
    }

    /// Checks a peer's access.
    ///
    /// # Errors
    /// The first check that refused: key, PD, bounds, rights.
    #[inline]
    pub fn check_remote(
        &self,
        rkey: Rkey,
        by: Accessor,
        addr: u64,
        len: usize,
        need: Access,
    ) -> Result<MrSpan, AccessFault> {
        self.opened(rkey, by)?.span(addr, len, need)
    }

    /// What an rkey opens.
    #[inline(always)]
    fn opened(&self, rkey: Rkey, by: Accessor) -> Result<&Slot, AccessFault> {
        let slot = self.slot_of(rkey.0, REMOTE_BIT).ok_or(AccessFault::Key)?;
        let slot = &self.slots[slot];
        if slot.keys.rkey != rkey || !slot.rkey_valid {
            mark!(StaleWindowKey if matches!(slot.kind, Kind::Window(_)));
            return Err(AccessFault::Key);
        }
        if slot.init.pd != by.pd {
            slot.opens_for(by)?;
        }
        Ok(slot)
    }

    /// Checks a peer's access to all of a region.
    ///
    /// # Errors
    /// The first check that refused: key, PD, rights.
    pub fn check_remote_whole(
        &self,
        rkey: Rkey,
        by: Accessor,
        need: Access,
    ) -> Result<MrSpan, AccessFault> {
        let slot = self.slot_of(rkey.0, REMOTE_BIT).ok_or(AccessFault::Key)?;
        let init = &self.slots[slot].init;
        let len = usize::try_from(init.len).map_err(|_| AccessFault::Bounds)?;
        self.check_remote(rkey, by, init.iova, len, need)
    }

    /// May this rkey be taken back: by LOCAL_INV, or by a peer's SEND with invalidate?
    /// Those of type 2 windows may by the window's own QP, and those of regions where
    /// that was allowed and no window is bound.
    ///
    /// # Errors
    /// [`AccessFault::Key`] if nothing has it, [`AccessFault::Pd`] if that is in another
    /// PD (or another QP's window), [`AccessFault::Access`] if it may not be invalidated.
    pub fn check_invalidate(&self, rkey: Rkey, by: Accessor) -> Result<(), AccessFault> {
        let slot = self.opened(rkey, by)?;
        let may = match slot.kind {
            Kind::Region { windows } => slot.init.remote_invalidate && windows == 0,
            Kind::Window(window) => window.mw_type == MwType::Type2,
            Kind::Null(_) => false,
        };
        may.then_some(()).ok_or(AccessFault::Access)
    }

    /// Makes an rkey useless; a passed [`MrTable::check_invalidate`] comes first.
    pub fn invalidate(&mut self, rkey: Rkey) {
        if let Some(slot) = self.slot_of(rkey.0, REMOTE_BIT)
            && self.slots[slot].keys.rkey == rkey
        {
            self.unbind(slot);
            self.slots[slot].rkey_valid = false;
        }
    }

    /// Lets peers take a region's rkey back by SEND with invalidate, or not. Returns
    /// false if no region has the key.
    pub fn set_remote_invalidate(&mut self, lkey: Lkey, allowed: bool) -> bool {
        let slot = self.region_slot(lkey);
        slot.map(|slot| self.slots[slot].init.remote_invalidate = allowed)
            .is_some()
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
        let slot = self.slots[slot];
        let pd = match slot.kind {
            Kind::Region { .. } => slot.init.pd,
            Kind::Null(pd) | Kind::Window(Window { pd, .. }) => pd,
        };
        Some(MrFacts {
            keys: slot.keys,
            rkey_valid: slot.rkey_valid,
            init: MrInit { pd, ..slot.init },
        })
    }

    /// The region with this lkey. For diagnosis: a peer that was given an lkey for an
    /// rkey sends such a number.
    pub fn region_of_lkey(&self, key: u32) -> Option<&MrInit> {
        let slot = &self.slots[self.slot_of(key, 0)?];
        (slot.keys.lkey.0 == key).then_some(&slot.init)
    }

    /// Number of regions and windows.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives up free slots, if hardly any of very many is used. What counts how often they were used stays: a
    /// key comes back no earlier for it. Looks at all slots.
    pub fn shrink(&mut self) {
        shrink(&mut self.slots, &mut self.free, |slot| slot.live);
    }

    /// True if nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The live slot that a key points at, if the key is of this kind.
    #[inline]
    fn slot_of(&self, key: u32, kind: u32) -> Option<usize> {
        let hint = self.hints[hint_of(key)] as usize;
        if let Some(slot) = self.slots.get(hint) {
            let found = if kind == REMOTE_BIT {
                slot.keys.rkey.0
            } else {
                slot.keys.lkey.0
            };
            if found == key && slot.live {
                return Some(hint);
            }
        }
        self.slot_behind(key, kind)
    }

    /// As [`MrTable::slot_of`], by what the key hides.
    #[inline(never)]
    fn slot_behind(&self, key: u32, kind: u32) -> Option<usize> {
        let index = self.permutation.backward(key >> 8);
        let slot = (index & ((1 << SLOT_BITS) - 1)) as usize;
        let is_kind = index & REMOTE_BIT == kind || kind == 0 && self.has_equal_keys;
        (is_kind && slot < self.slots.len() && self.slots[slot].live).then_some(slot)
    }

    fn make_key(&mut self, index: u32) -> u32 {
        self.variant_state = self
            .variant_state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.permutation.forward(index) << 8) | (self.variant_state >> 56) as u32
    }
}

/// Where the hint for a key is. (Its last byte changes with each bind of a window of type 2.)
#[inline]
fn hint_of(key: u32) -> usize {
    (key >> 8) as usize % HINTS
}

impl Slot {
    #[inline]
    fn span(&self, addr: u64, len: usize, need: Access) -> Result<MrSpan, AccessFault> {
        let offset = self.init.offset_of(addr, len as u64);
        let offset = offset.ok_or(AccessFault::Bounds)?;
        if !self.init.access.contains(need) {
            return Err(AccessFault::Access);
        }
        let host_addr = self.init.host_addr + offset;
        Ok(MrSpan { host_addr, len })
    }

    /// A local access by another domain than the slot says: right for a region without
    /// bytes, which has its own domain elsewhere.
    #[cold]
    fn null_span(&self, pd: PdId, len: usize, need: Access) -> Result<MrSpan, AccessFault> {
        if !matches!(self.kind, Kind::Null(own) if own == pd) {
            return Err(AccessFault::Pd);
        }
        let half = u64::from(need.contains(Access::LOCAL_WRITE)) * MrTable::NULL_BYTES as u64;
        Ok(MrSpan {
            host_addr: self.init.host_addr + half,
            // A longer entry is only ever checked as a whole, and touched packet by packet.
            len: len.min(MrTable::NULL_BYTES),
        })
    }

    /// A peer's access by another domain than the slot says: right for a window of the
    /// peer's own QP.
    #[cold]
    fn opens_for(&self, by: Accessor) -> Result<(), AccessFault> {
        match self.kind {
            Kind::Window(window) if window.pd == by.pd && window.qpn == Some(by.qpn) => Ok(()),
            _ => Err(AccessFault::Pd),
        }
    }
}
