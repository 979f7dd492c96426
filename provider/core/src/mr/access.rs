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
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Access = Access(0x10);
    /// Addresses count from the first byte: it is named 0.
    pub const ZERO_BASED: Access = Access(0x20);
    /// Pages come and go as the system likes, and the region may be the whole address
    /// space. That is so here of every region: nothing is pinned.
    pub const ON_DEMAND: Access = Access(0x40);
    /// The memory lies in huge pages. Accepted; nothing follows from it.
    pub const HUGETLB: Access = Access(0x80);
    /// A peer may FLUSH here for global visibility.
    pub const FLUSH_GLOBAL: Access = Access(0x100);
    /// A peer may FLUSH here for persistence.
    pub const FLUSH_PERSISTENT: Access = Access(0x200);

    /// Writes may land in another order than they were sent in. Accepted; they land in
    /// order all the same.
    pub const RELAXED_ORDERING: Access = Access(1 << 20);

    /// Every right that peers can be given.
    pub(crate) const REMOTE: Access = Access(
        Access::REMOTE_WRITE.0
            | Access::REMOTE_READ.0
            | Access::REMOTE_ATOMIC.0
            | Access::FLUSH_GLOBAL.0
            | Access::FLUSH_PERSISTENT.0,
    );

    /// True if some right of `other` is here.
    #[inline]
    pub const fn intersects(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }
}

bit_set!(Access);
