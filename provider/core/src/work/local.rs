//! Local requests (BIND_MW, LOCAL_INV), and how a `SendWr` encodes their fields.

use urxe_wire::{Lkey, Rkey};

use super::{PostError, SendWqe, SendWr, WrData, WrOpcode};
use crate::mr::{Access, BindMw};

impl SendWr<'_> {
    /// Binds the memory window that the upper 24 bits of `rkey` name, under `rkey`.
    #[doc(alias = "IBV_WR_BIND_MW")]
    pub fn bind_mw(wr_id: u64, rkey: Rkey, bind: &BindMw) -> SendWr<'static> {
        let mut wr = SendWr::new(wr_id, WrOpcode::BindMw, WrData::Sges(&[]));
        (wr.rkey, wr.remote_addr, wr.compare_add) = (rkey, bind.addr, bind.length);
        wr.swap = u64::from(bind.access.0) << 32 | u64::from(bind.lkey.0);
        wr
    }

    /// Takes an rkey of one's own back.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    pub fn local_inv(wr_id: u64, rkey: Rkey) -> SendWr<'static> {
        let mut wr = SendWr::new(wr_id, WrOpcode::LocalInv, WrData::Sges(&[]));
        wr.rkey = rkey;
        wr
    }

    /// Some requests have no data.
    pub(super) fn check_bare(&self) -> Result<(), PostError> {
        match self.data {
            _ if self.opcode == WrOpcode::Flush => self.check_flush(),
            WrData::Sges([]) => Ok(()),
            _ => Err(PostError::LocalData),
        }
    }
}

impl SendWqe {
    /// The contents of a BIND_MW.
    pub(crate) fn bind_mw(&self) -> BindMw {
        BindMw {
            lkey: Lkey(self.swap as u32),
            addr: self.remote_addr,
            length: self.compare_add,
            access: Access((self.swap >> 32) as u32),
        }
    }
}
