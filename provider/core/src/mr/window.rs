//! Memory windows: rkeys for a part of a region, given and taken back by work requests.
//!
//! A window has a place in the same table as regions, and when it is bound, its slot looks
//! like a region's: so a peer's access through it is checked by the same few comparisons.
//!
//! * Type 1 (`ibv_bind_mw`): any QP of the domain may bind it, again and again; its rkey
//!   opens to every QP of the domain. Length 0 unbinds.
//! * Type 2 (posted BIND_MW; the variant that the standard calls 2B): free, bound to a
//!   QP, and freed by LOCAL_INV or a peer's SEND with invalidate. It opens to that QP only.

use urxe_wire::{Lkey, Qpn, Rkey};

use super::{Access, Accessor, Kind, MrInit, MrTable, PdId, REMOTE_BIT, RegisterError, SLOT_BITS};

/// Type of a window, with the numbers of `enum ibv_mw_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
#[doc(alias = "ibv_mw_type")]
pub enum MwType {
    /// Bound by `ibv_bind_mw`, with a new rkey each time.
    Type1 = 1,
    /// Bound by a posted request, with an rkey that the program chooses.
    Type2 = 2,
}

/// What a window is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_mw_bind_info")]
pub struct BindMw {
    /// The region.
    pub lkey: Lkey,
    /// First byte, as the region's addresses count.
    pub addr: u64,
    /// Number of bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// What peers may do: remote rights, and for type 2 windows ZERO_BASED.
    pub access: Access,
}

/// Why a window could not be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WindowFault {
    /// No window has this key.
    #[error("a key that no window has")]
    Window,
    /// The window, the region and the QP are not of one protection domain.
    #[error("a window, an MR and a QP of different protection domains")]
    Pd,
    /// A type 2 window that is not free.
    #[error("a type 2 window that is bound already")]
    State,
    /// Rights that windows of this type cannot give.
    #[error("rights that windows of this type cannot give")]
    Access,
    /// No region has the lkey, or it has not the rights that are needed.
    #[error("an MR that is not there, lacks MW_BIND or LOCAL_WRITE, or is zero-based")]
    Region,
    /// Outside the region, or of no length.
    #[error("a range that is not inside the MR, or of no length")]
    Bounds,
}

/// The state of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) mw_type: MwType,
    pub(super) pd: PdId,
    /// The slot of the region that it is bound to.
    pub(super) region: Option<u32>,
    /// The QP that it opens to, of type 2.
    pub(super) qpn: Option<Qpn>,
}

impl MrTable {
    /// Allocates a window that is bound to nothing.
    ///
    /// # Errors
    /// [`RegisterError::Full`].
    pub fn alloc_mw(&mut self, pd: PdId, mw_type: MwType) -> Result<Rkey, RegisterError> {
        let init = MrInit {
            pd: PdId::NONE,
            access: Access::NONE,
            host_addr: 0,
            iova: 0,
            len: 0,
            remote_invalidate: false,
        };
        let window = Window {
            mw_type,
            pd,
            region: None,
            qpn: None,
        };
        let keys = self.insert(init, Kind::Window(window), false)?;
        // Nothing has an lkey with this bit, so none opens a window locally.
        let slot = self.window_slot(keys.rkey).expect("just inserted");
        self.slots[slot].keys.lkey = Lkey(keys.rkey.0);
        Ok(keys.rkey)
    }

    /// Takes a window back, bound or not. Returns false if none has the key.
    pub fn dealloc_mw(&mut self, rkey: Rkey) -> bool {
        let Some(slot) = self.window_slot(rkey) else {
            return false;
        };
        self.unbind(slot);
        self.slots[slot].live = false;
        self.free.push(slot as u32);
        true
    }

    /// Binds a window; `rkey` names it by its upper 24 bits, and becomes its key.
    ///
    /// # Errors
    /// [`WindowFault`], and nothing has changed.
    pub fn bind_mw(&mut self, by: Accessor, rkey: Rkey, bind: &BindMw) -> Result<(), WindowFault> {
        let (slot, region) = self.check_bind(by, rkey, bind)?;
        self.unbind(slot);
        self.slots[slot].keys = super::MrKeys {
            lkey: Lkey(rkey.0),
            rkey,
        };
        if let Some(region) = region {
            self.attach(slot, region, by, bind);
        }
        Ok(())
    }

    /// The slots of the window and of the region that it is to be bound to, if it may.
    pub(crate) fn check_bind(
        &self,
        by: Accessor,
        rkey: Rkey,
        bind: &BindMw,
    ) -> Result<(usize, Option<usize>), WindowFault> {
        let slot = self.window_slot(rkey).ok_or(WindowFault::Window)?;
        let Kind::Window(window) = self.slots[slot].kind else {
            return Err(WindowFault::Window);
        };
        if window.pd != by.pd {
            return Err(WindowFault::Pd);
        }
        check_state(&window, bind)?;
        if bind.length == 0 {
            return Ok((slot, None));
        }
        Ok((slot, Some(self.check_region(&window, bind)?)))
    }

    /// A QP is gone, and its number may be given to another: what opened to it is free.
    pub fn unbind_qp(&mut self, qpn: Qpn) {
        if self.qp_windows == 0 {
            return;
        }
        for slot in 0..self.slots.len() {
            if let Kind::Window(window) = self.slots[slot].kind
                && window.qpn == Some(qpn)
            {
                self.unbind(slot);
            }
        }
    }

    /// The slot of a region that the window can be bound to.
    fn check_region(&self, window: &Window, bind: &BindMw) -> Result<usize, WindowFault> {
        let slot = self.region_slot(bind.lkey).ok_or(WindowFault::Region)?;
        let region = &self.slots[slot];
        let Kind::Region { .. } = region.kind else {
            return Err(WindowFault::Region);
        };
        let init = &region.init;
        if init.pd != window.pd {
            return Err(WindowFault::Pd);
        }
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if !region.rkey_valid
            || !init.access.contains(Access::MW_BIND)
            || init.access.contains(Access::ZERO_BASED)
            || bind.access.intersects(writes) && !init.access.contains(Access::LOCAL_WRITE)
        {
            return Err(WindowFault::Region);
        }
        let offset = init.offset_of(bind.addr, bind.length);
        offset.map(|_| slot).ok_or(WindowFault::Bounds)
    }

    fn attach(&mut self, slot: usize, region: usize, by: Accessor, bind: &BindMw) {
        let base = &mut self.slots[region];
        if let Kind::Region { windows } = &mut base.kind {
            *windows += 1;
        }
        let host_addr = base.init.host_addr + (bind.addr - base.init.iova);
        let slot = &mut self.slots[slot];
        let Kind::Window(window) = &mut slot.kind else {
            return;
        };
        window.region = Some(region as u32);
        let (pd, iova) = match window.mw_type {
            MwType::Type1 => (window.pd, bind.addr),
            MwType::Type2 => {
                window.qpn = Some(by.qpn);
                self.qp_windows += 1;
                let is_zero_based = bind.access.contains(Access::ZERO_BASED);
                (PdId::NONE, if is_zero_based { 0 } else { bind.addr })
            }
        };
        slot.init = MrInit {
            pd,
            access: bind.access,
            host_addr,
            iova,
            len: bind.length,
            remote_invalidate: false,
        };
        slot.rkey_valid = true;
    }

    /// Unbinds what is in the slot, if it is a window that is bound.
    pub(super) fn unbind(&mut self, slot: usize) {
        let Kind::Window(window) = &mut self.slots[slot].kind else {
            return;
        };
        let (region, qpn) = (window.region.take(), window.qpn.take());
        self.qp_windows -= u32::from(qpn.is_some());
        if let Some(region) = region {
            self.slots[slot].rkey_valid = false;
            if let Kind::Region { windows } = &mut self.slots[region as usize].kind {
                *windows -= 1;
            }
        }
    }

    /// Unbinds every window of a region.
    pub(super) fn unbind_all_of(&mut self, region: usize) {
        if !matches!(self.slots[region].kind, Kind::Region { windows: 1.. }) {
            return;
        }
        for slot in 0..self.slots.len() {
            if let Kind::Window(window) = self.slots[slot].kind
                && window.region == Some(region as u32)
            {
                self.unbind(slot);
            }
        }
    }

    /// The slot of the window that an rkey names by its upper 24 bits.
    fn window_slot(&self, rkey: Rkey) -> Option<usize> {
        let slot = self.slot_of(rkey.0, REMOTE_BIT)?;
        let index = self.permutation.backward(rkey.0 >> 8);
        let generation = (index & !REMOTE_BIT) >> SLOT_BITS;
        let is_window = matches!(self.slots[slot].kind, Kind::Window(_));
        (is_window && u32::from(self.generations[slot]) == generation).then_some(slot)
    }
}

/// IBTA 10.6.7.2: a type 2 window is bound when it is free, and to something. Its key may be any, the last one too.
fn check_state(window: &Window, bind: &BindMw) -> Result<(), WindowFault> {
    let is_type_2 = window.mw_type == MwType::Type2;
    let may = if is_type_2 {
        Access::REMOTE | Access::ZERO_BASED
    } else {
        Access::REMOTE
    };
    if !may.contains(bind.access) {
        Err(WindowFault::Access)
    } else if is_type_2 && window.region.is_some() {
        Err(WindowFault::State)
    } else if is_type_2 && bind.length == 0 {
        Err(WindowFault::Bounds)
    } else {
        Ok(())
    }
}

/// The next rkey of a type 2 window.
#[doc(alias = "ibv_inc_rkey")]
pub fn inc_rkey(rkey: Rkey) -> Rkey {
    Rkey(rkey.0 & !0xff | rkey.0.wrapping_add(1) & 0xff)
}
