//! Work requests: what a program posts.

use urxe_core::flush::Flush;
use urxe_core::work::{self, SendFlags, Sge, WrData, WrOpcode};
use urxe_wire::{Qpn, Rkey};

use crate::remote_mr::RemoteMr;

/// A send work request. It is made by the function that bears its operation's name; what it
/// refers to is copied when it is posted.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.11".parse().unwrap())?;
/// # let region = context.alloc_pd()?.reg_owned(vec![0; 64], urxe::Access::LOCAL_WRITE)?;
/// # let (remote_addr, rkey) = (region.addr(), region.rkey());
/// use urxe::SendWr;
///
/// let sges = [region.sge(..32)];
/// let write = SendWr::rdma_write(1, &sges, remote_addr, rkey);
/// let hello = SendWr::send_inline(2, b"hello").signaled().solicited();
/// # let _ = (write, hello);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_send_wr")]
pub struct SendWr<'a> {
    pub(crate) core: work::SendWr<'a>,
}

impl<'a> SendWr<'a> {
    /// SEND: into the next receive of the peer.
    #[doc(alias = "IBV_WR_SEND")]
    pub fn send(wr_id: u64, sges: &'a [Sge]) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::Send, WrData::Sges(sges))
    }

    /// SEND of bytes that are copied when it is posted.
    #[doc(alias = "IBV_SEND_INLINE")]
    pub fn send_inline(wr_id: u64, bytes: &'a [u8]) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::Send, WrData::Inline(bytes))
    }

    /// SEND with 32 bits of immediate data for the peer's completion.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    pub fn send_with_imm(wr_id: u64, sges: &'a [Sge], imm: u32) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::SendWithImm, WrData::Sges(sges)).imm(imm)
    }

    /// SEND that takes one of the peer's rkeys back: a region that the peer lent for
    /// this exchange.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    pub fn send_with_inv(wr_id: u64, sges: &'a [Sge], rkey: Rkey) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::SendWithInv, WrData::Sges(sges)).remote(0, rkey)
    }

    /// RDMA WRITE: into the peer's memory; the peer's program takes no part.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    pub fn rdma_write(wr_id: u64, sges: &'a [Sge], remote_addr: u64, rkey: Rkey) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::RdmaWrite, WrData::Sges(sges)).remote(remote_addr, rkey)
    }

    /// RDMA WRITE to memory that the peer told of.
    pub fn write_to(wr_id: u64, sges: &'a [Sge], to: RemoteMr) -> SendWr<'a> {
        SendWr::rdma_write(wr_id, sges, to.addr, to.rkey)
    }

    /// RDMA READ from memory that the peer told of.
    pub fn read_from(wr_id: u64, sges: &'a [Sge], from: RemoteMr) -> SendWr<'a> {
        SendWr::rdma_read(wr_id, sges, from.addr, from.rkey)
    }

    /// RDMA WRITE of bytes that are copied when it is posted.
    pub fn rdma_write_inline(
        wr_id: u64,
        bytes: &'a [u8],
        remote_addr: u64,
        rkey: Rkey,
    ) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::RdmaWrite, WrData::Inline(bytes)).remote(remote_addr, rkey)
    }

    /// RDMA WRITE that then consumes one of the peer's receives, for a completion with 32
    /// bits of immediate data.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    pub fn rdma_write_with_imm(
        wr_id: u64,
        sges: &'a [Sge],
        remote_addr: u64,
        rkey: Rkey,
        imm: u32,
    ) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::RdmaWriteWithImm, WrData::Sges(sges))
            .remote(remote_addr, rkey)
            .imm(imm)
    }

    /// RDMA READ: from the peer's memory into `sges`; the peer's program takes no part.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    pub fn rdma_read(wr_id: u64, sges: &'a [Sge], remote_addr: u64, rkey: Rkey) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::RdmaRead, WrData::Sges(sges)).remote(remote_addr, rkey)
    }

    /// Atomically replaces the peer's 8 bytes by `swap` if they equal `compare`. Their old
    /// value goes to `sges`, 8 bytes in host order.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    pub fn atomic_cmp_swp(
        wr_id: u64,
        sges: &'a [Sge],
        remote_addr: u64,
        rkey: Rkey,
        compare: u64,
        swap: u64,
    ) -> SendWr<'a> {
        let mut wr = SendWr::new(wr_id, WrOpcode::AtomicCmpAndSwp, WrData::Sges(sges))
            .remote(remote_addr, rkey);
        (wr.core.compare_add, wr.core.swap) = (compare, swap);
        wr
    }

    /// Atomically adds to the peer's 8 bytes. Their old value goes to `sges`, 8 bytes in
    /// host order.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    pub fn atomic_fetch_add(
        wr_id: u64,
        sges: &'a [Sge],
        remote_addr: u64,
        rkey: Rkey,
        add: u64,
    ) -> SendWr<'a> {
        let mut wr = SendWr::new(wr_id, WrOpcode::AtomicFetchAndAdd, WrData::Sges(sges))
            .remote(remote_addr, rkey);
        wr.core.compare_add = add;
        wr
    }

    /// ATOMIC WRITE: stores 8 bytes in the peer's memory at once, so that no reader ever sees
    /// some of them. The address must be a multiple of 8. It holds one of the places of
    /// `max_rd_atomic`.
    #[doc(alias = "IBV_WR_ATOMIC_WRITE")]
    #[doc(alias = "ibv_wr_atomic_write")]
    pub fn atomic_write(
        wr_id: u64,
        bytes: &'a [u8; 8],
        remote_addr: u64,
        rkey: Rkey,
    ) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::AtomicWrite, WrData::Inline(bytes)).remote(remote_addr, rkey)
    }

    /// ATOMIC WRITE of 8 bytes that are read from memory when it is sent.
    #[doc(alias = "IBV_WR_ATOMIC_WRITE")]
    pub fn atomic_write_sges(
        wr_id: u64,
        sges: &'a [Sge],
        remote_addr: u64,
        rkey: Rkey,
    ) -> SendWr<'a> {
        SendWr::new(wr_id, WrOpcode::AtomicWrite, WrData::Sges(sges)).remote(remote_addr, rkey)
    }

    /// FLUSH: completes when all earlier WRITEs and ATOMIC WRITEs of this QP to the named
    /// bytes are visible to every processor of the peer, or survive a loss of its power,
    /// as `flush` asks. The region must have been registered with the rights
    /// [`crate::Access::FLUSH_GLOBAL`] and [`crate::Access::FLUSH_PERSISTENT`]
    /// respectively, and the peer's QP must grant them.
    ///
    /// A completed WRITE without a FLUSH may still be in the peer's volatile memory.
    #[doc(alias = "IBV_WR_FLUSH")]
    #[doc(alias = "ibv_wr_flush")]
    pub fn flush(wr_id: u64, remote_addr: u64, rkey: Rkey, flush: Flush) -> SendWr<'static> {
        let mut core = work::SendWr::flush(wr_id, remote_addr, rkey, flush);
        core.flags = SendFlags::NONE;
        SendWr { core }
    }

    /// Names the peer's shared receive queue that the request is for: needed with XRC, where
    /// even a READ is checked in that queue's protection domain.
    #[must_use]
    #[doc(alias = "remote_srqn")]
    pub fn to_srq(mut self, srq_num: Qpn) -> Self {
        self.core.srqn = Some(srq_num);
        self
    }

    /// Makes a completion on success too. Without it only failures do, unless the QP was
    /// created to signal all.
    #[must_use]
    #[doc(alias = "IBV_SEND_SIGNALED")]
    pub fn signaled(self) -> Self {
        self.flag(SendFlags::SIGNALED)
    }

    /// Raises an event at the peer, if its queue is armed for solicited ones.
    #[must_use]
    #[doc(alias = "IBV_SEND_SOLICITED")]
    pub fn solicited(self) -> Self {
        self.flag(SendFlags::SOLICITED)
    }

    /// Starts only when all earlier READs and atomics are done.
    #[must_use]
    #[doc(alias = "IBV_SEND_FENCE")]
    pub fn fence(self) -> Self {
        self.flag(SendFlags::FENCE)
    }

    /// The id that its completion will carry.
    pub fn wr_id(&self) -> u64 {
        self.core.wr_id
    }

    fn new(wr_id: u64, opcode: WrOpcode, data: WrData<'a>) -> SendWr<'a> {
        SendWr {
            core: work::SendWr {
                flags: SendFlags::NONE,
                ..work::SendWr::new(wr_id, opcode, data)
            },
        }
    }

    fn flag(mut self, flag: SendFlags) -> Self {
        self.core.flags = self.core.flags | flag;
        self
    }

    fn remote(mut self, addr: u64, rkey: Rkey) -> Self {
        (self.core.remote_addr, self.core.rkey) = (addr, rkey);
        self
    }

    fn imm(mut self, imm: u32) -> Self {
        self.core.imm = imm.to_be_bytes();
        self
    }
}

impl<'a> From<work::SendWr<'a>> for SendWr<'a> {
    /// From a request with every field set by hand.
    fn from(core: work::SendWr<'a>) -> SendWr<'a> {
        SendWr { core }
    }
}

/// A receive work request: memory for the next message.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.12".parse().unwrap())?;
/// # let region = context.alloc_pd()?.reg_owned(vec![0; 64], urxe::Access::LOCAL_WRITE)?;
/// let sges = [region.sge(..)];
/// let recv = urxe::RecvWr::new(1, &sges);
/// # let _ = recv;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_recv_wr")]
pub struct RecvWr<'a> {
    pub(crate) core: work::RecvWr<'a>,
}

impl<'a> RecvWr<'a> {
    /// A receive into the given memory, filled in order.
    pub fn new(wr_id: u64, sges: &'a [Sge]) -> RecvWr<'a> {
        RecvWr {
            core: work::RecvWr { wr_id, sges },
        }
    }
}
