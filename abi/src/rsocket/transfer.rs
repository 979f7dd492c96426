//! Sending and receiving.

use core::ffi::{c_int, c_void};
use core::net::SocketAddr;
use core::slice;

use super::table;
use crate::cm::address::{give, read_some};
use crate::errno::{Errno, or_minus_one};

/// A count, or -1 and `errno`.
fn count(result: Result<usize, Errno>) -> isize {
    or_minus_one(result.map(usize::cast_signed))
}

/// # Safety
/// So many readable bytes, which do not change meanwhile.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(data.cast(), len) }
}

/// # Safety
/// So many bytes that no other code uses.
unsafe fn room<'a>(data: *mut c_void, len: usize) -> &'a mut [u8] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts_mut(data.cast(), len) }
}

/// # Safety
/// A list of so many parts.
unsafe fn parts<'a>(list: *const libc::iovec, len: usize) -> &'a [libc::iovec] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(list, len) }
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
    Ok(unsafe { parts(list, len) })
}

/// # Safety
/// Parts that can be read.
unsafe fn send(
    socket: c_int,
    parts: &[libc::iovec],
    to: Option<SocketAddr>,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    let part = |part: &libc::iovec| unsafe { bytes(part.iov_base, part.iov_len) };
    let parts: Vec<&[u8]> = parts.iter().map(part).collect();
    count(table::find(socket).and_then(|socket| socket.send(&parts, to, flags)))
}

/// # Safety
/// Parts that can be written to.
unsafe fn recv(
    socket: c_int,
    parts: &[libc::iovec],
    flags: c_int,
) -> Result<(usize, Option<SocketAddr>), Errno> {
    // SAFETY: the caller's promise.
    let part = |part: &libc::iovec| unsafe { room(part.iov_base, part.iov_len) };
    let mut parts: Vec<&mut [u8]> = parts.iter().map(part).collect();
    table::find(socket)?.recv(&mut parts, flags)
}

pub(crate) unsafe extern "C" fn rsend(
    socket: c_int,
    data: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: so many bytes, by the rules of the function.
    let data = unsafe { bytes(data, len) };
    count(table::find(socket).and_then(|socket| socket.send(&[data], None, flags)))
}

pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    data: *const c_void,
    len: usize,
    flags: c_int,
    addr: *const libc::sockaddr,
    _addr_len: libc::socklen_t,
) -> isize {
    // SAFETY: an address or null, by the rules of the function.
    let to = match unsafe { read_some(addr) } {
        Ok(to) => to,
        Err(errno) => return count(Err(errno)),
    };
    // SAFETY: so many bytes, by the rules of the function.
    let data = unsafe { bytes(data, len) };
    count(table::find(socket).and_then(|socket| socket.send(&[data], to, flags)))
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
    unsafe {
        match read_some(message.msg_name.cast()) {
            Ok(to) => send(
                socket,
                parts(message.msg_iov, message.msg_iovlen),
                to,
                flags,
            ),
            Err(errno) => count(Err(errno)),
        }
    }
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
    match unsafe { counted_parts(list, len) } {
        // SAFETY: so are these.
        Ok(parts) => unsafe { send(socket, parts, None, 0) },
        Err(errno) => count(Err(errno)),
    }
}

pub(crate) unsafe extern "C" fn rrecv(
    socket: c_int,
    data: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: so many bytes, by the rules of the function.
    let data = unsafe { room(data, len) };
    let received = table::find(socket).and_then(|socket| socket.recv(&mut [data], flags));
    count(received.map(|(len, _)| len))
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
    let data = unsafe { room(data, len) };
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
    let received = unsafe { recv(socket, parts(message.msg_iov, message.msg_iovlen), flags) };
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
    let parts = unsafe { counted_parts(list, len) };
    // SAFETY: so are these.
    count(parts.and_then(|parts| unsafe { recv(socket, parts, 0).map(|(len, _)| len) }))
}
