//! Queue pairs: modifying and querying.

use core::ffi::c_int;
use core::ptr;

use urxe::{Access, AttrMask, Mtu, Psn, Qkey, QpAttr, QpCap, QpState, QpType, Qpn};

use super::ah::{path, path_attr};
use crate::errno::{Errno, number};
use crate::layout::{CStruct, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr};
use crate::object::{Context, Object, Qp};
use crate::verbose::{tell_rest, tell_timer};

/// `IBV_ACCESS_*` that say something of regions alone (MW_BIND, ZERO_BASED, ON_DEMAND, HUGETLB, and the optional
/// ones). Programs give a QP the flags that they give their regions, and adapters do not mind.
const OF_REGIONS: u32 = 0xf0 | 0x3ff0_0000;

pub(super) fn from_cap(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: a QP and attributes, by the rules of the function.
    let (object, attr) = unsafe { (Qp::find(qp), &*attr) };
    let mask = AttrMask(mask as u32);
    number(object.and_then(|object| {
        let attr = to_attr(object.context(), attr, mask)?;
        Ok(modify(object, &attr, mask)?)
    }))
}

/// Changes the QP, and what the program reads of its state.
pub(crate) fn modify(object: &Qp, attr: &QpAttr, mask: AttrMask) -> Result<(), urxe::Error> {
    let mask = mask.without(of_the_other_half(object.urxe.qp_type()));
    object.urxe.modify(attr, mask)?;
    if mask.contains(AttrMask::STATE) {
        if attr.qp_state == QpState::Reset {
            tell_rest(object);
        }
        // SAFETY: the program's part, which it does not touch during this call.
        unsafe { (*object.ibv.get()).qp_base.state = attr.qp_state as c_int };
    }
    Ok(())
}

/// Attributes of a connection's side that a QP of XRC does not have. Linux takes them out of the mask before a driver
/// looks at it, so programs (perftest) give both halves what they give an RC QP.
fn of_the_other_half(qp_type: QpType) -> AttrMask {
    match qp_type {
        QpType::XrcSend => AttrMask::MAX_DEST_RD_ATOMIC.union(AttrMask::MIN_RNR_TIMER),
        QpType::XrcRecv => AttrMask::MAX_QP_RD_ATOMIC
            .union(AttrMask::RETRY_CNT)
            .union(AttrMask::RNR_RETRY),
        QpType::Rc | QpType::Uc | QpType::Ud => AttrMask::NONE,
    }
}

/// What the mask does not name may be anything, and is not looked at.
fn to_attr(context: &Context, attr: &ibv_qp_attr, mask: AttrMask) -> Result<QpAttr, Errno> {
    let has = |bit: AttrMask| mask.contains(bit);
    let mut to = QpAttr::default();
    if has(AttrMask::STATE) {
        to.qp_state = state(attr.qp_state)?;
    }
    if has(AttrMask::CUR_STATE) {
        to.cur_qp_state = state(attr.cur_qp_state)?;
    }
    if has(AttrMask::PATH_MTU) {
        let number = u32::try_from(attr.path_mtu).map_err(|_| Errno::INVAL)?;
        to.path_mtu = Mtu::from_number(number).ok_or(Errno::INVAL)?;
    }
    if has(AttrMask::AV) {
        to.ah_attr = Some(path(context, &attr.ah_attr)?);
    }
    to.en_sqd_async_notify = attr.en_sqd_async_notify != 0;
    to.qp_access_flags = Access(attr.qp_access_flags & !OF_REGIONS);
    to.pkey_index = attr.pkey_index;
    to.port_num = attr.port_num;
    to.qkey = Qkey(attr.qkey);
    to.dest_qp_num = Qpn::new(attr.dest_qp_num);
    to.rq_psn = Psn::new(attr.rq_psn);
    to.sq_psn = Psn::new(attr.sq_psn);
    to.max_rd_atomic = attr.max_rd_atomic;
    to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    if has(AttrMask::MIN_RNR_TIMER) {
        to.min_rnr_timer = low_bits_of_timer(attr.min_rnr_timer);
    }
    to.timeout = attr.timeout;
    to.retry_cnt = attr.retry_cnt;
    to.rnr_retry = attr.rnr_retry;
    Ok(to)
}

/// NVIDIA's adapters and rdma_rxe put the number into a field of five bits, and programs (DLSlime) that give 32 do not
/// notice; others refuse it.
fn low_bits_of_timer(number: u8) -> u8 {
    let low = number & 0x1f;
    if low != number {
        tell_timer(number, low);
    }
    low
}

pub(crate) fn state(number: c_int) -> Result<QpState, Errno> {
    let index = usize::try_from(number).map_err(|_| Errno::INVAL)?;
    QpState::ALL.get(index).copied().ok_or(Errno::INVAL)
}

pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: a QP, by the rules of the function.
    let object = unsafe { Qp::find(qp) };
    let found = object.and_then(|object| Ok((object, object.urxe.query()?)));
    number(found.map(|(object, found)| {
        // SAFETY: the program's part, and places for the attributes, by the rules of the function.
        unsafe {
            let base = &mut (*object.ibv.get()).qp_base;
            base.state = found.qp_state as c_int;
            attr.write(ibv_qp_attr {
                cap: from_cap(&object.urxe.cap()),
                ..from_attr(object.context(), &found)
            });
            init.write(ibv_qp_init_attr {
                qp_context: base.qp_context,
                send_cq: base.send_cq,
                recv_cq: base.recv_cq,
                srq: base.srq,
                cap: from_cap(&object.urxe.cap()),
                qp_type: base.qp_type,
                sq_sig_all: c_int::from(object.sq_sig_all),
            });
        }
    }))
}

/// All but the capabilities, which are not attributes to urxe.
pub(crate) fn from_attr(context: &Context, from: &QpAttr) -> ibv_qp_attr {
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = from.qp_state as c_int;
    attr.cur_qp_state = from.qp_state as c_int;
    attr.path_mtu = from.path_mtu as c_int;
    attr.qkey = from.qkey.0;
    attr.rq_psn = from.rq_psn.get();
    attr.sq_psn = from.sq_psn.get();
    attr.dest_qp_num = from.dest_qp_num.get();
    attr.qp_access_flags = from.qp_access_flags.0;
    if let Some(path) = &from.ah_attr {
        attr.ah_attr = path_attr(context, path);
    }
    attr.pkey_index = from.pkey_index;
    attr.en_sqd_async_notify = u8::from(from.en_sqd_async_notify);
    attr.max_rd_atomic = from.max_rd_atomic;
    attr.max_dest_rd_atomic = from.max_dest_rd_atomic;
    attr.min_rnr_timer = from.min_rnr_timer;
    attr.port_num = from.port_num;
    attr.timeout = from.timeout;
    attr.retry_cnt = from.retry_cnt;
    attr.rnr_retry = from.rnr_retry;
    attr
}

/// The QP as an `ibv_qp_ex`, if it was made for `ibv_wr_*`.
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: a QP, by the rules of the function.
    if unsafe { Qp::of(qp) }.batch.is_some() {
        return qp.cast();
    }
    ptr::null_mut()
}

/// Data is placed in no particular order that a program may lean on.
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut ibv_qp,
    _op: c_int,
    _flags: u32,
) -> c_int {
    0
}
