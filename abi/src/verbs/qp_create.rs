//! Queue pairs: creating, opening and destroying.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr;

use urxe::{QpCap, QpInitAttr, QpType, Qpn};

use super::qp::from_cap;
use crate::errno::{Errno, pointer};
use crate::events::Acks;
use crate::layout::{
    CStruct, ibv_context, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_xrcd,
};
use crate::live::{self, find_some};
use crate::object::{Context, Cq, Hold, Names, Object, Pd, Qp, Shared, Srq, Xrcd};
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
    init: ibv_qp_init_attr,
    pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
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
        return pointer(Err(Errno::INVAL));
    }
    let wanted = Wanted {
        // SAFETY: a PD, by the rules of the function.
        context: unsafe { (*pd).context },
        init: *attr,
        pd,
        xrcd: ptr::null_mut(),
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
    // SAFETY: attributes, by the rules of the function; they begin as the basic ones.
    let (init, attr) = unsafe { (attr.cast::<ibv_qp_init_attr>().read(), &mut *attr) };
    let has = |bit| attr.comp_mask & bit != 0;
    let unknown = attr.comp_mask & !(PD | XRCD | CREATE_FLAGS | SEND_OPS) != 0;
    let flags = if has(CREATE_FLAGS) {
        attr.create_flags
    } else {
        0
    };
    if unknown || flags & !BLOCK_SELF_MCAST_LB != 0 {
        return pointer(Err(Errno::NOT_SUPPORTED));
    }
    let wanted = Wanted {
        context,
        init,
        pd: if has(PD) { attr.pd } else { ptr::null_mut() },
        xrcd: if has(XRCD) {
            attr.xrcd
        } else {
            ptr::null_mut()
        },
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
        match wanted.init.qp_type {
            XRC_RECV => target(wanted)?,
            _ => initiator(wanted)?,
        }
    };
    *cap = from_cap(&urxe.cap());
    // SAFETY: the caller's promise.
    unsafe { give(wanted, urxe) }
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
    let init = &wanted.init;
    // SAFETY: the caller's promise.
    let (pd, send_cq, recv_cq, srq) = unsafe {
        (
            find_some::<Pd>(wanted.pd)?.ok_or(Errno::INVAL)?,
            find_some::<Cq>(init.send_cq)?.ok_or(Errno::INVAL)?,
            find_some::<Cq>(init.recv_cq)?,
            find_some::<Srq>(init.srq)?,
        )
    };
    let qp_type = match init.qp_type {
        RC => QpType::Rc,
        UC => QpType::Uc,
        UD => QpType::Ud,
        XRC_SEND => QpType::XrcSend,
        _ => return Err(Errno::NOT_SUPPORTED),
    };
    // One that only sends has no queue for receives.
    let recv_cq = match recv_cq {
        Some(recv_cq) => recv_cq,
        None if init.qp_type == XRC_SEND => send_cq,
        None => return Err(Errno::INVAL),
    };
    let mut attr = QpInitAttr::new(&send_cq.urxe, &recv_cq.urxe);
    attr.cap = to_cap(&init.cap);
    if wanted.send_ops.is_some_and(qp_ex::takes_value) {
        // The value of an ATOMIC WRITE travels in the request.
        attr.cap.max_inline_data = attr.cap.max_inline_data.max(8);
    }
    if init.qp_type == XRC_SEND {
        (attr.cap.max_recv_wr, attr.cap.max_recv_sge) = (0, 0);
    }
    attr.qp_type = qp_type;
    attr.sq_sig_all = init.sq_sig_all != 0;
    attr.block_self_mcast_lb = wanted.block_self_mcast_lb;
    attr.srq = srq.map(|srq| &srq.urxe);
    Ok(pd.urxe.create_qp(&attr)?)
}

/// # Safety
/// As for [`create`].
unsafe fn give(wanted: &Wanted, urxe: urxe::Qp) -> Result<*mut ibv_qp, Errno> {
    let init = &wanted.init;
    let qpn = urxe.qp_num().get();
    let mut ibv = ibv_qp_ex::zeroed();
    ibv.qp_base.context = wanted.context;
    ibv.qp_base.qp_context = init.qp_context;
    ibv.qp_base.pd = wanted.pd;
    ibv.qp_base.send_cq = init.send_cq;
    ibv.qp_base.recv_cq = init.recv_cq;
    ibv.qp_base.srq = init.srq;
    ibv.qp_base.handle = qpn;
    ibv.qp_base.qp_num = qpn;
    ibv.qp_base.qp_type = init.qp_type;
    let send_ops = wanted.send_ops.filter(|_| init.qp_type != XRC_RECV);
    if let Some(ops) = send_ops {
        qp_ex::fill(&mut ibv, ops);
    }
    // SAFETY: the caller's promise.
    let made_of = unsafe {
        [
            find_some::<Pd>(wanted.pd)?.map(|pd| Hold::of(&pd.users)),
            find_some::<Cq>(init.send_cq)?.map(|cq| Hold::of(&cq.users)),
            find_some::<Cq>(init.recv_cq)?.map(|cq| Hold::of(&cq.users)),
            find_some::<Srq>(init.srq)?.map(|srq| Hold::of(&srq.users)),
            find_some::<Xrcd>(wanted.xrcd)?.map(|xrcd| Hold::of(&xrcd.users)),
        ]
    };
    let qp = live::give(Qp {
        ibv: UnsafeCell::new(ibv),
        names: match init.qp_type {
            UD => Names::Datagram,
            XRC_SEND => Names::Srq,
            _ => Names::Nothing,
        },
        batch: send_ops.map(|_| Box::new(qp_ex::Batch::new(&urxe.cap()))),
        urxe,
        sq_sig_all: init.sq_sig_all != 0,
        async_events: Acks::default(),
        failures: Failures::default(),
        _made_of: made_of,
    });
    // SAFETY: a live context, by the caller's promise.
    let context = unsafe { Context::of(wanted.context) };
    context.registry().qps.insert(qpn, Shared(qp));
    Ok(qp)
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
        return pointer(Err(Errno::INVAL));
    }
    let wanted = Wanted {
        context,
        init: ibv_qp_init_attr {
            qp_context: attr.qp_context,
            qp_type: XRC_RECV,
            ..ibv_qp_init_attr::zeroed()
        },
        pd: ptr::null_mut(),
        xrcd: attr.xrcd,
        block_self_mcast_lb: false,
        send_ops: None,
    };
    // SAFETY: a domain, by the rules of the function.
    let xrcd = unsafe { Xrcd::find(attr.xrcd) };
    pointer(xrcd.and_then(|xrcd| {
        let urxe = xrcd.urxe.open_qp(Qpn::new(attr.qp_num))?;
        // SAFETY: as above.
        unsafe { give(&wanted, urxe) }
    }))
}

pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let end = |object: &Qp| {
        let qpn = object.urxe.qp_num().get();
        let mut registry = object.context().registry();
        // Another handle of the same target may be the one that events are told to.
        if registry.qps.get(&qpn).is_some_and(|known| known.0 == qp) {
            registry.qps.remove(&qpn);
        }
        drop(registry);
        object.async_events.wait();
        tell_rest(object);
    };
    // SAFETY: a QP that the program does not use again, by the rules of the function.
    unsafe { live::destroy(qp, end) }
}
