//! Endpoints: ids with synchronous calls, made in one step.

use core::ffi::c_int;
use core::ptr;
use std::sync::atomic::Ordering;

use super::channel;
use super::id::{Id, create, rdma_destroy_id};
use super::qp::{create_basic, rdma_destroy_qp};
use super::resolve::{bind, resolve_addr, resolve_route};
use super::srq::rdma_destroy_srq;
use crate::errno::{Errno, minus_one, store};
use crate::layout::{ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};
use crate::object::{Object, Shared};

const RAI_PASSIVE: c_int = 1;
/// `RDMA_CM_EVENT_CONNECT_REQUEST`
const CONNECT_REQUEST: c_int = 4;
/// For addresses and routes: neither takes any time here.
const TIMEOUT_MS: c_int = 2000;

pub(crate) unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: an address, a PD and attributes or null, and a place for a pointer, by the rules of the function.
    minus_one(unsafe { store(id, create_endpoint(&*res, pd, attr.as_mut())) })
}

/// # Safety
/// As for `rdma_create_ep`.
unsafe fn create_endpoint(
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> Result<*mut rdma_cm_id, Errno> {
    // SAFETY: without a channel it gets its own.
    let id = unsafe {
        create(
            ptr::null_mut(),
            ptr::null_mut(),
            info.ai_port_space,
            info.ai_qp_type,
        )
    }?;
    // SAFETY: just made; and the caller's promise.
    let ready = unsafe { prepare(id, info, pd, attr) };
    if let Err(errno) = ready {
        // SAFETY: the program does not have it.
        unsafe { rdma_destroy_ep(id) };
        return Err(errno);
    }
    Ok(id)
}

/// # Safety
/// A new id; and as for `rdma_create_ep`.
unsafe fn prepare(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { Id::of(id) };
    if info.ai_flags & RAI_PASSIVE != 0 {
        // SAFETY: the caller's promise.
        unsafe { bind(object, info.ai_src_addr) }?;
        object.state().for_requests = attr.map(|attr| {
            attr.qp_type = info.ai_qp_type;
            (Shared(pd), *attr)
        });
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe {
        resolve_addr(object, info.ai_src_addr, info.ai_dst_addr, TIMEOUT_MS)?;
        resolve_route(object, TIMEOUT_MS)?;
        if let Some(attr) = attr {
            attr.qp_type = info.ai_qp_type;
            create_basic(id, pd, attr)?;
        }
    }
    if !info.ai_connect.is_null() {
        let len = u8::try_from(info.ai_connect_len).map_err(|_| Errno::INVAL)?;
        // SAFETY: the caller's promise.
        object.state().connect_data = unsafe { super::param::bytes(info.ai_connect.cast(), len) };
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: an id that the program does not use again, by the rules of the function.
    unsafe {
        if !(*id).qp.is_null() {
            rdma_destroy_qp(id);
        }
        if !(*id).srq.is_null() {
            rdma_destroy_srq(id);
        }
        rdma_destroy_id(id);
    }
}

/// Waits for the next request at an endpoint that listens.
pub(crate) unsafe extern "C" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: an id and a place for a pointer, by the rules of the function.
    minus_one(unsafe { store(id, next_request(Id::of(listen))) })
}

fn next_request(listen: &Id) -> Result<*mut rdma_cm_id, Errno> {
    if !listen.is_sync.load(Ordering::Relaxed) {
        return Err(Errno::INVAL);
    }
    listen.forget_event();
    let ibv = listen.ibv.get();
    // SAFETY: the id's own channel.
    let event = unsafe { channel::next((*ibv).channel) }?;
    // SAFETY: just taken.
    let (kind, status, child) = unsafe { ((*event).event, (*event).status, (*event).id) };
    let refused = match (kind, status) {
        (CONNECT_REQUEST, 0) => {
            // SAFETY: the id that came with the event.
            unsafe { equip(listen, child) }.err()
        }
        (CONNECT_REQUEST, status) => Some(Errno(status.abs())),
        _ => Some(Errno::INVAL),
    };
    if let Some(errno) = refused {
        // SAFETY: the program's part.
        unsafe { (*ibv).event = event };
        return Err(errno);
    }
    // SAFETY: the child's; it is acknowledged with the child's next event, or its end.
    unsafe { (*child).event = event };
    Ok(child)
}

/// A queue pair for a request, if the endpoint was made with attributes.
///
/// # Safety
/// A live id.
unsafe fn equip(listener: &Id, child: *mut rdma_cm_id) -> Result<(), Errno> {
    let wanted = {
        let state = listener.state();
        let wanted = state.for_requests.as_ref();
        wanted.map(|(pd, attr)| (pd.0, *attr))
    };
    let Some((pd, mut attr)) = wanted else {
        return Ok(());
    };
    // SAFETY: the caller's promise.
    let made = unsafe { create_basic(child, pd, &mut attr) };
    if made.is_err() {
        // SAFETY: the program never saw it.
        unsafe { rdma_destroy_id(child) };
    }
    made
}
