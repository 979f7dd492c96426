//! Completions, and where they go.

use urxe_wire::{Qpn, Rkey};

use crate::error::{Fault, WcStatus};

/// Identity of a completion queue, given by the owner of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// What completed, with the numbers of `enum ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
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
}

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
