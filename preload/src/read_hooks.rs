//! `read`, in front of the C library's: for [`crate::channels`].
//!
//! Signal handlers read, and functions that run before the program. So nothing is looked up here: the loader has it done
//! when it begins this library. A thread may be cancelled while it reads, which unwinds its stack: hence `C-unwind`.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::channels;
use crate::next::next;

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize) -> isize;
type ReadChecked = unsafe extern "C-unwind" fn(c_int, *mut c_void, usize, usize) -> isize;

static READ: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static READ_CHECKED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

extern "C" fn begin() {
    let names: [(&AtomicPtr<c_void>, &CStr); 2] =
        [(&READ, c"read"), (&READ_CHECKED, c"__read_chk")];
    for (known, name) in names {
        next(known, name.as_ptr());
    }
}

/// The loader calls what is listed here when it has loaded the library.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, out: *mut c_void, len: usize) -> isize {
    // SAFETY: a place for so many bytes, by the rules of the function.
    if let Some(result) = unsafe { channels::read(fd, out, len) } {
        return result;
    }
    let function = READ.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: as above.
        return unsafe { system_call(fd, out, len) };
    }
    // SAFETY: the C library's function of that name has these parameters; the arguments are the caller's.
    unsafe { core::mem::transmute::<*mut c_void, Read>(function)(fd, out, len) }
}

/// What `read` is in programs that were built with `_FORTIFY_SOURCE`: `room` is what the compiler knows of the place.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    out: *mut c_void,
    len: usize,
    room: usize,
) -> isize {
    if len <= room {
        // SAFETY: as above.
        if let Some(result) = unsafe { channels::read(fd, out, len) } {
            return result;
        }
    }
    let function = READ_CHECKED.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: as above.
        return unsafe { system_call(fd, out, len.min(room)) };
    }
    // SAFETY: as above. It ends the program if there is too little room.
    unsafe { core::mem::transmute::<*mut c_void, ReadChecked>(function)(fd, out, len, room) }
}

/// Before the loader has begun this library.
///
/// # Safety
/// A place for so many bytes.
#[cold]
unsafe fn system_call(fd: c_int, out: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_read, fd, out, len) as isize }
}

#[cfg(test)]
#[test]
fn what_is_no_channel_is_read_as_ever() {
    use std::io::{Read as _, Write};

    // What reads here is this library's function: first by the system call, then by the C library's.
    for _ in 0..2 {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(b"four").expect("room for it");
        let mut bytes = [0; 8];
        assert_eq!(reader.read(&mut bytes).expect("it is open"), 4);
        writer.write_all(b"five").expect("room for it");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
        // SAFETY: a place of 8 bytes.
        let checked = unsafe { __read_chk(fd, bytes.as_mut_ptr().cast(), 8, 8) };
        assert_eq!((checked, &bytes[..4]), (4, &b"five"[..]));
        begin();
    }
}
