//! Memory regions: keys, and the check that every access to memory passes.
//!
//! An lkey and an rkey are different numbers always: half the key space is for
//! each, so that a program which sends its lkey where the rkey belongs (it works
//! on adapters that make them equal) is told so here.

use urxe_wire::{Lkey, Rkey};

use crate::detail::MrFacts;
use crate::permute::Permutation24;

/// Rights of an MR or a QP, with the bits of `enum ibv_access_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[doc(alias = "ibv_access_flags")]
pub struct Access(pub u32);

impl Access {
    /// Local reads only.
    pub const NONE: Access = Access(0);
    /// The adapter may write here for local work requests (receive, READ result).
    pub const LOCAL_WRITE: Access = Access(1);
    /// A peer may RDMA WRITE here.
    pub const REMOTE_WRITE: Access = Access(2);
    /// A peer may RDMA READ from here.
    pub const REMOTE_READ: Access = Access(4);
    /// A peer may do atomics here.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// A peer may FLUSH here for global visibility.
    pub const FLUSH_GLOBAL: Access = Access(0x100);
    /// A peer may FLUSH here for persistence.
    pub const FLUSH_PERSISTENT: Access = Access(0x200);

    /// True if every right of `other` is here too.
    #[inline]
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if some right of `other` is here.
    #[inline]
    pub const fn intersects(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }
}

impl core::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// Identity of a protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

/// What to register.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_reg_mr_iova")]
pub struct MrInit {
    /// Its protection domain.
    pub pd: PdId,
    /// Rights.
    pub access: Access,
    /// Where the bytes are, in the form that the [`crate::memory::Memory`] understands.
    pub host_addr: u64,
    /// The address that work requests and peers name the first byte by.
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// May a peer's SEND with invalidate take the rkey back?
    pub remote_invalidate: bool,
}

/// The keys of a registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrKeys {
    /// For local scatter/gather entries.
    pub lkey: Lkey,
    /// For peers.
    pub rkey: Rkey,
}

/// Bytes that a passed check allows to be touched. Only this file makes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrSpan {
    host_addr: u64,
    len: usize,
}

impl MrSpan {
    /// Where the first byte is.
    #[inline]
    pub fn host_addr(self) -> u64 {
        self.host_addr
    }

    /// Number of bytes.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// True for a span of no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the part is not inside.
    pub fn part(self, offset: usize, len: usize) -> MrSpan {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "a part of a span lies inside it");
        MrSpan {
            host_addr: self.host_addr + offset as u64,
            len,
        }
    }
}

/// Why a key check refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessFault {
    /// No region has this key (or it was invalidated).
    Key,
    /// The region is in another protection domain.
    Pd,
    /// Outside the region.
    Bounds,
    /// The region lacks the right.
    Access,
}

/// Why a registration was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// REMOTE_WRITE or REMOTE_ATOMIC without LOCAL_WRITE.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too")]
    RemoteWithoutLocalWrite,
    /// A right that is not known.
    #[error("access flags {0:#x} hold bits that are not supported here")]
    UnknownAccess(u32),
    /// The region wraps around the end of the address space.
    #[error("the region wraps around the end of the address space")]
    Wraps,
    /// No room for more regions.
    #[error("all {0} memory regions are in use")]
    Full(usize),
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);

    fn init(access: Access) -> MrInit {
        MrInit {
            pd: PD,
            access,
            host_addr: 0x9000,
            iova: 0x1000,
            len: 0x100,
            remote_invalidate: false,
        }
    }

    fn table() -> (MrTable, MrKeys) {
        let mut t = MrTable::new(7);
        let keys = t.register(init(Access(0xf))).expect("fits");
        (t, keys)
    }

    #[test]
    fn a_passed_check_translates() {
        let (t, k) = table();
        let span = t
            .check_remote(k.rkey, PD, 0x1010, 8, Access::REMOTE_READ)
            .expect("inside");
        assert_eq!((span.host_addr(), span.len()), (0x9010, 8));
    }

    #[test]
    fn bounds_to_the_byte() {
        let (t, k) = table();
        let at = |addr, len| t.check_local(k.lkey, PD, addr, len, Access::NONE);
        assert!(at(0x1000, 0x100).is_ok());
        assert!(at(0x1100, 0).is_ok());
        assert_eq!(at(0xfff, 1), Err(AccessFault::Bounds));
        assert_eq!(at(0x1000, 0x101), Err(AccessFault::Bounds));
        assert_eq!(at(0x10ff, 2), Err(AccessFault::Bounds));
        assert_eq!(at(u64::MAX, 2), Err(AccessFault::Bounds));
        assert_eq!(at(0x1001, usize::MAX), Err(AccessFault::Bounds));
    }

    #[test]
    fn an_lkey_is_never_an_rkey() {
        let (t, k) = table();
        assert_ne!(k.lkey.0, k.rkey.0);
        assert_eq!(
            t.check_remote(Rkey(k.lkey.0), PD, 0x1000, 1, Access::NONE),
            Err(AccessFault::Key)
        );
        assert_eq!(
            t.check_local(Lkey(k.rkey.0), PD, 0x1000, 1, Access::NONE),
            Err(AccessFault::Key)
        );
    }

    #[test]
    fn all_32_bits_of_a_key_count() {
        let (t, k) = table();
        for bit in 0..32 {
            let forged = Rkey(k.rkey.0 ^ (1 << bit));
            assert_eq!(
                t.check_remote(forged, PD, 0x1000, 1, Access::NONE),
                Err(AccessFault::Key),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_key_dies_with_its_region() {
        let (mut t, k) = table();
        assert!(t.deregister(k.lkey));
        assert!(!t.deregister(k.lkey));
        assert_eq!(
            t.check_local(k.lkey, PD, 0x1000, 1, Access::NONE),
            Err(AccessFault::Key)
        );
        // The slot is used again, under other keys.
        let again = t.register(init(Access(0xf))).expect("fits");
        assert_ne!(again.rkey, k.rkey);
        assert_eq!(
            t.check_remote(k.rkey, PD, 0x1000, 1, Access::NONE),
            Err(AccessFault::Key)
        );
        assert_eq!(t.len(), 1);
    }

    #[test]
    fn pd_and_rights() {
        let mut t = MrTable::new(9);
        let k = t.register(init(Access::REMOTE_READ)).expect("fits");
        let check = |pd, need| t.check_remote(k.rkey, pd, 0x1000, 1, need);
        assert!(check(PD, Access::REMOTE_READ).is_ok());
        assert_eq!(check(PdId(2), Access::REMOTE_READ), Err(AccessFault::Pd));
        assert_eq!(check(PD, Access::REMOTE_WRITE), Err(AccessFault::Access));
    }

    #[test]
    fn registrations_that_contradict_themselves() {
        let mut t = MrTable::new(9);
        assert_eq!(
            t.register(init(Access::REMOTE_WRITE)),
            Err(RegisterError::RemoteWithoutLocalWrite)
        );
        assert_eq!(
            t.register(init(Access(0x4000))),
            Err(RegisterError::UnknownAccess(0x4000))
        );
        assert!(
            t.register(init(Access(1 << 20))).is_ok(),
            "optional bits are ignored"
        );
        let wraps = MrInit {
            len: u64::MAX,
            ..init(Access::NONE)
        };
        assert_eq!(t.register(wraps), Err(RegisterError::Wraps));
    }

    #[test]
    fn invalidation_takes_the_rkey_and_leaves_the_lkey() {
        let mut t = MrTable::new(9);
        let k = t
            .register(MrInit {
                remote_invalidate: true,
                ..init(Access(0xf))
            })
            .expect("fits");
        assert_eq!(t.check_invalidate(k.rkey, PdId(5)), Err(AccessFault::Pd));
        t.check_invalidate(k.rkey, PD).expect("allowed");
        t.invalidate(k.rkey);
        assert_eq!(
            t.check_remote(k.rkey, PD, 0x1000, 1, Access::NONE),
            Err(AccessFault::Key)
        );
        assert!(t.check_local(k.lkey, PD, 0x1000, 1, Access::NONE).is_ok());
        let (plain, keys) = table();
        assert_eq!(
            plain.check_invalidate(keys.rkey, PD),
            Err(AccessFault::Access)
        );
    }
}
