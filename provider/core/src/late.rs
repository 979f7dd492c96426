//! Receives that the program has posted and that have not reached the core's queues yet.

use core::fmt::Debug;

use crate::table::{QpIndex, SrqId};
use crate::work::RecvQueue;

/// Looked at when a message finds no receive. A caller that takes posts while a call into the core goes on has such
/// receives: a receive that was posted before its message was sent must be found, also by a packet that is handled
/// in that very call.
pub trait LateReceives: Debug {
    /// Moves those of a QP to its queue.
    fn of_qp(&self, qp: QpIndex, queue: &mut RecvQueue);

    /// Moves those of a shared receive queue to it.
    fn of_srq(&self, srq: SrqId, queue: &mut RecvQueue);
}
