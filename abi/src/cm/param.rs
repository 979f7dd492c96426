//! Parameters of connections, between C and Rust.

use urxe::Qpn;
use urxe::cm::{ConnParam, UdParam};

use crate::errno::Errno;
use crate::layout::{
    CStruct, array, ibv_context, rdma_conn_param, rdma_event_param, rdma_ud_param,
};
use crate::object::Context;
use crate::verbs::ah::path_attr;

/// A program's parameters. Without any: as much as there is of everything, and no data.
///
/// # Safety
/// Null; or parameters with private data as long as they say.
pub(super) unsafe fn from_c(param: *const rdma_conn_param) -> ConnParam {
    // SAFETY: the caller's promise.
    let Some(param) = (unsafe { param.as_ref() }) else {
        return ConnParam::default();
    };
    ConnParam {
        // SAFETY: the caller's promise.
        private_data: unsafe { bytes(param.private_data.cast(), param.private_data_len) },
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control != 0,
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        srq: param.srq != 0,
        qp_num: Qpn::new(param.qp_num & 0xff_ffff),
    }
}

/// A copy of private data.
///
/// # Safety
/// So many readable bytes; null without any.
pub(super) unsafe fn bytes(data: *const u8, len: u8) -> Vec<u8> {
    let len = if data.is_null() { 0 } else { len };
    // SAFETY: the caller's promise.
    unsafe { array(data, usize::from(len)) }.to_vec()
}

/// Parameters without their data.
pub(super) fn to_c(param: &ConnParam) -> rdma_event_param {
    let mut conn = rdma_conn_param::zeroed();
    conn.responder_resources = param.responder_resources;
    conn.initiator_depth = param.initiator_depth;
    conn.flow_control = u8::from(param.flow_control);
    conn.retry_count = param.retry_count;
    conn.rnr_retry_count = param.rnr_retry_count;
    conn.srq = u8::from(param.srq);
    conn.qp_num = param.qp_num.get();
    rdma_event_param { conn }
}

/// The parameters of a datagram service, in C's form.
///
/// # Safety
/// A live context.
pub(super) unsafe fn ud_to_c(context: *mut ibv_context, param: &UdParam) -> rdma_event_param {
    let mut ud = rdma_ud_param::zeroed();
    // SAFETY: the caller's promise.
    ud.ah_attr = path_attr(unsafe { Context::of(context) }, &param.ah_attr);
    ud.qp_num = param.qp_num.get();
    ud.qkey = param.qkey.0;
    rdma_event_param { ud }
}

/// Puts private data into parameters. The pointer is right as long as the data stays where it is.
pub(super) fn set_data(param: &mut rdma_event_param, is_ud: bool, data: &[u8]) {
    let at = data.as_ptr().cast();
    let len = data.len().min(usize::from(u8::MAX)) as u8;
    if is_ud {
        param.ud.private_data = at;
        param.ud.private_data_len = len;
    } else {
        param.conn.private_data = at;
        param.conn.private_data_len = len;
    }
}

/// More READs and atomics than the device can have under way are `EINVAL`; [`ConnParam::MAX_DEPTH`] is as many as it
/// can.
pub(super) fn check_depth(context: &urxe::Context, param: &ConnParam) -> Result<(), Errno> {
    let limits = context.query_device();
    let fits =
        |wanted: u8, limit: u32| wanted == ConnParam::MAX_DEPTH || u32::from(wanted) <= limit;
    let is_possible = fits(param.responder_resources, limits.max_qp_rd_atom)
        && fits(param.initiator_depth, limits.max_qp_init_rd_atom);
    if is_possible {
        Ok(())
    } else {
        Err(Errno::INVAL)
    }
}
