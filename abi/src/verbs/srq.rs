//! Shared receive queues.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::sync::Arc;

use urxe::{SrqAttr, SrqAttrMask};

use crate::errno::{Errno, number, pointer, store};
use crate::events::Acks;
use crate::layout::{
    CStruct, ibv_context, ibv_cq, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_srq_init_attr_ex, ibv_xrcd,
};
use crate::live;
use crate::object::{Cq, Hold, Object, Pd, Shared, Srq, Xrcd};

/// `IBV_SRQ_INIT_ATTR_*`
pub(crate) const TYPE: u32 = 1 << 0;
pub(crate) const PD: u32 = 1 << 1;
pub(crate) const XRCD: u32 = 1 << 2;
pub(crate) const CQ: u32 = 1 << 3;
/// `enum ibv_srq_type`
pub(crate) const BASIC: c_int = 0;
pub(crate) const XRC: c_int = 1;

pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: a PD and attributes, by the rules of the function.
    pointer(unsafe { create(pd, (*attr).srq_context, None, &mut (*attr).attr) })
}

/// A basic one, as `ibv_create_srq` makes it, or one of an XRC domain.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: attributes, by the rules of the function.
    let attr = unsafe { &mut *attr };
    let has = |bit| attr.comp_mask & bit != 0;
    let kind = if has(TYPE) { attr.srq_type } else { BASIC };
    let unknown = attr.comp_mask & !(TYPE | PD | XRCD | CQ) != 0;
    if unknown || ![BASIC, XRC].contains(&kind) {
        return pointer(Err(Errno::NOT_SUPPORTED));
    }
    let has_pd = has(PD) && !attr.pd.is_null();
    let has_xrc = has(XRCD) && !attr.xrcd.is_null() && has(CQ) && !attr.cq.is_null();
    if !has_pd || (kind == XRC && !has_xrc) {
        return pointer(Err(Errno::INVAL));
    }
    let xrc = (kind == XRC).then_some((attr.xrcd, attr.cq));
    // SAFETY: live objects, by the rules of the function.
    pointer(unsafe { create(attr.pd, attr.srq_context, xrc, &mut attr.attr) })
}

/// # Safety
/// Live objects.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: the caller's promise.
    let owner = unsafe { Pd::find(pd) }?;
    let xrc = match xrc {
        // SAFETY: the caller's promise.
        Some((xrcd, cq)) => Some(unsafe { (Xrcd::find(xrcd)?, Cq::find(cq)?) }),
        None => None,
    };
    let wanted = SrqAttr {
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        // `man ibv_create_srq`: ignored.
        srq_limit: 0,
    };
    let urxe = match xrc {
        None => owner.urxe.create_srq(&wanted)?,
        Some((xrcd, cq)) => xrcd.urxe.create_srq(&owner.urxe, &cq.urxe, &wanted)?,
    };
    let made = urxe.query()?;
    (attr.max_wr, attr.max_sge) = (made.max_wr, made.max_sge);
    let id = urxe.id().0;
    let mut ibv = ibv_srq::zeroed();
    ibv.context = owner.c_context();
    ibv.srq_context = srq_context;
    ibv.pd = pd;
    ibv.handle = id;
    let srq = live::give(Srq {
        ibv: UnsafeCell::new(ibv),
        urxe,
        users: Arc::default(),
        xrc: xrc.map(|(xrcd, cq)| [Hold::of(&xrcd.users), Hold::of(&cq.users)]),
        async_events: Acks::default(),
        _pd: Hold::of(&owner.users),
    });
    owner.context().registry().srqs.insert(id, Shared(srq));
    Ok(srq)
}

pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: an SRQ and attributes, by the rules of the function.
    let (object, attr) = unsafe { (Srq::find(srq), &*attr) };
    let wanted = SrqAttr {
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        srq_limit: attr.srq_limit,
    };
    number(object.and_then(|object| Ok(object.urxe.modify(&wanted, SrqAttrMask(mask as u32))?)))
}

pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: an SRQ, by the rules of the function.
    let object = unsafe { Srq::find(srq) };
    let found = object.and_then(|object| Ok(object.urxe.query()?));
    let found = found.map(|found| ibv_srq_attr {
        max_wr: found.max_wr,
        max_sge: found.max_sge,
        srq_limit: found.srq_limit,
    });
    // SAFETY: a place for the attributes, by the rules of the function.
    number(unsafe { store(attr, found) })
}

pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let end = |srq: &Srq| {
        srq.context().registry().srqs.remove(&srq.urxe.id().0);
        srq.async_events.wait();
    };
    // SAFETY: an SRQ that the program does not use again, by the rules of the function.
    unsafe { live::destroy(srq, end) }
}
