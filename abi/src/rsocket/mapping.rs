//! Mapped memory that the peer writes to.

use core::ffi::{c_int, c_void};

use super::table;
use crate::errno::{Errno, minus_one, or_minus_one};
use crate::layout::array;

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
    or_minus_one(mapped)
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
    // SAFETY: so many bytes, by the rules of the function.
    let data = unsafe { array(data.cast(), len) };
    let written =
        table::find(socket).and_then(|socket| socket.stream()?.write_at(data, offset, flags));
    // -1 too, as the header has it.
    or_minus_one(written.map(usize::cast_signed)).cast_unsigned()
}
