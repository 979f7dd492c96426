//! The opcodes of work requests.

/// Operation of a send work request, with the numbers of `enum ibv_wr_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
#[non_exhaustive]
#[doc(alias = "ibv_wr_opcode")]
pub enum WrOpcode {
    /// RDMA WRITE.
    RdmaWrite = 0,
    /// RDMA WRITE that consumes a receive and delivers immediate data.
    RdmaWriteWithImm = 1,
    /// SEND.
    Send = 2,
    /// SEND with immediate data.
    SendWithImm = 3,
    /// RDMA READ.
    RdmaRead = 4,
    /// Compare-and-swap of 8 bytes.
    AtomicCmpAndSwp = 5,
    /// Fetch-and-add of 8 bytes.
    AtomicFetchAndAdd = 6,
    /// Takes an rkey of one's own back.
    LocalInv = 7,
    /// Binds a memory window; see [`super::SendWr::bind_mw`].
    BindMw = 8,
    /// SEND that takes an rkey of the receiver back.
    SendWithInv = 9,
    /// FLUSH: makes sure of where earlier WRITEs are; see [`super::SendWr::flush`].
    Flush = 14,
    /// Store of 8 bytes at once.
    AtomicWrite = 15,
}

impl WrOpcode {
    /// READ, atomics, ATOMIC WRITE and FLUSH: each is answered by a response of its own,
    /// and holds one of `max_rd_atomic` places until that comes.
    #[inline]
    pub fn is_read_or_atomic(self) -> bool {
        self.returns_data() || self.is_placement()
    }

    /// READ and atomics: their result is stored in the request's own memory.
    #[inline]
    pub fn returns_data(self) -> bool {
        matches!(
            self,
            WrOpcode::RdmaRead | WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd
        )
    }

    /// Requests that send nothing, and take no PSN.
    #[inline]
    pub fn is_local(self) -> bool {
        matches!(self, WrOpcode::LocalInv | WrOpcode::BindMw)
    }

    /// Requests without data of their own.
    #[inline]
    pub(super) fn is_bare(self) -> bool {
        self.is_local() || self == WrOpcode::Flush
    }

    /// The operations of the memory placement extensions.
    #[inline]
    pub fn is_placement(self) -> bool {
        matches!(self, WrOpcode::Flush | WrOpcode::AtomicWrite)
    }

    /// True for both atomics.
    #[inline]
    pub fn is_atomic(self) -> bool {
        matches!(
            self,
            WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd
        )
    }

    /// Consumes one of the peer's receives, and so one end-to-end credit.
    #[inline]
    pub fn takes_credit(self) -> bool {
        matches!(
            self,
            WrOpcode::Send
                | WrOpcode::SendWithImm
                | WrOpcode::SendWithInv
                | WrOpcode::RdmaWriteWithImm
        )
    }
}
