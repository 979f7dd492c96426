//! Address handles, and the paths in attributes.

use core::cell::UnsafeCell;
use core::ffi::c_int;

use urxe::AddressVector;

use super::gid::{from_gid, local_address, to_gid};
use crate::errno::{Errno, pointer};
use crate::layout::{CStruct, ibv_ah, ibv_ah_attr, ibv_pd};
use crate::object::{Ah, Pd, delete, new};

pub(crate) unsafe extern "C" fn ibv_create_ah(
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: a PD and attributes, by the rules of the function.
    let (owner, attr) = unsafe { (Pd::of(pd), &*attr) };
    pointer(path(owner.urxe.context(), attr).map(|path| {
        owner.users.add();
        let mut ibv = ibv_ah::zeroed();
        // SAFETY: the PD's part of the program, whose context never changes.
        ibv.context = unsafe { (*owner.ibv.get()).context };
        ibv.pd = pd;
        new(Ah {
            ibv: UnsafeCell::new(ibv),
            path,
        })
    }))
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: an address handle, whose PD cannot be destroyed before it.
    unsafe {
        let pd = (*Ah::of(ah).ibv.get()).pd;
        Pd::of(pd).users.remove();
        delete::<Ah>(ah);
    }
    0
}

/// The engine's form of a path. RoCE has no other addresses than GIDs.
pub(super) fn path(context: &urxe::Context, attr: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    if attr.is_global == 0 || attr.port_num != 1 {
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

/// And back.
pub(super) fn path_attr(context: &urxe::Context, path: &AddressVector) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr::zeroed();
    attr.grh.dgid = from_gid(path.remote.into());
    let index = context.addresses().position(|addr| addr == path.local);
    attr.grh.sgid_index = index.unwrap_or(0) as u8;
    attr.grh.hop_limit = path.hop_limit;
    attr.grh.traffic_class = path.traffic_class;
    attr.is_global = 1;
    attr.port_num = 1;
    attr
}
