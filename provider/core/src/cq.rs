//! Completions, and where they go.

use urxe_wire::{Qpn, Rkey};

use crate::error::{Fault, WcStatus};

/// Identity of a completion queue, given by the owner of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// What completed, with the numbers of `enum ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[doc(alias = "ibv_wc_opcode")]
pub enum WcOpcode {
    /// A SEND of any kind.
    Send = 0,
    /// An RDMA WRITE of any kind.
    RdmaWrite = 1,
    /// An RDMA READ.
    RdmaRead = 2,
    /// A compare-and-swap.
    CompSwap = 3,
    /// A fetch-and-add.
    FetchAdd = 4,
    /// A memory window was bound.
    BindMw = 5,
    /// An rkey was taken back by its owner.
    LocalInv = 6,
    /// A FLUSH.
    Flush = 8,
    /// An ATOMIC WRITE.
    AtomicWrite = 9,
    /// A receive, filled by a SEND.
    Recv = 128,
    /// A receive, consumed by an RDMA WRITE with immediate.
    RecvRdmaWithImm = 129,
    /// A tag was added to the list of a shared receive queue.
    #[doc(alias = "IBV_WC_TM_ADD")]
    TmAdd = 130,
    /// A tag was taken out of the list.
    #[doc(alias = "IBV_WC_TM_DEL")]
    TmDel = 131,
    /// The number of unexpected messages was reported.
    #[doc(alias = "IBV_WC_TM_SYNC")]
    TmSync = 132,
    /// A message with a tag: [`TmInfo::flags`] says whether one of the list matched.
    #[doc(alias = "IBV_WC_TM_RECV")]
    TmRecv = 133,
    /// A message without a tag, in an ordinary receive of a queue with tag matching.
    #[doc(alias = "IBV_WC_TM_NO_TAG")]
    TmNoTag = 134,
}

/// What a completion says about tags, with the bits of `enum ibv_wc_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct TmFlags(pub u8);

impl TmFlags {
    /// Nothing.
    pub const NONE: TmFlags = TmFlags(0);
    /// Tags that were added wait until the program reports how many unexpected messages it has handled
    /// ([`crate::tm`]).
    #[doc(alias = "IBV_WC_TM_SYNC_REQ")]
    pub const SYNC_REQ: TmFlags = TmFlags(1 << 4);
    /// A tag of the list matched. It is not in the list any more.
    #[doc(alias = "IBV_WC_TM_MATCH")]
    pub const MATCH: TmFlags = TmFlags(1 << 5);
    /// The message that was matched is in the tag's memory. If it took more than a packet, this is a second completion.
    #[doc(alias = "IBV_WC_TM_DATA_VALID")]
    pub const DATA_VALID: TmFlags = TmFlags(1 << 6);
}

bit_set!(TmFlags);

/// What a completion of tag matching says beyond others; all zero in others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[doc(alias = "ibv_wc_tm_info")]
pub struct TmInfo {
    /// The message's tag; only with [`TmFlags::MATCH`].
    pub tag: u64,
    /// What its sender put beside the tag; only with [`TmFlags::MATCH`].
    #[doc(alias = "priv")]
    pub app_ctx: u32,
    /// Matched, complete, or in want of synchronization.
    pub flags: TmFlags,
}

/// One completion queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cqe {
    /// The work request's id.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// Why it failed, if it did.
    pub fault: Fault,
    /// What it was. Undefined by the verbs rules when `status` is an error.
    pub opcode: WcOpcode,
    /// Bytes received (receives), or of the message (sends).
    pub byte_len: u32,
    /// Immediate data, if the message carried it, in network order.
    pub imm: Option<[u8; 4]>,
    /// The rkey that the peer's SEND with invalidate took back.
    pub invalidated: Option<Rkey>,
    /// The local QP.
    pub qpn: Qpn,
    /// The remote QP.
    pub src_qp: Qpn,
    /// The receive begins with 40 bytes that say where the datagram came from.
    pub grh: bool,
    /// The datagram came over IPv4.
    pub ipv4: bool,
    /// The peer asked for an event (or the completion is an error).
    pub solicited: bool,
    /// Of tag matching.
    pub tm: TmInfo,
}

/// There are many of them: a cache line holds one.
const _: () = assert!(size_of::<Cqe>() <= 56);

/// The completion queue had no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqOverrun;

/// Takes completions, in order per queue.
pub trait CqSink {
    /// Stores one completion.
    ///
    /// # Errors
    /// [`CqOverrun`] if the queue is full: the completion is lost, and the QP
    /// that it belongs to goes to the error state.
    fn push(&mut self, cq: CqId, cqe: Cqe) -> Result<(), CqOverrun>;
}
