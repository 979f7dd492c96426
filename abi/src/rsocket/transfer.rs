//! Sending and receiving.

use core::ffi::{c_int, c_void};
use core::net::SocketAddr;
use core::ptr;

use super::table;
use crate::cm::address::{give, read_some};
use crate::errno::{Errno, or_minus_one};
use crate::layout::{array, array_mut};

/// A count, or -1 and `errno`.
fn count(result: Result<usize, Errno>) -> isize {
    or_minus_one(result.map(usize::cast_signed))
}

/// The parts of a list with the count that callers of `readv` and `writev` give.
///
/// # Safety
/// A list of so many parts.
unsafe fn counted_parts<'a>(
    list: *const libc::iovec,
    len: c_int,
) -> Result<&'a [libc::iovec], Errno> {
    let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { array(list, len) })
}

/// # Safety
/// Parts that can be read.
unsafe fn send(
    socket: c_int,
    parts: &[libc::iovec],
    to: Option<SocketAddr>,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let part = |part: &libc::iovec| unsafe { array(part.iov_base.cast(), part.iov_len) };
    let parts: Vec<&[u8]> = parts.iter().map(part).collect();
    table::find(socket)?.send(&parts, to, flags)
}

/// # Safety
/// Parts that can be written to.
unsafe fn recv(
    socket: c_int,
    parts: &[libc::iovec],
    flags: c_int,
) -> Result<(usize, Option<SocketAddr>), Errno> {
    // SAFETY: the caller's promise.
    let part = |part: &libc::iovec| unsafe { array_mut(part.iov_base.cast(), part.iov_len) };
    let mut parts: Vec<&mut [u8]> = parts.iter().map(part).collect();
    table::find(socket)?.recv(&mut parts, flags)
}

pub(crate) unsafe extern "C" fn rsend(
    socket: c_int,
    data: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the rules of the function.
    unsafe { rsendto(socket, data, len, flags, ptr::null(), 0) }
}

pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    data: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const libc::sockaddr,
    _addr_len: libc::socklen_t,
) -> isize {
    // SAFETY: so many bytes, and an address or null, by the rules of the function.
    let (data, to) = unsafe { (array(data.cast(), len), read_some(addr)) };
    count(to.and_then(|to| table::find(socket)?.send(&[data], to, flags)))
}

pub(crate) unsafe extern "C" fn rsendmsg(
    socket: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: a message, by the rules of the function.
    let message = unsafe { &*message };
    if !message.msg_control.is_null() && message.msg_controllen > 0 {
        return count(Err(Errno::NOT_SUPPORTED));
    }
    // SAFETY: as above.
    count(unsafe {
        let parts = array(message.msg_iov, message.msg_iovlen);
        read_some(message.msg_name.cast()).and_then(|to| send(socket, parts, to, flags))
    })
}

pub(crate) unsafe extern "C" fn rwrite(socket: c_int, data: *const c_void, len: usize) -> isize {
    // SAFETY: the rules of the function.
    unsafe { rsend(socket, data, len, 0) }
}

pub(crate) unsafe extern "C" fn rwritev(
    socket: c_int,
    list: *const libc::iovec,
    len: c_int,
) -> isize {
    // SAFETY: the rules of the function.
    count(unsafe { counted_parts(list, len).and_then(|parts| send(socket, parts, None, 0)) })
}

pub(crate) unsafe extern "C" fn rrecv(
    socket: c_int,
    data: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    let (addr, addr_len) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the rules of the function.
    unsafe { rrecvfrom(socket, data, len, flags, addr, addr_len) }
}

pub(crate) unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    data: *mut c_void,
    len: usize,
    flags: c_int,
    addr: *mut libc::sockaddr,
    addr_len: *mut libc::socklen_t,
) -> isize {
    // SAFETY: so many bytes, by the rules of the function.
    let data = unsafe { array_mut(data.cast(), len) };
    let received = table::find(socket).and_then(|socket| socket.recv(&mut [data], flags));
    count(received.map(|(len, from)| {
        if let Some(from) = from {
            // SAFETY: room for an address, or nulls, by the rules of the function.
            unsafe { give(from, addr, addr_len) };
        }
        len
    }))
}

pub(crate) unsafe extern "C" fn rrecvmsg(
    socket: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: a message, by the rules of the function.
    let message = unsafe { &mut *message };
    if !message.msg_control.is_null() && message.msg_controllen > 0 {
        return count(Err(Errno::NOT_SUPPORTED));
    }
    message.msg_flags = 0;
    // SAFETY: as above.
    let received = unsafe { recv(socket, array(message.msg_iov, message.msg_iovlen), flags) };
    count(received.map(|(len, from)| {
        if let Some(from) = from {
            // SAFETY: room for an address, or null, by the rules of the function.
            unsafe { give(from, message.msg_name.cast(), &raw mut message.msg_namelen) };
        }
        len
    }))
}

pub(crate) unsafe extern "C" fn rread(socket: c_int, data: *mut c_void, len: usize) -> isize {
    // SAFETY: the rules of the function.
    unsafe { rrecv(socket, data, len, 0) }
}

pub(crate) unsafe extern "C" fn rreadv(
    socket: c_int,
    list: *const libc::iovec,
    len: c_int,
) -> isize {
    // SAFETY: the rules of the function.
    let received = unsafe { counted_parts(list, len).and_then(|parts| recv(socket, parts, 0)) };
    count(received.map(|(len, _)| len))
}
