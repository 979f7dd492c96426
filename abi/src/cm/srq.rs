//! Shared receive queues of ids.

use core::ffi::c_int;
use core::ptr;

use super::devices;
use super::qp::{destroy_queues, make_queue};
use crate::errno::{Errno, minus_one};
use crate::layout::{CStruct, ibv_pd, ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_id};
use crate::verbs::qp_create::XRC_RECV;
use crate::verbs::srq::{BASIC, CQ, PD, TYPE, XRC, XRCD, create_srq_ex, ibv_destroy_srq};

pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: an id and attributes, by the rules of the function.
    let (ibv, attr) = unsafe { (&*id, &mut *attr) };
    let mut wanted = ibv_srq_init_attr_ex::zeroed();
    wanted.srq_context = attr.srq_context;
    wanted.attr = attr.attr;
    wanted.comp_mask = TYPE | PD;
    wanted.srq_type = if ibv.qp_type == XRC_RECV { XRC } else { BASIC };
    wanted.pd = pd;
    // SAFETY: an id and a PD or null, by the rules of the function.
    let made = unsafe { create(id, &mut wanted) };
    attr.attr = wanted.attr;
    minus_one(made)
}

pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    // SAFETY: an id and attributes, by the rules of the function.
    minus_one(unsafe { create(id, &mut *attr) })
}

/// # Safety
/// As for `rdma_create_srq_ex`.
unsafe fn create(id: *mut rdma_cm_id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let ibv = unsafe { &mut *id };
    if !ibv.srq.is_null() || ibv.verbs.is_null() || attr.comp_mask & TYPE == 0 {
        return Err(Errno::INVAL);
    }
    if attr.comp_mask & PD == 0 || attr.pd.is_null() {
        attr.pd = ibv.pd;
        attr.comp_mask |= PD;
    }
    // SAFETY: a PD, by the rules of the function, or the id's own.
    if unsafe { (*attr.pd).context } != ibv.verbs {
        return Err(Errno::INVAL);
    }
    if attr.srq_type == XRC {
        if attr.comp_mask & XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = devices::xrcd_of(ibv.verbs)?;
            attr.comp_mask |= XRCD;
        }
        if attr.comp_mask & CQ == 0 || attr.cq.is_null() {
            if ibv.recv_cq.is_null() {
                // SAFETY: the id has a device.
                (ibv.recv_cq_channel, ibv.recv_cq) = unsafe { make_queue(ibv, attr.attr.max_wr) }?;
            }
            attr.cq = ibv.recv_cq;
            attr.comp_mask |= CQ;
        }
    }
    // SAFETY: live objects, by the caller's promise.
    let srq = unsafe { create_srq_ex(ibv.verbs, attr) };
    if srq.is_null() {
        let errno = Errno::last();
        if ibv.qp.is_null() {
            // SAFETY: those that were just made.
            unsafe { destroy_queues(ibv) };
        }
        return Err(errno);
    }
    ibv.srq = srq;
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: an id, by the rules of the function.
    let ibv = unsafe { &mut *id };
    if ibv.srq.is_null() {
        return;
    }
    // SAFETY: the id's, which nothing uses now, by the rules of the function.
    unsafe { ibv_destroy_srq(ibv.srq) };
    ibv.srq = ptr::null_mut();
    if ibv.qp.is_null() {
        // SAFETY: as above.
        unsafe { destroy_queues(ibv) };
    }
}
