//! Connecting, accepting, rejecting and disconnecting.

use core::ffi::{c_int, c_void};

use urxe::cm::{ConnParam, Follower};

use super::id::Id;
use super::param::{bytes, check_depth, from_c};
use super::wait::finish;
use crate::errno::{Errno, minus_one};
use crate::layout::{rdma_cm_id, rdma_conn_param};
use crate::object::{Context, Qp};
use crate::verbs::qp_create::UD;

/// `IBV_EVENT_COMM_EST`
const COMM_EST: c_int = 4;

pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: an id and parameters or null, by the rules of the function.
    minus_one(unsafe { connect(id, from_c(param)) })
}

/// # Safety
/// A live id.
unsafe fn connect(id: *mut rdma_cm_id, mut param: ConnParam) -> Result<(), Errno> {
    // SAFETY: the caller's promise; a device's context stays open.
    let object = unsafe { Id::of(id) };
    // SAFETY: as above.
    unsafe { check(id, &param) }?;
    name_present_qp(object);
    let mut data = object.state().connect_data.clone();
    data.append(&mut param.private_data);
    param.private_data = data;
    object.urxe.connect(&param)?;
    // SAFETY: the caller's promise.
    unsafe { finish(id) }
}

/// # Safety
/// A live id.
unsafe fn check(id: *mut rdma_cm_id, param: &ConnParam) -> Result<(), Errno> {
    // SAFETY: the caller's promise; a device's context stays open.
    unsafe {
        if (*id).verbs.is_null() {
            return Err(Errno::INVAL);
        }
        check_depth(&Context::of((*id).verbs).urxe, param)
    }
}

/// The handshake is about the QP that the id has now: programs move QPs from one id to another (`accepted->qp =
/// other->qp`, as DAPL does). Without one the parameters name it.
fn name_present_qp(id: &Id) {
    match qp_of(id) {
        Some(qp) => id.name_qp(qp),
        None => id.disown_qp(),
    }
}

/// The id's QP, if it has one.
pub(super) fn qp_of(id: &Id) -> Option<&Qp> {
    // SAFETY: the program's part; its QP lives until `rdma_destroy_qp`, which no thread calls meanwhile.
    unsafe {
        let qp = (*id.ibv.get()).qp;
        (!qp.is_null()).then(|| Qp::of(qp))
    }
}

fn is_connected_service(id: &Id) -> bool {
    // SAFETY: the program's part.
    unsafe { (*id.ibv.get()).qp_type != UD }
}

pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: an id and parameters or null, by the rules of the function.
    minus_one(unsafe { accept(id, from_c(param)) })
}

/// # Safety
/// A live id.
unsafe fn accept(id: *mut rdma_cm_id, param: ConnParam) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { Id::of(id) };
    // SAFETY: as above.
    unsafe { check(id, &param) }?;
    name_present_qp(object);
    let qp = qp_of(object).map(|qp| qp as &dyn Follower);
    object.urxe.accept_with(&param, qp)?;
    if is_connected_service(object) {
        // SAFETY: the caller's promise.
        return unsafe { finish(id) };
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: an id and data, by the rules of the function.
    let (id, data) = unsafe { (Id::of(id), bytes(data.cast(), len)) };
    minus_one(id.urxe.reject(&data).map_err(Errno::from))
}

pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: an id, by the rules of the function.
    let id = unsafe { Id::of(id) };
    // With a QP of its own the library has done that.
    if qp_of(id).is_some() {
        return minus_one(Err(Errno::INVAL));
    }
    minus_one(id.urxe.establish().map_err(Errno::from))
}

pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    // SAFETY: an id, by the rules of the function.
    let id = unsafe { Id::of(id) };
    minus_one(match event {
        COMM_EST => id.urxe.notify_established().map_err(Errno::from),
        _ => Err(Errno::INVAL),
    })
}

pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: an id, by the rules of the function.
    minus_one(unsafe { disconnect(id) })
}

/// # Safety
/// A live id.
unsafe fn disconnect(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { Id::of(id) };
    if !is_connected_service(object) {
        return Err(Errno::INVAL);
    }
    if let Some(qp) = qp_of(object) {
        qp.fail()?;
    }
    object.urxe.disconnect()?;
    // SAFETY: the caller's promise.
    unsafe { finish(id) }
}
