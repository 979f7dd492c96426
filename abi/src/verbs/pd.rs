//! Protection domains, thread domains and parent domains.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::Arc;

use crate::errno::{Errno, number, pointer};
use crate::layout::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td};
use crate::live::{self, bury};
use crate::object::{Context, Pd, Td, Users};

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: a context, by the rules of the function.
    let file = &unsafe { Context::of(context) }.file;
    pointer(file.urxe.alloc_pd().map_err(Errno::from).map(|urxe| {
        let (handle, users) = (file.handle(), Arc::<Users>::default());
        let entry = (urxe.clone(), users.clone());
        file.registry().pds.insert(handle, entry);
        give(context, handle, urxe, users, None)
    }))
}

/// Gives a handle of a domain to the program.
pub(super) fn give(
    context: *mut ibv_context,
    handle: u32,
    urxe: urxe::Pd,
    users: Arc<Users>,
    parents: Option<(*mut ibv_pd, *mut ibv_td)>,
) -> *mut ibv_pd {
    live::give(Pd {
        ibv: UnsafeCell::new(ibv_pd { context, handle }),
        urxe,
        users,
        parents,
    })
}

/// A parent domain too.
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: a PD, by the rules of the function.
    let object = match unsafe { live::take::<Pd>(pd, |pd| pd.users.check_none()) } {
        Ok(object) => object,
        Err(errno) => return number(Err(errno)),
    };
    // SAFETY: the program's part; its context never changes, and lives longer.
    let (file, handle) = unsafe {
        let ibv = &*object.ibv.get();
        (&Context::of(ibv.context).file, ibv.handle)
    };
    if object.parents.is_none() {
        file.registry().pds.remove(&handle);
    }
    if let Some((parent, td)) = object.parents {
        // SAFETY: what it was made of cannot be destroyed before it.
        unsafe { Pd::of(parent) }.users.remove();
        if !td.is_null() {
            // SAFETY: as above.
            unsafe { Td::of(td) }.users.remove();
        }
    }
    // SAFETY: it is no longer used, by the count and the rules of the function.
    unsafe { bury::<Pd>(pd) };
    0
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    _attr: *mut c_void,
) -> *mut ibv_td {
    live::give(Td {
        ibv: UnsafeCell::new(ibv_td { context }),
        users: Users::default(),
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: a thread domain, by the rules of the function.
    if let Err(errno) = unsafe { live::take::<Td>(td, |td| td.users.check_none()) } {
        return number(Err(errno));
    }
    // SAFETY: it is no longer used.
    unsafe { bury::<Td>(td) };
    0
}

/// A domain that stands for another one. Allocators that the program brings are not needed: no queue is shared
/// with an adapter.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    const ALLOCATORS: u32 = 1 << 0;
    const PD_CONTEXT: u32 = 1 << 1;
    // SAFETY: attributes, by the rules of the function.
    let attr = unsafe { &*attr };
    if attr.pd.is_null() || attr.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
        Errno::INVAL.set();
        return ptr::null_mut();
    }
    // SAFETY: a PD and a thread domain or null, by the rules of the function.
    let made_of = unsafe {
        let td = (!attr.td.is_null()).then(|| Td::find(attr.td));
        Pd::find(attr.pd).and_then(|parent| Ok((parent, td.transpose()?)))
    };
    pointer(made_of.map(|(parent, td)| {
        parent.users.add();
        if let Some(td) = td {
            td.users.add();
        }
        // SAFETY: the program's part, which does not change.
        let handle = unsafe { (*parent.ibv.get()).handle };
        let (urxe, users) = (parent.urxe.clone(), Arc::default());
        give(context, handle, urxe, users, Some((attr.pd, attr.td)))
    }))
}
