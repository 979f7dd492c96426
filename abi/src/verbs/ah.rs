//! Address handles, and the paths in attributes.

use core::cell::UnsafeCell;
use core::ffi::c_int;

use urxe::AddressVector;

use super::gid::{from_gid, index_of, local_address, to_gid};
use crate::errno::{Errno, minus_one, pointer, store};
use crate::layout::{CStruct, ibv_ah, ibv_ah_attr, ibv_context, ibv_pd, ibv_wc};
use crate::live;
use crate::object::{Ah, Context, Hold, Object, Pd};
use crate::ops::GRH;
use crate::verbose::tell_no_grh;

pub(crate) unsafe extern "C" fn ibv_create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: a PD and attributes, by the rules of the function.
    let (owner, attr) = unsafe { (Pd::find(pd), &*attr) };
    pointer(owner.and_then(|owner| {
        let path = path(owner.context(), attr)?;
        give(pd, owner, &path)
    }))
}

fn give(pd: *mut ibv_pd, owner: &Pd, path: &AddressVector) -> Result<*mut ibv_ah, Errno> {
    let urxe = owner.urxe.create_ah(path)?;
    let mut ibv = ibv_ah::zeroed();
    ibv.context = owner.c_context();
    ibv.pd = pd;
    Ok(live::give(Ah {
        ibv: UnsafeCell::new(ibv),
        urxe,
        _pd: Hold::of(&owner.users),
    }))
}

/// The way back to where a datagram came from.
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut [u8; 40],
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: a PD, by the rules of the function.
    let owner = unsafe { Pd::find(pd) };
    pointer(owner.and_then(|owner| {
        // SAFETY: a completion and the beginning of its receive, by the rules of the function.
        let path = unsafe { path_back(owner.urxe.context(), port, wc, grh) }?;
        give(pd, owner, &path)
    }))
}

/// The path back as attributes. Returns 0 or -1.
pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut [u8; 40],
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let context = unsafe { Context::of(context) };
    // SAFETY: as in `ibv_create_ah_from_wc`.
    let path = unsafe { path_back(&context.urxe, port, wc, grh) };
    let found = path.map(|path| path_attr(context, &path));
    // SAFETY: a place for the attributes, by the rules of the function.
    minus_one(unsafe { store(attr, found) })
}

/// # Safety
/// A completion; and 40 readable bytes, if it says that there are.
unsafe fn path_back(
    context: &urxe::Context,
    port: u8,
    wc: *const ibv_wc,
    grh: *const [u8; 40],
) -> Result<AddressVector, Errno> {
    // SAFETY: the caller's promise.
    let wc = unsafe { &*wc };
    let has_grh = wc.wc_flags & GRH != 0 && !grh.is_null();
    // SAFETY: the caller's promise.
    let grh = if has_grh { unsafe { *grh } } else { [0; 40] };
    let wc = urxe::Wc {
        wr_id: wc.wr_id,
        grh: has_grh,
        ..urxe::Wc::default()
    };
    Ok(context.init_ah_from_wc(port, &wc, &grh)?)
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: an address handle that the program does not use again, by the rules of the function.
    unsafe { live::destroy(ah, |_: &Ah| ()) }
}

/// The engine's form of a path. RoCE has no other addresses than GIDs.
pub(super) fn path(context: &Context, attr: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    if attr.is_global == 0 {
        tell_no_grh();
        return Err(Errno::INVAL);
    }
    if attr.port_num != 1 {
        return Err(Errno::INVAL);
    }
    let grh = attr.grh;
    Ok(AddressVector {
        local: local_address(context, grh.sgid_index)?,
        remote: to_gid(grh.dgid).into(),
        traffic_class: grh.traffic_class,
        hop_limit: grh.hop_limit,
    })
}

/// From urxe's address vector to C's attributes.
pub(crate) fn path_attr(context: &Context, path: &AddressVector) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    attr.grh.dgid = from_gid(path.remote.into());
    attr.grh.sgid_index = index_of(context, path.local).unwrap_or(0) as u8;
    attr.grh.hop_limit = path.hop_limit;
    attr.grh.traffic_class = path.traffic_class;
    attr.is_global = 1;
    attr.port_num = 1;
    attr
}
