//! Mapped memory that the peer writes to.

use core::ffi::{c_int, c_void};
use core::slice;

use super::table;
use crate::errno::{Errno, minus_one};

pub(crate) unsafe extern "C" fn riomap(
    socket: c_int,
    memory: *mut c_void,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: i64,
) -> i64 {
    let mapped = table::find(socket).and_then(|socket| {
        if prot & !(libc::PROT_WRITE | libc::PROT_NONE) != 0 {
            return Err(Errno::INVAL);
        }
        let for_peer = prot & libc::PROT_WRITE != 0;
        // SAFETY: memory that stays until `riounmap` or `rclose`, by the rules of the function.
        unsafe { socket.stream()?.map((memory.cast(), len), for_peer, offset) }
    });
    mapped.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

pub(crate) unsafe extern "C" fn riounmap(socket: c_int, memory: *mut c_void, len: usize) -> c_int {
    minus_one(table::find(socket).and_then(|socket| socket.stream()?.unmap(memory.addr(), len)))
}

pub(crate) unsafe extern "C" fn riowrite(
    socket: c_int,
    data: *const c_void,
    len: usize,
    offset: i64,
    flags: c_int,
) -> usize {
    let data = if len == 0 {
        &[]
    } else {
        // SAFETY: so many bytes, by the rules of the function.
        unsafe { slice::from_raw_parts(data.cast(), len) }
    };
    let written =
        table::find(socket).and_then(|socket| socket.stream()?.write_at(data, offset, flags));
    written.unwrap_or_else(|errno| {
        errno.set();
        // -1, as the header has it.
        usize::MAX
    })
}
