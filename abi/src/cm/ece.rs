//! Enhanced connection establishment: numbers that makers of adapters exchange.

use core::ffi::{c_int, c_void};

use super::id::Id;
use super::param::bytes;
use crate::errno::{Errno, minus_one};
use crate::layout::{ibv_ece, rdma_cm_id};
use crate::object::Object;

/// Sets the options that the peer is told with the next request or answer.
pub(crate) unsafe extern "C" fn rdma_set_local_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    // SAFETY: null, or options, by the rules of the function.
    let Some(ece) = (unsafe { ece.as_ref() }) else {
        return minus_one(Err(Errno::INVAL));
    };
    if ece.comp_mask != 0 {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: an id, by the rules of the function.
    unsafe { Id::of(id) }.urxe.set_ece(urxe::Ece {
        vendor_id: ece.vendor_id,
        options: ece.options,
    });
    0
}

pub(crate) unsafe extern "C" fn rdma_get_remote_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    if ece.is_null() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: an id, by the rules of the function.
    let found = unsafe { Id::of(id) }.urxe.remote_ece();
    let found = ibv_ece {
        vendor_id: found.vendor_id,
        options: found.options,
        comp_mask: 0,
    };
    // SAFETY: a place for options, by the rules of the function.
    unsafe { ece.write(found) };
    0
}

/// Refuses because of the options that the peer sent.
pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: an id and data, by the rules of the function.
    let (id, data) = unsafe { (Id::of(id), bytes(data.cast(), len)) };
    let reason = urxe::cm::RejReason::VENDOR_OPTION_NOT_SUPPORTED;
    minus_one(id.urxe.reject_with(reason, &data).map_err(Errno::from))
}
