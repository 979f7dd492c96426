//! Multicast groups.

use core::ffi::c_int;

use super::gid::to_gid;
use crate::errno::number;
use crate::layout::{ibv_gid, ibv_qp};
use crate::object::{Object, Qp};

pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: a QP and a GID, by the rules of the function.
    let (qp, gid) = unsafe { (Qp::find(qp), *gid) };
    number(qp.and_then(|qp| Ok(qp.urxe.attach_mcast(to_gid(gid))?)))
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    _lid: u16,
) -> c_int {
    // SAFETY: a QP and a GID, by the rules of the function.
    let (qp, gid) = unsafe { (Qp::find(qp), *gid) };
    number(qp.and_then(|qp| Ok(qp.urxe.detach_mcast(to_gid(gid))?)))
}
