//! Device memory.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_uint, c_void};
use core::{ptr, slice};

use urxe::Access;

use super::mr;
use crate::errno::{Errno, minus_one, number, pointer};
use crate::layout::{CStruct, ibv_alloc_dm_attr, ibv_context, ibv_dm, ibv_mr, ibv_pd};
use crate::live;
use crate::object::{Context, Dm, Memory, Object, Pd};

pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: a context and attributes, by the rules of `ibv_alloc_dm`.
    let (owner, attr) = unsafe { (Context::of(context), &*attr) };
    // Any alignment up to a page's.
    if attr.comp_mask != 0 || attr.log_align_req > 12 {
        return pointer(Err(Errno::INVAL));
    }
    let urxe = owner.urxe.alloc_dm(attr.length).map_err(Errno::from);
    pointer(urxe.map(|urxe| {
        let handle = owner.file.handle();
        if let Some(mut registry) = owner.file.registry_of_this_process() {
            registry.dms.insert(handle, urxe.clone());
        }
        give(context, handle, urxe)
    }))
}

/// Gives a handle of device memory to the program.
pub(super) fn give(context: *mut ibv_context, handle: u32, urxe: urxe::Dm) -> *mut ibv_dm {
    let mut ibv = ibv_dm::zeroed();
    ibv.context = context;
    ibv.memcpy_to_dm = Some(memcpy_to_dm);
    ibv.memcpy_from_dm = Some(memcpy_from_dm);
    ibv.handle = handle;
    live::give(Dm {
        ibv: UnsafeCell::new(ibv),
        urxe,
    })
}

/// Regions over it keep it.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    let end = |dm: &Dm| {
        if let Some(mut registry) = dm.context().file.registry_of_this_process() {
            registry.dms.remove(&dm.c_handle());
        }
    };
    // SAFETY: device memory that the program does not use again, by the rules of `ibv_free_dm`.
    unsafe { live::destroy(dm, end) }
}

/// Adapters write their memory in words of four bytes, and their drivers refuse what is not made of such.
fn check_words(offset: u64, length: usize) -> Result<(), Errno> {
    if offset.is_multiple_of(4) && length.is_multiple_of(4) {
        return Ok(());
    }
    Err(Errno::INVAL)
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    if length == 0 {
        return 0;
    }
    // SAFETY: device memory and readable bytes, by the rules of `ibv_memcpy_to_dm`.
    let (dm, from) = unsafe { (Dm::of(dm), slice::from_raw_parts(from.cast(), length)) };
    number(check_words(offset, length).and_then(|()| Ok(dm.urxe.copy_to(offset as usize, from)?)))
}

unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    if length == 0 {
        return 0;
    }
    // SAFETY: device memory and writable bytes, by the rules of `ibv_memcpy_from_dm`.
    let (dm, to) = unsafe { (Dm::of(dm), slice::from_raw_parts_mut(to.cast(), length)) };
    number(check_words(offset, length).and_then(|()| Ok(dm.urxe.copy_from(offset as usize, to)?)))
}

/// It is memory of this process, and no kernel's to give away.
pub(crate) unsafe extern "C" fn ibv_dm_export_dmabuf_fd(_dm: *mut ibv_dm) -> c_int {
    minus_one(Err(Errno::NOT_SUPPORTED))
}

pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: a PD and device memory, by the rules of `ibv_reg_dm_mr`.
    let (owner, dm) = unsafe { (Pd::find(pd), Dm::find(dm)) };
    pointer(owner.and_then(|owner| {
        let (offset, access) = (offset as usize, Access(access));
        let urxe = owner.urxe.reg_dm_mr(&dm?.urxe, offset, length, access)?;
        let memory = Memory::Region(urxe);
        Ok(mr::give(pd, owner, memory, ptr::null_mut(), length))
    }))
}
