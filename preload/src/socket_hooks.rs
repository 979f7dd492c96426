//! Functions of the C library that take sockets, in front of the real ones: for [`crate::netlink`]. All others' sockets pay a
//! look at one number.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::netlink;
use crate::next::{Failure, next};

/// The function of that name behind ours, called; its failure where there is none.
macro_rules! pass_on {
    ($name:ident($($arg:ident: $A:ty),*) -> $R:ty) => {{
        type Function = unsafe extern "C" fn($($A),*) -> $R;
        static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        let name: *const c_char = concat!(stringify!($name), "\0").as_ptr().cast();
        let function = next(&NEXT, name);
        if function.is_null() {
            // SAFETY: the address of the calling thread's `errno`.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            return <$R as Failure>::FAILURE;
        }
        // SAFETY: the C library's function of that name has these parameters; the arguments are the caller's.
        unsafe { core::mem::transmute::<*mut c_void, Function>(function)($($arg),*) }
    }};
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    match netlink::open(family, kind, protocol) {
        Some(fd) => fd,
        None => pass_on!(socket(family: c_int, kind: c_int, protocol: c_int) -> c_int),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if netlink::is_ours(fd) {
        // It has an address already, which only the system knows.
        return 0;
    }
    pass_on!(bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(fd: c_int, to: *mut sockaddr, room: *mut socklen_t) -> c_int {
    if netlink::is_ours(fd) {
        // SAFETY: a place of that length, by the rules of the function.
        unsafe { netlink::write_address(to.cast(), room) };
        return 0;
    }
    pass_on!(getsockname(fd: c_int, to: *mut sockaddr, room: *mut socklen_t) -> c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> isize {
    if netlink::is_ours(fd) {
        // SAFETY: readable bytes, by the rules of the function.
        return unsafe { send_bytes(fd, bytes, len) };
    }
    pass_on!(send(fd: c_int, bytes: *const c_void, len: usize, flags: c_int) -> isize)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> isize {
    if netlink::is_ours(fd) {
        // SAFETY: readable bytes, by the rules of the function.
        return unsafe { send_bytes(fd, bytes, len) };
    }
    pass_on!(sendto(
        fd: c_int, bytes: *const c_void, len: usize, flags: c_int, to: *const sockaddr, to_len: socklen_t
    ) -> isize)
}

/// # Safety
/// So many readable bytes.
unsafe fn send_bytes(fd: c_int, bytes: *const c_void, len: usize) -> isize {
    let part = iovec {
        iov_base: bytes.cast_mut(),
        iov_len: len,
    };
    // SAFETY: the caller's promise.
    unsafe { netlink::send(fd, &raw const part, 1) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    if netlink::is_ours(fd) {
        // SAFETY: a message of so many parts, by the rules of the function.
        return unsafe { netlink::send(fd, (*message).msg_iov, (*message).msg_iovlen) };
    }
    pass_on!(sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    if !netlink::is_ours(fd) {
        return pass_on!(recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize);
    }
    // SAFETY: a message, by the rules of the function.
    let room = unsafe { (*message).msg_namelen };
    let received = pass_on!(recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize);
    if received >= 0 {
        // SAFETY: as above; the room is what the caller has.
        unsafe { netlink::write_sender(message, room) };
    }
    received
}
