//! Protection domains, thread domains and parent domains.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::errno::{Errno, pointer};
use crate::layout::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td};
use crate::live;
use crate::object::{Context, Hold, Object, Pd, Td, Users};

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

pub(super) fn give(
    context: *mut ibv_context,
    handle: u32,
    urxe: urxe::Pd,
    users: Arc<Users>,
    parents: Option<(Hold, Option<Hold>)>,
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
    let end = |pd: &Pd| {
        if pd.parents.is_none() {
            pd.context().registry().pds.remove(&pd.c_handle());
        }
    };
    // SAFETY: a PD that the program does not use again, by the rules of the function.
    unsafe { live::destroy(pd, end) }
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    _attr: *mut c_void,
) -> *mut ibv_td {
    live::give(Td {
        ibv: UnsafeCell::new(ibv_td { context }),
        users: Arc::default(),
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: a thread domain that the program does not use again, by the rules of the function.
    unsafe { live::destroy(td, |_: &Td| ()) }
}

/// A domain that stands for another one. Allocators that the program brings are not needed, and no memory has to be kept
/// open for an adapter: no queue is shared with one.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    const ALLOCATORS: u32 = 1 << 0;
    const PD_CONTEXT: u32 = 1 << 1;
    const UNPROTECTED: u32 = 1 << 2;
    // SAFETY: attributes, by the rules of the function.
    let attr = unsafe { &*attr };
    if attr.pd.is_null() || attr.comp_mask & !(ALLOCATORS | PD_CONTEXT | UNPROTECTED) != 0 {
        return pointer(Err(Errno::INVAL));
    }
    // SAFETY: a PD and a thread domain or null, by the rules of the function.
    let (parent, td) = unsafe { (Pd::find(attr.pd), live::find_some::<Td>(attr.td)) };
    pointer(parent.and_then(|parent| {
        let td = td?.map(|td| Hold::of(&td.users));
        let parents = Some((Hold::of(&parent.users), td));
        let (urxe, users) = (parent.urxe.clone(), Arc::default());
        Ok(give(context, parent.c_handle(), urxe, users, parents))
    }))
}
