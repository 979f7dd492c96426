//! Protection domains, thread domains and parent domains.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;

use crate::errno::{Errno, number, pointer};
use crate::layout::{CStruct, ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td};
use crate::object::{Context, Pd, Td, Users, delete, new};

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: a context, by the rules of the function.
    let urxe = unsafe { Context::of(context) }.urxe.alloc_pd();
    pointer(
        urxe.map_err(Errno::from)
            .map(|urxe| give(context, urxe, None)),
    )
}

fn give(
    context: *mut ibv_context,
    urxe: urxe::Pd,
    parents: Option<(*mut ibv_pd, *mut ibv_td)>,
) -> *mut ibv_pd {
    let mut ibv = ibv_pd::zeroed();
    ibv.context = context;
    new(Pd {
        ibv: UnsafeCell::new(ibv),
        urxe,
        users: Users::default(),
        parents,
    })
}

/// A parent domain too.
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: a PD, by the rules of the function.
    let object = unsafe { Pd::of(pd) };
    if let Err(busy) = object.users.check_none() {
        return number(Err(busy));
    }
    if let Some((parent, td)) = object.parents {
        // SAFETY: what it was made of cannot be destroyed before it.
        unsafe { Pd::of(parent) }.users.remove();
        if !td.is_null() {
            // SAFETY: as above.
            unsafe { Td::of(td) }.users.remove();
        }
    }
    // SAFETY: nobody uses it any more, by the count and the rules of the function.
    unsafe { delete::<Pd>(pd) };
    0
}

pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    _attr: *mut c_void,
) -> *mut ibv_td {
    new(Td {
        ibv: UnsafeCell::new(ibv_td { context }),
        users: Users::default(),
    })
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: a thread domain, by the rules of the function.
    if let Err(busy) = unsafe { Td::of(td) }.users.check_none() {
        return number(Err(busy));
    }
    // SAFETY: nobody uses it any more.
    unsafe { delete::<Td>(td) };
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
    // SAFETY: a PD, by the rules of the function.
    let parent = unsafe { Pd::of(attr.pd) };
    parent.users.add();
    if !attr.td.is_null() {
        // SAFETY: a thread domain, by the rules of the function.
        unsafe { Td::of(attr.td) }.users.add();
    }
    give(context, parent.urxe.clone(), Some((attr.pd, attr.td)))
}
