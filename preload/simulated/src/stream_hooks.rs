//! Functions of the C library that make and take descriptors, in front of the real ones.

use core::ffi::{c_int, c_ulong, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::epoll;
use crate::hooks::pass_on;
use crate::next::next;
use crate::sockets;
use crate::streams;

/// `hook!(name(fd, ...) -> result = what is done with a stream)`: others' descriptors are passed on.
macro_rules! hook {
    ($name:ident($fd:ident $(, $arg:ident: $A:ty)*) -> $R:ty = $done:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($fd: c_int $(, $arg: $A)*) -> $R {
            match $done {
                Some(result) => result,
                None => pass_on!($name($fd: c_int $(, $arg: $A)*) -> $R),
            }
        }
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    match streams::open(family, kind) {
        Some(fd) => fd,
        None => pass_on!(socket(family: c_int, kind: c_int, protocol: c_int) -> c_int),
    }
}

hook!(bind(fd, address: *const sockaddr, len: socklen_t) -> c_int = {
    // SAFETY: an address, by the rules of the function.
    unsafe { streams::bind(fd, address, len) }
});
hook!(listen(fd, backlog: c_int) -> c_int = streams::listen(fd, backlog));
hook!(shutdown(fd, how: c_int) -> c_int = streams::shutdown(fd, how));
hook!(close(fd) -> c_int = {
    epoll::forget(fd);
    streams::close(fd)
});
hook!(connect(fd, address: *const sockaddr, len: socklen_t) -> c_int = {
    // SAFETY: an address, by the rules of the function.
    unsafe { streams::connect(fd, address, len) }
});
hook!(accept(fd, address: *mut sockaddr, len: *mut socklen_t) -> c_int = {
    // SAFETY: a place for an address, by the rules of the function.
    unsafe { streams::accept(fd, address, len, 0) }
});
hook!(accept4(fd, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int = {
    // SAFETY: as above.
    unsafe { streams::accept(fd, address, len, flags) }
});
hook!(getpeername(fd, address: *mut sockaddr, len: *mut socklen_t) -> c_int = {
    // SAFETY: as above.
    unsafe { streams::name(fd, true, address, len) }
});
hook!(getsockname(fd, address: *mut sockaddr, len: *mut socklen_t) -> c_int = {
    // SAFETY: as above.
    unsafe { streams::name(fd, false, address, len) }
});
hook!(setsockopt(fd, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int = {
    // None of what can be set is simulated.
    sockets::of(fd).map(|_| 0)
});
hook!(getsockopt(fd, level: c_int, name: c_int, out: *mut c_void, len: *mut socklen_t) -> c_int = {
    // SAFETY: a place of that length, by the rules of the function.
    unsafe { option(fd, name, out, len) }
});
hook!(fcntl(fd, command: c_int, value: c_ulong) -> c_int = flags(fd, command, value));
hook!(fcntl64(fd, command: c_int, value: c_ulong) -> c_int = flags(fd, command, value));

hook!(read(fd, out: *mut c_void, len: usize) -> isize = {
    // SAFETY: a place of that length, by the rules of the function.
    unsafe { streams::receive(fd, out, len, 0) }
});
hook!(__read_chk(fd, out: *mut c_void, len: usize, room: usize) -> isize = {
    // SAFETY: as above.
    unsafe { streams::receive(fd, out, len.min(room), 0) }
});
hook!(recv(fd, out: *mut c_void, len: usize, flags: c_int) -> isize = {
    // SAFETY: as above.
    unsafe { streams::receive(fd, out, len, flags) }
});
hook!(__recv_chk(fd, out: *mut c_void, len: usize, room: usize, flags: c_int) -> isize = {
    // SAFETY: as above.
    unsafe { streams::receive(fd, out, len.min(room), flags) }
});
hook!(recvfrom(fd, out: *mut c_void, len: usize, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> isize = {
    // SAFETY: as above. Of streams no sender is told.
    unsafe { streams::receive(fd, out, len, flags) }
});
hook!(write(fd, bytes: *const c_void, len: usize) -> isize = {
    // SAFETY: so many bytes, by the rules of the function.
    unsafe { streams::send(fd, bytes, len) }
});
hook!(send(fd, bytes: *const c_void, len: usize, flags: c_int) -> isize = {
    // SAFETY: as above.
    unsafe { streams::send(fd, bytes, len) }
});
hook!(sendto(fd, bytes: *const c_void, len: usize, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> isize = {
    // SAFETY: as above.
    unsafe { streams::send(fd, bytes, len) }
});
hook!(readv(fd, parts: *const iovec, count: c_int) -> isize = {
    // SAFETY: places of their lengths, by the rules of the function.
    unsafe { receive_parts(fd, parts, usize::try_from(count).unwrap_or(0), 0) }
});
hook!(writev(fd, parts: *const iovec, count: c_int) -> isize = {
    // SAFETY: bytes of their lengths, by the rules of the function.
    unsafe { send_parts(fd, parts, usize::try_from(count).unwrap_or(0)) }
});
hook!(sendmsg(fd, message: *const msghdr, flags: c_int) -> isize = {
    // SAFETY: a message with its parts, by the rules of the function.
    unsafe { send_message(fd, message) }
});
hook!(recvmsg(fd, message: *mut msghdr, flags: c_int) -> isize = {
    // SAFETY: a message with its parts, by the rules of the function.
    unsafe { receive_message(fd, message, flags) }
});

/// # Safety
/// A message with its parts.
unsafe fn send_message(fd: c_int, message: *const msghdr) -> Option<isize> {
    sockets::of(fd)?;
    // Of streams no address counts, and nothing goes beside the bytes.
    // SAFETY: the caller's promise.
    unsafe { send_parts(fd, (*message).msg_iov, (*message).msg_iovlen) }
}

/// # Safety
/// A message with its parts.
unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<isize> {
    sockets::of(fd)?;
    // SAFETY: the caller's promise.
    unsafe {
        let got = receive_parts(fd, (*message).msg_iov, (*message).msg_iovlen, flags)?;
        if got < 0 {
            return Some(got);
        }
        // Of streams no sender is told, and nothing comes beside the bytes.
        (*message).msg_namelen = 0;
        (*message).msg_controllen = 0;
        (*message).msg_flags = 0;
        Some(got)
    }
}

/// # Safety
/// So many parts, of bytes.
unsafe fn send_parts(fd: c_int, parts: *const iovec, count: usize) -> Option<isize> {
    // SAFETY: the caller's promise.
    unsafe { each(fd, parts, count, |at, len, _| streams::send(fd, at, len)) }
}

/// It waits for the first part only, unless all is asked for. What stays there is given for the first part alone.
///
/// # Safety
/// So many parts, which are places.
unsafe fn receive_parts(
    fd: c_int,
    parts: *const iovec,
    count: usize,
    flags: c_int,
) -> Option<isize> {
    let is_given = |flag| flags & flag != 0;
    let (peeks, waits) = (is_given(libc::MSG_PEEK), is_given(libc::MSG_WAITALL));
    let receive = |at, len, before: isize| {
        let flags = match before {
            0 => flags,
            _ if peeks => return Some(0),
            _ if waits => flags,
            _ => flags | libc::MSG_DONTWAIT,
        };
        // SAFETY: a part of the caller's.
        unsafe { streams::receive(fd, at, len, flags) }
    };
    // SAFETY: the caller's promise.
    unsafe { each(fd, parts, count, receive) }
}

/// One part after another, until one is not done whole. `work` has a part, and how much was done before.
///
/// # Safety
/// So many parts.
unsafe fn each(
    fd: c_int,
    parts: *const iovec,
    count: usize,
    work: impl Fn(*mut c_void, usize, isize) -> Option<isize>,
) -> Option<isize> {
    sockets::of(fd)?;
    let mut all = 0;
    for place in 0..count {
        // SAFETY: the caller's promise.
        let part = unsafe { *parts.add(place) };
        if part.iov_len == 0 {
            continue;
        }
        let done = work(part.iov_base, part.iov_len, all)?;
        if done < 0 {
            return Some(if all > 0 { all } else { done });
        }
        all += done;
        if (done as usize) < part.iov_len {
            break;
        }
    }
    Some(all)
}

/// # Safety
/// A place with the length that `len` says.
unsafe fn option(fd: c_int, name: c_int, out: *mut c_void, len: *mut socklen_t) -> Option<c_int> {
    sockets::of(fd)?;
    let value = if name == libc::SO_TYPE {
        libc::SOCK_STREAM
    } else {
        0
    };
    if !out.is_null() && !len.is_null() {
        // SAFETY: the caller's promise.
        unsafe {
            let room = size_of::<c_int>().min(*len as usize);
            (&raw const value)
                .cast::<u8>()
                .copy_to_nonoverlapping(out.cast(), room);
            *len = room as socklen_t;
        }
    }
    Some(0)
}

fn flags(fd: c_int, command: c_int, value: c_ulong) -> Option<c_int> {
    let mut stream = sockets::of(fd)?;
    match command {
        libc::F_GETFL => {
            let flag = if stream.is_non_blocking {
                libc::O_NONBLOCK
            } else {
                0
            };
            Some(libc::O_RDWR | flag)
        }
        libc::F_SETFL => {
            stream.is_non_blocking = value & libc::O_NONBLOCK as c_ulong != 0;
            sockets::change(fd, stream);
            Some(0)
        }
        libc::F_GETFD | libc::F_SETFD => None,
        // A second descriptor for a stream is not simulated.
        _ => Some(crate::fail(libc::EINVAL) as c_int),
    }
}
