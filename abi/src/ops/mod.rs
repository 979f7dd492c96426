//! The data path: functions that the header's inline functions call through pointers.
//!
//! Each goes straight from the object's pointer to the queue: no look-up, no allocation, no lock of its own.

pub(crate) mod cq_ex;
mod poll;
mod post;
pub(crate) mod qp_ex;
pub(crate) mod tags;

pub(crate) use poll::GRH;
pub(crate) use post::sges;

use crate::layout::{CStruct, ibv_context_ops};
use crate::verbs::mw;

/// What every context has.
pub(crate) fn context_ops() -> ibv_context_ops {
    let mut ops = ibv_context_ops::zeroed();
    ops.alloc_mw = Some(mw::alloc_mw);
    ops.bind_mw = Some(mw::bind_mw);
    ops.dealloc_mw = Some(mw::dealloc_mw);
    ops.poll_cq = Some(poll::poll_cq);
    ops.req_notify_cq = Some(poll::req_notify_cq);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    ops.post_srq_recv = Some(post::post_srq_recv);
    ops
}
