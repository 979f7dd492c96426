//! What a FLUSH asks for (IBTA annex A19, memory placement extensions).

use urxe_wire::{Feth, Rkey};

use crate::mr::Access;
use crate::work::{PostError, SendWr, WrData, WrOpcode};

/// What a FLUSH makes sure of, with the bits of `enum ibv_placement_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[doc(alias = "ibv_placement_type")]
pub struct Placement(pub u8);

impl Placement {
    /// Every processor (and every other peer) sees the bytes.
    #[doc(alias = "IBV_FLUSH_GLOBAL")]
    pub const GLOBAL: Placement = Placement(1);
    /// The bytes survive a loss of power.
    #[doc(alias = "IBV_FLUSH_PERSISTENT")]
    pub const PERSISTENT: Placement = Placement(2);

    /// The rights that a QP and a region must grant for it; `None` if it asks for
    /// nothing, or for something that is not defined.
    pub(crate) fn rights(self) -> Option<Access> {
        match self.0 {
            1 => Some(Access::FLUSH_GLOBAL),
            2 => Some(Access::FLUSH_PERSISTENT),
            3 => Some(Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT),
            _ => None,
        }
    }
}

bit_set!(Placement);

/// Which bytes a FLUSH means, with the numbers of `enum ibv_selectivity_level`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[doc(alias = "ibv_selectivity_level")]
pub enum Selectivity {
    /// Those named by address and length.
    #[doc(alias = "IBV_FLUSH_RANGE")]
    Range = 0,
    /// The whole region of the rkey.
    #[doc(alias = "IBV_FLUSH_MR")]
    Region = 1,
}

/// A FLUSH, as a work request and its packet hold it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// What is made sure of.
    pub placement: Placement,
    /// Which bytes.
    pub selectivity: Selectivity,
    /// Number of bytes (with [`Selectivity::Range`]).
    pub length: u32,
}

impl Flush {
    /// The header's values; `None` if they are not defined.
    pub(crate) fn parse(feth: &Feth, length: u32) -> Option<Flush> {
        let placement = Placement(feth.placement);
        placement.rights()?;
        let selectivity = match feth.selectivity {
            0 => Selectivity::Range,
            1 => Selectivity::Region,
            _ => return None,
        };
        Some(Flush {
            placement,
            selectivity,
            length,
        })
    }

    /// The header for it.
    pub(crate) fn feth(&self) -> Feth {
        Feth {
            placement: self.placement.0,
            selectivity: self.selectivity as u8,
            reserved: 0,
        }
    }

    /// A request keeps it in the fields that atomics have their numbers in.
    fn to_fields(self) -> (u64, u64) {
        let word = u32::from_be_bytes(self.feth().emit());
        (self.length.into(), word.into())
    }

    /// What [`Flush::to_fields`] returned.
    pub(crate) fn of_fields(compare_add: u64, swap: u64) -> Option<Flush> {
        let feth = Feth::parse(&(swap as u32).to_be_bytes());
        Flush::parse(&feth, compare_add as u32)
    }
}

impl SendWr<'_> {
    /// A FLUSH of a peer's memory: completed when all earlier WRITEs and ATOMIC WRITEs
    /// of this QP are placed as it says.
    pub fn flush(wr_id: u64, remote_addr: u64, rkey: Rkey, flush: Flush) -> SendWr<'static> {
        let mut wr = SendWr::new(wr_id, WrOpcode::Flush, WrData::Sges(&[]));
        (wr.remote_addr, wr.rkey) = (remote_addr, rkey);
        (wr.compare_add, wr.swap) = flush.to_fields();
        wr
    }

    /// A FLUSH must ask for something, and has no data of its own.
    pub(crate) fn check_flush(&self) -> Result<(), PostError> {
        if Flush::of_fields(self.compare_add, self.swap).is_none() {
            return Err(PostError::FlushOfNothing);
        }
        match self.data {
            WrData::Sges([]) => Ok(()),
            _ => Err(PostError::FlushData),
        }
    }
}
