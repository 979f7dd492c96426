//! Shared receive queues.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::sync::Arc;

use urxe::{SrqAttr, SrqAttrMask, TmCap};

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
pub(crate) const TM: u32 = 1 << 4;
/// `enum ibv_srq_type`
pub(crate) const BASIC: c_int = 0;
pub(crate) const XRC: c_int = 1;
pub(crate) const TAGS: c_int = 2;

/// What a queue needs beside its protection domain.
enum Kind {
    Basic,
    Xrc(*mut ibv_xrcd, *mut ibv_cq),
    Tags(*mut ibv_cq, TmCap),
}

pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: a PD and attributes, by the rules of the function.
    pointer(unsafe { create(pd, (*attr).srq_context, Kind::Basic, &mut (*attr).attr) })
}

/// A basic one, as `ibv_create_srq` makes it, one of an XRC domain, or one with tag matching.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: attributes, by the rules of the function.
    let attr = unsafe { &mut *attr };
    let has = |bit| attr.comp_mask & bit != 0;
    let kind = if has(TYPE) { attr.srq_type } else { BASIC };
    let unknown = attr.comp_mask & !(TYPE | PD | XRCD | CQ | TM) != 0;
    if unknown || ![BASIC, XRC, TAGS].contains(&kind) {
        return pointer(Err(Errno::NOT_SUPPORTED));
    }
    let has_cq = has(CQ) && !attr.cq.is_null();
    let [max_num_tags, max_ops] = attr.tm_cap;
    let cap = TmCap {
        max_num_tags,
        max_ops,
    };
    let kind = match kind {
        XRC if has(XRCD) && !attr.xrcd.is_null() && has_cq => Kind::Xrc(attr.xrcd, attr.cq),
        TAGS if has(TM) && has_cq => Kind::Tags(attr.cq, cap),
        BASIC => Kind::Basic,
        _ => return pointer(Err(Errno::INVAL)),
    };
    if !has(PD) || attr.pd.is_null() {
        return pointer(Err(Errno::INVAL));
    }
    // SAFETY: live objects, by the rules of the function.
    pointer(unsafe { create(attr.pd, attr.srq_context, kind, &mut attr.attr) })
}

/// # Safety
/// Live objects.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    kind: Kind,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: the caller's promise.
    let owner = unsafe { Pd::find(pd) }?;
    let wanted = SrqAttr {
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        // `man ibv_create_srq`: ignored.
        srq_limit: 0,
    };
    let (urxe, holds) = match kind {
        Kind::Basic => (owner.urxe.create_srq(&wanted)?, Vec::new()),
        Kind::Xrc(xrcd, cq) => {
            // SAFETY: the caller's promise.
            let (xrcd, cq) = unsafe { (Xrcd::find(xrcd)?, Cq::find(cq)?) };
            let urxe = xrcd.urxe.create_srq(&owner.urxe, &cq.urxe, &wanted)?;
            (urxe, vec![Hold::of(&xrcd.users), Hold::of(&cq.users)])
        }
        Kind::Tags(cq, cap) => {
            // SAFETY: the caller's promise.
            let cq = unsafe { Cq::find(cq) }?;
            let urxe = owner.urxe.create_tm_srq(&cq.urxe, &wanted, &cap)?;
            (urxe, vec![Hold::of(&cq.users)])
        }
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
        _holds: holds,
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
