//! Memory windows.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint};

use urxe::{Access, BindMw, Lkey, MwType, SendWrFields};

use crate::errno::{Errno, number, pointer};
use crate::layout::{ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp};
use crate::live;
use crate::object::{Hold, Mw, Object, Pd, Qp};
use crate::verbose::invalid_wr;

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    // SAFETY: a PD, by the rules of `ibv_alloc_mw`.
    let owner = unsafe { Pd::find(pd) };
    let mw_type = match kind {
        1 => Ok(MwType::Type1),
        2 => Ok(MwType::Type2),
        _ => Err(Errno::INVAL),
    };
    let made = owner.and_then(|owner| Ok((owner, owner.urxe.alloc_mw(mw_type?)?)));
    pointer(made.map(|(owner, urxe)| {
        live::give(Mw {
            ibv: UnsafeCell::new(ibv_mw {
                context: owner.c_context(),
                pd,
                rkey: urxe.rkey().0,
                handle: urxe.rkey().0,
                r#type: kind,
            }),
            urxe,
            _pd: Hold::of(&owner.users),
        })
    }))
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: a window that the program does not use again, by the rules of `ibv_dealloc_mw`.
    unsafe { live::destroy(mw, |_: &Mw| ()) }
}

/// A window of type 1. The header has looked at the type and the PDs.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    const SIGNALED: c_uint = 1 << 1;
    // SAFETY: objects and a description, by the rules of `ibv_bind_mw`.
    let (qp, window, bind) = unsafe { (Qp::of(qp), Mw::of(mw), &*bind) };
    // SAFETY: a region or null, by the same rules.
    let info = unsafe { bind_info(&bind.bind_info) };
    let signaled = bind.send_flags & SIGNALED != 0 || qp.sq_sig_all;
    let bound = qp.urxe.bind_mw(&window.urxe, bind.wr_id, &info, signaled);
    number(bound.map_err(Errno::from).map(|rkey| {
        // SAFETY: the program's part, which it does not touch during this call.
        unsafe { (*window.ibv.get()).rkey = rkey.0 };
    }))
}

/// `IBV_WR_BIND_MW`: the window is the one that is named, and of `rkey` its last 8 bits count, as with adapters (`mlx5` and
/// `rxe` of rdma-core pass the window's own key beside it, `irdma` takes the upper 24 bits from there).
///
/// # Safety
/// The window and the region must be live, or null.
pub(crate) unsafe fn bind_request(
    qp: &Qp,
    wr_id: u64,
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<SendWrFields<'static>, c_int> {
    if mw.is_null() {
        return Err(invalid_wr("a bind without a window"));
    }
    // SAFETY: the caller's promise.
    let (window, info) = unsafe { (Mw::of(mw), bind_info(info)) };
    if !window.urxe.pd().context().is(qp.urxe.pd().context()) {
        return Err(invalid_wr("the window is of another device than the QP"));
    }
    let rkey = window.urxe.choose_rkey(rkey as u8);
    Ok(SendWrFields::bind_mw(wr_id, rkey, &info))
}

/// # Safety
/// The region must be live, or null.
unsafe fn bind_info(info: &ibv_mw_bind_info) -> BindMw {
    let lkey = if info.mr.is_null() {
        0
    } else {
        // SAFETY: the caller's promise.
        unsafe { (*info.mr).lkey }
    };
    BindMw {
        lkey: Lkey(lkey),
        addr: info.addr,
        length: info.length,
        // LOCAL_WRITE says nothing of a window, and programs set it: adapters do not mind.
        access: Access(info.mw_access_flags & !Access::LOCAL_WRITE.0),
    }
}
