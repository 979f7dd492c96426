//! Why posts are refused.

use crate::qp::state::{QpState, QpType};
use crate::work::WrOpcode;

/// Why a post was refused. The queue is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue holds as many requests as it was created for.
    #[error(
        "the queue is full: {0} work requests are outstanding; poll their completions first, or ask for a longer queue"
    )]
    QueueFull(u32),
    /// More scatter/gather entries than the queue was created for.
    #[error("{given} scatter/gather entries, but the queue was created with {max}")]
    TooManySges {
        /// Entries in the request.
        given: usize,
        /// Entries allowed.
        max: usize,
    },
    /// More inline bytes than the queue was created for.
    #[error("{given} inline bytes, but the queue was created with {max}")]
    InlineTooLong {
        /// Bytes in the request.
        given: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// READ or atomic with inline data: there is nothing to send.
    #[error("READ and atomics take no inline data")]
    InlineNotAllowed,
    /// A FLUSH that asks for no placement, or one that is not defined.
    #[error("a FLUSH asks for global visibility, persistence or both, of a range or a region")]
    FlushOfNothing,
    /// A FLUSH with data.
    #[error("a FLUSH takes no scatter/gather entries and no inline data")]
    FlushData,
    /// Sends are taken from RTS on.
    #[error("the QP is in {0}, and takes send work requests from RTS on: connect it first")]
    SendState(QpState),
    /// Receives are taken from INIT on.
    #[error("the QP is in {0}, and takes receive work requests from INIT on: initialise it first")]
    RecvState(QpState),
    /// Longer than 2^31 bytes.
    #[error("the message has {0} bytes, more than 2^31")]
    MessageTooLong(u64),
    /// No such QP.
    #[error("the QP does not exist")]
    NoQp,
    /// LOCAL_INV or BIND_MW with data.
    #[error("LOCAL_INV and BIND_MW have no data of their own")]
    LocalData,
    /// The QP has no receive queue of its own.
    #[error("the QP takes its receives from a shared receive queue: post them there")]
    HasSrq,
    /// The service does not have the operation.
    #[error("{opcode:?} is not possible on a QP of type {qp_type:?}")]
    NotCarried {
        /// The operation.
        opcode: WrOpcode,
        /// The service.
        qp_type: QpType,
    },
    /// A datagram without an address handle.
    #[error("a datagram needs an address handle, a QP number and a Q_Key")]
    NoAddress,
    /// A datagram's address handle is of another protection domain.
    #[error("the address handle belongs to another protection domain than the QP")]
    ForeignAddress,
    /// A datagram to QP 0.
    #[error("QP 0 cannot be sent to")]
    NoDestination,
    /// A datagram is longer than a packet.
    #[error("the datagram has {given} bytes, but the port's MTU is {max}")]
    DatagramTooLong {
        /// Bytes of the request.
        given: u32,
        /// Bytes that a packet holds.
        max: u32,
    },
    /// A QP of XRC has one queue or none.
    #[error("a QP of type {0:?} has no such queue")]
    NoQueue(QpType),
    /// A request over XRC without the number of the peer's shared receive queue.
    #[error("a request over XRC names the peer's shared receive queue by its number")]
    NoSrqn,
    /// No such shared receive queue.
    #[error("the shared receive queue does not exist")]
    NoSrq,
    /// An operation on tags for a queue that has none.
    #[error("the shared receive queue was created without tag matching")]
    NoTags,
    /// The list of tags is full.
    #[error("the list holds {0} tags, as many as it was created for")]
    TagListFull(u32),
    /// No tag ever had the handle.
    #[error("no tag of this queue had the handle {0:#x}")]
    NoTag(u32),
}
