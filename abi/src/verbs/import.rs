//! Second handles of objects (`man ibv_import_device`).
//!
//! Within one process: what two processes share with an adapter is the kernel's, and here there is none.

use core::ffi::c_int;
use core::ptr;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Weak;

use super::{context, dm, mr, pd};
use crate::errno::{Errno, pointer};
use crate::file::File;
use crate::layout::{ibv_context, ibv_dm, ibv_mr, ibv_pd};
use crate::live;
use crate::object::{Context, Dm, Mr, Object, Pd};

/// Takes the descriptor, if it succeeds: closing the context closes it.
pub(crate) unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    // SAFETY: a number that is no descriptor makes the call fail.
    if unsafe { libc::fcntl(cmd_fd, libc::F_GETFD) } < 0 {
        Errno::last().set();
        return ptr::null_mut();
    }
    // SAFETY: it is open, and stays so during this call, by the rules of the function.
    let file = File::find(unsafe { BorrowedFd::borrow_raw(cmd_fd) });
    pointer(file.and_then(|file| {
        // SAFETY: the program gives it away.
        context::give(file, unsafe { OwnedFd::from_raw_fd(cmd_fd) })
    }))
}

pub(crate) unsafe extern "C" fn ibv_import_pd(
    context: *mut ibv_context,
    handle: u32,
) -> *mut ibv_pd {
    // SAFETY: a context, by the rules of the function.
    let file = &unsafe { Context::of(context) }.file;
    let found = file.registry().pds.get(&handle).cloned();
    let found = found.ok_or(Errno::INVAL);
    pointer(found.map(|(urxe, users)| pd::give(context, handle, urxe, users, None)))
}

pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: an imported PD that the program does not use again, by the rules of the function. What was made of it
    // holds what it needs.
    unsafe { unimport::<Pd>(pd) };
}

/// Its address is null (`man ibv_import_mr`).
pub(crate) unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    // SAFETY: a PD, by the rules of the function.
    let owner = unsafe { Pd::of(pd) };
    let registry = owner.context().registry();
    let found = registry.mrs.get(&handle).and_then(Weak::upgrade);
    drop(registry);
    let found = found.ok_or(Errno::INVAL);
    pointer(found.map(|state| mr::handle(pd, owner, ptr::null_mut(), state)))
}

pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: an imported region that the program does not use again, by the rules of the function.
    unsafe { unimport::<Mr>(mr) };
}

pub(crate) unsafe extern "C" fn ibv_import_dm(
    context: *mut ibv_context,
    handle: u32,
) -> *mut ibv_dm {
    // SAFETY: a context, by the rules of the function.
    let file = &unsafe { Context::of(context) }.file;
    let found = file.registry().dms.get(&handle).cloned();
    let found = found.ok_or(Errno::INVAL);
    pointer(found.map(|urxe| dm::give(context, handle, urxe)))
}

pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    // SAFETY: imported device memory that the program does not use again, by the rules of the function.
    unsafe { unimport::<Dm>(dm) };
}

/// There is no way to say that the handle is none.
///
/// # Safety
/// As for [`live::take`]; the program does not use it again.
unsafe fn unimport<T: Object>(ptr: *mut T::C) {
    // SAFETY: the caller's promise.
    unsafe { live::destroy(ptr, |_: &T| ()) };
}
