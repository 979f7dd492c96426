//! Buffers that the library brings itself (`man ibv_alloc_buf`): plain memory, as the provider has no better kind.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::mr;
use crate::errno::{Errno, pointer};
use crate::layout::{ibv_mr, ibv_pd};

/// Behind `ibv_buf`, which programs do not look into.
pub(crate) struct Buf {
    addr: *mut c_void,
    length: usize,
}

/// Whole pages of zeros.
pub(crate) unsafe extern "C" fn ibv_alloc_buf(
    _pd: *mut ibv_pd,
    length: usize,
    handle: *mut *mut Buf,
) -> *mut c_void {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory, at an address of the system's choice.
    let addr = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, -1, 0) };
    if addr == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    let buf = Box::into_raw(Box::new(Buf { addr, length }));
    // SAFETY: a place for a pointer, by the rules of the function.
    unsafe { handle.write(buf) };
    addr
}

pub(crate) unsafe extern "C" fn ibv_free_buf(buf: *mut Buf) {
    if buf.is_null() {
        return;
    }
    // SAFETY: from `ibv_alloc_buf`, and not used again, by the rules of the function.
    unsafe {
        let buf = Box::from_raw(buf);
        libc::munmap(buf.addr, buf.length);
    }
}

/// A region over a part of a buffer.
pub(crate) unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut Buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: a buffer, by the rules of the function.
    let buf = unsafe { &*buf };
    let offset = (addr as usize).checked_sub(buf.addr as usize);
    let end = offset.and_then(|offset| offset.checked_add(length));
    if end.is_none_or(|end| end > buf.length) {
        return pointer(Err(Errno::INVAL));
    }
    // SAFETY: memory of the buffer, which stays until the program frees it; the other rules are the same.
    unsafe { mr::ibv_reg_mr(pd, addr, length, access) }
}
