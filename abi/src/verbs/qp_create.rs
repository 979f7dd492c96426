//! Queue pairs: creating, opening and destroying.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;

use urxe::{QpCap, QpInitAttr, QpType, Qpn};

use super::qp::from_cap;
use crate::errno::{Errno, number, pointer};
use crate::events::Acks;
use crate::layout::{
    CStruct, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_srq, ibv_xrcd,
};
use crate::live::{self, bury};
use crate::object::{Context, Cq, Hold, Names, Object, Pd, Qp, Shared, Srq, Users, Xrcd, of};
use crate::ops::qp_ex;
use crate::verbose::{Failures, tell_rest};

/// `enum ibv_qp_type`
pub(crate) const RC: c_int = 2;
pub(crate) const UC: c_int = 3;
pub(crate) const UD: c_int = 4;
pub(crate) const XRC_SEND: c_int = 9;
pub(crate) const XRC_RECV: c_int = 10;

/// What is asked for, by either function. Which objects may be missing, the type says.
struct Wanted {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
    qp_context: *mut c_void,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    cap: ibv_qp_cap,
    qp_type: c_int,
    sq_sig_all: bool,
    block_self_mcast_lb: bool,
    /// `ibv_wr_*` functions that it is to have.
    send_ops: Option<u64>,
}

pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: attributes, by the rules of the function.
    let attr = unsafe { &mut *attr };
    if pd.is_null() {
        Errno::INVAL.set();
        return ptr::null_mut();
    }
    let wanted = Wanted {
        // SAFETY: a PD, by the rules of the function.
        context: unsafe { (*pd).context },
        pd,
        xrcd: ptr::null_mut(),
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all != 0,
        block_self_mcast_lb: false,
        send_ops: None,
    };
    // SAFETY: objects of the program, by the rules of the function.
    pointer(unsafe { create(&wanted, &mut attr.cap) })
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    const PD: u32 = 1 << 0;
    const XRCD: u32 = 1 << 1;
    const CREATE_FLAGS: u32 = 1 << 2;
    const SEND_OPS: u32 = 1 << 6;
    const BLOCK_SELF_MCAST_LB: u32 = 1 << 1;
    // SAFETY: attributes, by the rules of the function.
    let attr = unsafe { &mut *attr };
    let has = |bit| attr.comp_mask & bit != 0;
    let unknown = attr.comp_mask & !(PD | XRCD | CREATE_FLAGS | SEND_OPS) != 0;
    let flags = if has(CREATE_FLAGS) {
        attr.create_flags
    } else {
        0
    };
    if unknown || flags & !BLOCK_SELF_MCAST_LB != 0 {
        Errno::NOT_SUPPORTED.set();
        return ptr::null_mut();
    }
    let wanted = Wanted {
        context,
        pd: if has(PD) { attr.pd } else { ptr::null_mut() },
        xrcd: if has(XRCD) {
            attr.xrcd
        } else {
            ptr::null_mut()
        },
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all != 0,
        block_self_mcast_lb: flags & BLOCK_SELF_MCAST_LB != 0,
        send_ops: has(SEND_OPS).then_some(attr.send_ops_flags),
    };
    // SAFETY: objects of the program, by the rules of the function.
    pointer(unsafe { create(&wanted, &mut attr.cap) })
}

/// # Safety
/// Objects must be live, or null.
unsafe fn create(wanted: &Wanted, cap: &mut ibv_qp_cap) -> Result<*mut ibv_qp, Errno> {
    if let Some(ops) = wanted.send_ops {
        qp_ex::check(ops)?;
    }
    // SAFETY: the caller's promise.
    let urxe = unsafe {
        match wanted.qp_type {
            XRC_RECV => target(wanted)?,
            _ => initiator(wanted)?,
        }
    };
    *cap = from_cap(&urxe.cap());
    // SAFETY: the caller's promise.
    Ok(unsafe { give(wanted, urxe) })
}

/// # Safety
/// As for [`create`].
unsafe fn target(wanted: &Wanted) -> Result<urxe::Qp, Errno> {
    // SAFETY: the caller's promise.
    let xrcd = unsafe { find_some::<Xrcd>(wanted.xrcd) }?.ok_or(Errno::INVAL)?;
    Ok(xrcd.urxe.create_target()?)
}

/// # Safety
/// As for [`create`].
unsafe fn initiator(wanted: &Wanted) -> Result<urxe::Qp, Errno> {
    // SAFETY: the caller's promise.
    let (pd, send_cq, recv_cq, srq) = unsafe {
        (
            find_some::<Pd>(wanted.pd)?.ok_or(Errno::INVAL)?,
            find_some::<Cq>(wanted.send_cq)?.ok_or(Errno::INVAL)?,
            find_some::<Cq>(wanted.recv_cq)?,
            find_some::<Srq>(wanted.srq)?,
        )
    };
    let qp_type = match wanted.qp_type {
        RC => QpType::Rc,
        UC => QpType::Uc,
        UD => QpType::Ud,
        XRC_SEND => QpType::XrcSend,
        _ => return Err(Errno::NOT_SUPPORTED),
    };
    // One that only sends has no queue for receives.
    let recv_cq = match recv_cq {
        Some(recv_cq) => recv_cq,
        None if wanted.qp_type == XRC_SEND => send_cq,
        None => return Err(Errno::INVAL),
    };
    let mut init = QpInitAttr::new(&send_cq.urxe, &recv_cq.urxe);
    init.cap = to_cap(&wanted.cap);
    if wanted.send_ops.is_some_and(qp_ex::takes_value) {
        // The value of an ATOMIC WRITE travels in the request.
        init.cap.max_inline_data = init.cap.max_inline_data.max(8);
    }
    if wanted.qp_type == XRC_SEND {
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
    }
    init.qp_type = qp_type;
    init.sq_sig_all = wanted.sq_sig_all;
    init.block_self_mcast_lb = wanted.block_self_mcast_lb;
    init.srq = srq.map(|srq| &srq.urxe);
    Ok(pd.urxe.create_qp(&init)?)
}

/// # Safety
/// As for [`create`].
unsafe fn give(wanted: &Wanted, urxe: urxe::Qp) -> *mut ibv_qp {
    let mut ibv = ibv_qp_ex::zeroed();
    ibv.qp_base.context = wanted.context;
    ibv.qp_base.qp_context = wanted.qp_context;
    ibv.qp_base.pd = wanted.pd;
    ibv.qp_base.send_cq = wanted.send_cq;
    ibv.qp_base.recv_cq = wanted.recv_cq;
    ibv.qp_base.srq = wanted.srq;
    ibv.qp_base.handle = urxe.qp_num().get();
    ibv.qp_base.qp_num = urxe.qp_num().get();
    ibv.qp_base.qp_type = wanted.qp_type;
    let send_ops = wanted.send_ops.filter(|_| wanted.qp_type != XRC_RECV);
    if let Some(ops) = send_ops {
        qp_ex::fill(&mut ibv, ops);
    }
    // SAFETY: the caller's promise.
    unsafe { users(wanted).for_each(Users::add) };
    let (qpn, xrcd) = (ibv.qp_base.qp_num, wanted.xrcd);
    let qp = live::give(Qp {
        ibv: UnsafeCell::new(ibv),
        names: match wanted.qp_type {
            UD => Names::Datagram,
            XRC_SEND => Names::Srq,
            _ => Names::Nothing,
        },
        batch: send_ops.map(|_| Box::new(qp_ex::Batch::new(&urxe.cap()))),
        urxe,
        xrcd: (!xrcd.is_null()).then_some(xrcd),
        sq_sig_all: wanted.sq_sig_all,
        async_events: Acks::default(),
        failures: Failures::default(),
        // SAFETY: the caller's promise.
        _pd: unsafe { some::<Pd>(wanted.pd) }.map(|pd| Hold::of(&pd.users)),
    });
    // SAFETY: a live context, by the caller's promise.
    let context = unsafe { Context::of(wanted.context) };
    context.registry().qps.insert(qpn, Shared(qp));
    qp
}

/// The counts of what the QP is made of, beside the domain, which it holds by itself.
///
/// # Safety
/// As for [`create`].
unsafe fn users(wanted: &Wanted) -> impl Iterator<Item = &'static Users> {
    // SAFETY: the caller's promise.
    let all = unsafe {
        [
            some::<Cq>(wanted.send_cq).map(|cq| &cq.users),
            some::<Cq>(wanted.recv_cq).map(|cq| &cq.users),
            some::<Srq>(wanted.srq).map(|srq| &srq.users),
            some::<Xrcd>(wanted.xrcd).map(|xrcd| &xrcd.users),
        ]
    };
    all.into_iter().flatten()
}

/// # Safety
/// Null, or as for [`of`].
unsafe fn some<T: Object + 'static>(ptr: *mut T::C) -> Option<&'static T> {
    // SAFETY: the caller's promise.
    (!ptr.is_null()).then(|| unsafe { of::<T>(ptr) })
}

/// The object behind a pointer that may be null, looked up.
///
/// # Safety
/// As for [`live::find`].
unsafe fn find_some<T: Object>(ptr: *mut T::C) -> Result<Option<&'static T>, Errno> {
    // SAFETY: the caller's promise.
    let found = (!ptr.is_null()).then(|| unsafe { live::find::<T>(ptr) });
    found.transpose()
}

fn to_cap(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Another handle of an XRC target.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    const NUM: u32 = 1 << 0;
    const XRCD: u32 = 1 << 1;
    const CONTEXT: u32 = 1 << 2;
    const TYPE: u32 = 1 << 3;
    // SAFETY: attributes, by the rules of `ibv_open_qp`.
    let attr = unsafe { &*attr };
    let has = |bit| attr.comp_mask & bit != 0;
    let is_known = attr.comp_mask & !(NUM | XRCD | CONTEXT | TYPE) == 0;
    let is_target = has(TYPE) && attr.qp_type == XRC_RECV;
    if !(is_known && has(NUM) && has(XRCD) && is_target) || attr.xrcd.is_null() {
        Errno::INVAL.set();
        return ptr::null_mut();
    }
    let wanted = Wanted {
        context,
        pd: ptr::null_mut(),
        xrcd: attr.xrcd,
        qp_context: attr.qp_context,
        send_cq: ptr::null_mut(),
        recv_cq: ptr::null_mut(),
        srq: ptr::null_mut(),
        cap: ibv_qp_cap::zeroed(),
        qp_type: XRC_RECV,
        sq_sig_all: false,
        block_self_mcast_lb: false,
        send_ops: None,
    };
    // SAFETY: a domain, by the rules of the function.
    let xrcd = unsafe { Xrcd::find(attr.xrcd) };
    pointer(xrcd.and_then(|xrcd| {
        let urxe = xrcd.urxe.open_qp(Qpn::new(attr.qp_num))?;
        // SAFETY: as above.
        Ok(unsafe { give(&wanted, urxe) })
    }))
}

pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: a QP, by the rules of the function.
    let object = match unsafe { live::take::<Qp>(qp, |_| Ok(())) } {
        Ok(object) => object,
        Err(errno) => return number(Err(errno)),
    };
    // SAFETY: the program's part; what it was made of never changes.
    let base = unsafe { &(*object.ibv.get()).qp_base };
    let made_of = Wanted {
        context: base.context,
        pd: base.pd,
        xrcd: object.xrcd.unwrap_or(ptr::null_mut()),
        qp_context: base.qp_context,
        send_cq: base.send_cq,
        recv_cq: base.recv_cq,
        srq: base.srq,
        cap: ibv_qp_cap::zeroed(),
        qp_type: base.qp_type,
        sq_sig_all: object.sq_sig_all,
        block_self_mcast_lb: false,
        send_ops: None,
    };
    // SAFETY: its context lives longer.
    let context = unsafe { Context::of(made_of.context) };
    let qpn = object.urxe.qp_num().get();
    let mut registry = context.registry();
    // Another handle of the same target may be the one that events are told to.
    if registry.qps.get(&qpn).is_some_and(|known| known.0 == qp) {
        registry.qps.remove(&qpn);
    }
    drop(registry);
    object.async_events.wait();
    tell_rest(object);
    // SAFETY: it is no longer used, by the rules of the function; what it was made of cannot be destroyed before
    // it is gone.
    unsafe {
        bury::<Qp>(qp);
        users(&made_of).for_each(Users::remove);
    }
    0
}
