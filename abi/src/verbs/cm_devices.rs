//! `rdma_get_devices`: what there is of librdmacm's functions needs no connection manager here.

use core::ffi::c_int;
use core::ptr;
use std::sync::{Mutex, PoisonError};

use super::context::ibv_open_device;
use crate::device::{Device, list};
use crate::errno::{Errno, pointer};
use crate::instance;
use crate::layout::ibv_context;
use crate::object::Shared;

/// Contexts that the library opened by itself: one a device, never closed, as its manual page says.
static OPEN: Mutex<Vec<(&'static Device, Shared<ibv_context>)>> = Mutex::new(Vec::new());

pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let contexts = match contexts() {
        Ok(contexts) => contexts,
        Err(errno) => return pointer(Err(errno)),
    };
    // SAFETY: takes numbers.
    let array = unsafe { libc::calloc(contexts.len() + 1, size_of::<*mut ibv_context>()) };
    let array: *mut *mut ibv_context = array.cast();
    if array.is_null() {
        return pointer(Err(Errno(libc::ENOMEM)));
    }
    for (index, context) in contexts.iter().enumerate() {
        // SAFETY: the array has one place more than there are contexts.
        unsafe { array.add(index).write(*context) };
    }
    if !count.is_null() {
        // SAFETY: a place for a number, by the rules of the function.
        unsafe { count.write(contexts.len() as c_int) };
    }
    array
}

/// One of each device that can be opened. `ENODEV` if there is none.
fn contexts() -> Result<Vec<*mut ibv_context>, Errno> {
    if instance::is_second() {
        return Err(Errno(libc::EBUSY));
    }
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut contexts = Vec::new();
    for device in list()? {
        let known = open.iter().find(|(other, _)| ptr::eq(*other, device));
        let context = known.map_or(ptr::null_mut(), |(_, context)| context.0);
        if !context.is_null() {
            contexts.push(context);
            continue;
        }
        // SAFETY: a device of the list.
        let context = unsafe { ibv_open_device(device.as_ptr()) };
        if !context.is_null() {
            open.push((device, Shared(context)));
            contexts.push(context);
        }
    }
    if contexts.is_empty() {
        return Err(Errno(libc::ENODEV));
    }
    Ok(contexts)
}

pub(crate) unsafe extern "C" fn rdma_free_devices(array: *mut *mut ibv_context) {
    // SAFETY: from `rdma_get_devices`, by the rules of the function, or null; the contexts stay.
    unsafe { libc::free(array.cast()) };
}
