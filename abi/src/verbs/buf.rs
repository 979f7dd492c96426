//! Buffers that the library brings itself (`man ibv_alloc_buf`): plain memory, as the provider has no better kind.

use core::ffi::{c_int, c_void};
use core::ptr;

use super::mr;
use crate::errno::{Errno, minus_one, pointer};
use crate::layout::{CStruct, ibv_mr, ibv_mr_init_attr, ibv_pd};

/// Behind `ibv_buf`, which programs do not look into.
pub(crate) struct Buf {
    addr: *mut c_void,
    length: usize,
    pd: *mut ibv_pd,
}

impl Buf {
    /// A part of the buffer, for the domain that it was allocated in: there is memory that others cannot use.
    fn check(&self, pd: *mut ibv_pd, addr: *mut c_void, length: usize) -> Result<(), Errno> {
        let offset = (addr as usize).checked_sub(self.addr as usize);
        let end = offset.and_then(|offset| offset.checked_add(length));
        if pd != self.pd || end.is_none_or(|end| end > self.length) {
            return Err(Errno::INVAL);
        }
        Ok(())
    }
}

/// Whole pages of zeros.
pub(crate) unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
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
    let buf = Box::into_raw(Box::new(Buf { addr, length, pd }));
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

/// It is memory of this process, and no kernel's to give away.
pub(crate) unsafe extern "C" fn ibv_export_buf_dmabuf_fd(_buf: *mut Buf) -> c_int {
    minus_one(Err(Errno::NO_DATA))
}

/// A region over a part of a buffer.
pub(crate) unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut Buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let mut attr = ibv_mr_init_attr::zeroed();
    attr.comp_mask = BUF | ADDR;
    (attr.addr, attr.length, attr.access) = (addr, length, access);
    attr.buf = buf.cast();
    // SAFETY: the same rules.
    unsafe { ibv_reg_mr_ex(pd, &raw mut attr) }
}

/// `IBV_REG_MR_MASK_*`: which parts of the structure say something. Memory by a descriptor (`FD`) and handles of steered
/// memory accesses (`DMAH`) are not offered.
const IOVA: u64 = 1 << 0;
const ADDR: u64 = 1 << 1;
const BUF: u64 = 1 << 5;

/// A region by a structure, which older programs have a shorter form of.
pub(crate) unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    attr: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    // SAFETY: attributes, by the rules of the function. Nothing is read that the mask does not speak of.
    let (mask, length, access) =
        unsafe { ((*attr).comp_mask, (*attr).length, (*attr).access as u32) };
    if mask & !(IOVA | ADDR | BUF) != 0 {
        return pointer(Err(Errno::NOT_SUPPORTED));
    }
    if mask & ADDR == 0 {
        return pointer(Err(Errno::INVAL));
    }
    // SAFETY: as above.
    let addr = unsafe { (*attr).addr };
    if mask & BUF != 0 {
        // SAFETY: as above; and a buffer, by the rules of the function.
        let buf = unsafe { &*(*attr).buf.cast::<Buf>() };
        if let Err(errno) = buf.check(pd, addr, length) {
            return pointer(Err(errno));
        }
    }
    let iova = match mask & IOVA {
        0 => addr as u64,
        // SAFETY: as above.
        _ => unsafe { (*attr).iova },
    };
    // SAFETY: the same rules; memory of a buffer stays until the program frees it.
    unsafe { mr::ibv_reg_mr_iova2(pd, addr, length, iova, access) }
}
