//! Registering again: a region's bytes, domain or rights change in place.

use urxe_wire::Lkey;

use super::{Access, Kind, MrInit, MrKeys, MrTable, PdId, RegisterError};

/// What is to change; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default)]
#[doc(alias = "ibv_rereg_mr_flags")]
pub struct MrChange {
    /// Other bytes: where the first is (as [`MrInit::host_addr`]), what it is named by,
    /// and how many there are.
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub translation: Option<(u64, u64, u64)>,
    /// Another protection domain.
    #[doc(alias = "IBV_REREG_MR_CHANGE_PD")]
    pub pd: Option<PdId>,
    /// Other rights.
    #[doc(alias = "IBV_REREG_MR_CHANGE_ACCESS")]
    pub access: Option<Access>,
}

impl MrInit {
    /// Do the rights and the place make sense?
    pub(super) fn check(&self) -> Result<(), RegisterError> {
        const KNOWN: u32 = 0xff | Access::FLUSH_GLOBAL.0 | Access::FLUSH_PERSISTENT.0;
        // Bits 20..=29 are optional by definition: ignored where unknown.
        const OPTIONAL: u32 = 0x3ff0_0000;
        if self.access.0 & !(KNOWN | OPTIONAL) != 0 {
            return Err(RegisterError::UnknownAccess(self.access.0));
        }
        if self
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !self.access.contains(Access::LOCAL_WRITE)
        {
            return Err(RegisterError::RemoteWithoutLocalWrite);
        }
        if self.iova.checked_add(self.len).is_none()
            || self.host_addr.checked_add(self.len).is_none()
        {
            return Err(RegisterError::Wraps);
        }
        Ok(())
    }
}

impl MrTable {
    /// Changes a region. Its keys stay, and an invalidated rkey is valid again.
    ///
    /// # Errors
    /// [`RegisterError`], and nothing has changed; [`RegisterError::Bound`] if windows
    /// are bound to it.
    pub fn reregister(&mut self, lkey: Lkey, change: &MrChange) -> Result<MrKeys, RegisterError> {
        let slot = self.region_slot(lkey).ok_or(RegisterError::NoRegion)?;
        let slot = &mut self.slots[slot];
        match slot.kind {
            Kind::Region { windows: 0 } => {}
            Kind::Region { windows } => return Err(RegisterError::Bound(windows)),
            Kind::Null(_) | Kind::Window(_) => return Err(RegisterError::NoRegion),
        }
        let mut init = slot.init;
        if let Some((host_addr, iova, len)) = change.translation {
            (init.host_addr, init.iova, init.len) = (host_addr, iova, len);
        }
        init.pd = change.pd.unwrap_or(init.pd);
        init.access = change.access.unwrap_or(init.access);
        init.check()?;
        slot.init = init;
        slot.rkey_valid = true;
        Ok(slot.keys)
    }
}
