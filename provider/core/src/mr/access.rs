//! Rights, with the bits of verbs.

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
