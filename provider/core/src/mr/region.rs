//! The contents of a region, what a passed check yields, and the reasons to refuse.

use urxe_wire::{Lkey, Qpn, Rkey};

use super::Access;

/// Identity of a protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

impl PdId {
    /// No domain. Keys that take more than a comparison of domains to check have this in
    /// its place, so that the others need no second look.
    pub(super) const NONE: PdId = PdId(u32::MAX);
}

/// The user of an rkey: the QP that a peer's request came to.
#[derive(Clone, Copy, Debug)]
pub struct Accessor {
    /// The QP's protection domain.
    pub pd: PdId,
    /// The QP's number: some windows open for their own QP only.
    pub qpn: Qpn,
}

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

impl MrInit {
    /// How far from its beginning a range begins that lies inside.
    #[inline]
    pub(crate) fn offset_of(&self, addr: u64, len: u64) -> Option<u64> {
        // In this order nothing can overflow.
        let is_inside = addr >= self.iova && len <= self.len && addr - self.iova <= self.len - len;
        is_inside.then(|| addr - self.iova)
    }
}

/// The keys of a registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrKeys {
    /// For local scatter/gather entries.
    pub lkey: Lkey,
    /// For peers.
    pub rkey: Rkey,
}

/// Bytes that a passed check allows to be touched. Only this folder makes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrSpan {
    pub(super) host_addr: u64,
    pub(super) len: usize,
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
    /// No room for more regions and windows.
    #[error("all {0} memory regions and windows are in use")]
    Full(usize),
    /// Windows are bound to the region.
    #[error("{0} memory windows are bound to the region: unbind or deallocate them first")]
    Bound(u32),
    /// There is no such region.
    #[error("no region has this key")]
    NoRegion,
}
