//! What functions of the C library do with streams of the simulation. `None`: the descriptor is none.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use core::slice;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use crate::sockets::{self, Stream};
use crate::{Call, NO_WAIT, PEEK, answer, call, fail, is_on};

/// Bytes that are handed over at a time.
const PART: usize = 64 << 10;
/// Descriptors of the simulation's other kinds.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const LOOPBACK: u32 = 0x7f00_0001;

pub(crate) fn open(family: c_int, kind: c_int) -> Option<c_int> {
    if !is_on() || !matches!(family, libc::AF_INET | libc::AF_INET6) {
        return None;
    }
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    if kind & !flags != libc::SOCK_STREAM {
        return Some(fail(libc::EPROTONOSUPPORT) as c_int);
    }
    let id = call(Call::Socket, [0; 3], &[], &mut []);
    Some(give(
        id,
        family == libc::AF_INET6,
        kind & libc::SOCK_NONBLOCK != 0,
    ))
}

fn give(id: i64, is_ipv6: bool, is_non_blocking: bool) -> c_int {
    match u64::try_from(id) {
        Ok(id) => sockets::give(Stream {
            id,
            is_non_blocking,
            is_ipv6,
        }),
        Err(_) => answer(id) as c_int,
    }
}

/// # Safety
/// An address of that length.
pub(crate) unsafe fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> Option<c_int> {
    let stream = sockets::of(fd)?;
    // SAFETY: the caller's promise.
    let Ok((_, port)) = (unsafe { address_of(address, len) }) else {
        return Some(fail(libc::EINVAL) as c_int);
    };
    let bound = call(Call::Bind, [stream.id, port.into(), 0], &[], &mut []);
    Some(if bound < 0 { answer(bound) as c_int } else { 0 })
}

/// # Safety
/// An address of that length.
pub(crate) unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> Option<c_int> {
    let stream = sockets::of(fd)?;
    // SAFETY: the caller's promise.
    let (ip, port) = match unsafe { address_of(address, len) } {
        Ok(address) => address,
        Err(error) => return Some(fail(error) as c_int),
    };
    let args = [stream.id, ip.into(), port.into()];
    Some(answer(call(Call::Connect, args, &[], &mut [])) as c_int)
}

pub(crate) fn listen(fd: c_int, backlog: c_int) -> Option<c_int> {
    let stream = sockets::of(fd)?;
    let backlog = u64::try_from(backlog).unwrap_or(0);
    let listens = call(Call::Listen, [stream.id, backlog, 0], &[], &mut []);
    Some(answer(listens) as c_int)
}

/// # Safety
/// As for `accept4`.
pub(crate) unsafe fn accept(
    fd: c_int,
    out: *mut sockaddr,
    room: *mut socklen_t,
    flags: c_int,
) -> Option<c_int> {
    let stream = sockets::of(fd)?;
    let no_wait = if stream.is_non_blocking { NO_WAIT } else { 0 };
    let id = call(Call::Accept, [stream.id, no_wait, 0], &[], &mut []);
    let fd = give(id, stream.is_ipv6, flags & libc::SOCK_NONBLOCK != 0);
    if fd >= 0 && !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { name(fd, true, out, room) };
    }
    Some(fd)
}

/// # Safety
/// As for `getsockname` and `getpeername`.
pub(crate) unsafe fn name(
    fd: c_int,
    is_peers: bool,
    out: *mut sockaddr,
    room: *mut socklen_t,
) -> Option<c_int> {
    let stream = sockets::of(fd)?;
    let named = call(Call::Name, [stream.id, is_peers.into(), 0], &[], &mut []);
    if named < 0 {
        return Some(answer(named) as c_int);
    }
    let (ip, port) = ((named >> 16) as u32, named as u16);
    // SAFETY: the caller's promise.
    unsafe {
        if stream.is_ipv6 {
            let mut address: sockaddr_in6 = core::mem::zeroed();
            address.sin6_family = libc::AF_INET6 as u16;
            address.sin6_port = port.to_be();
            address.sin6_addr.s6_addr[..12].copy_from_slice(&MAPPED);
            address.sin6_addr.s6_addr[12..].copy_from_slice(&ip.to_be_bytes());
            write_name(
                (&raw const address).cast(),
                size_of::<sockaddr_in6>(),
                out,
                room,
            );
        } else {
            let mut address: sockaddr_in = core::mem::zeroed();
            address.sin_family = libc::AF_INET as u16;
            address.sin_port = port.to_be();
            address.sin_addr.s_addr = ip.to_be();
            write_name(
                (&raw const address).cast(),
                size_of::<sockaddr_in>(),
                out,
                room,
            );
        }
    }
    Some(0)
}

/// # Safety
/// So many readable bytes, and a place with the length that `room` says, which becomes that of the address.
unsafe fn write_name(from: *const u8, len: usize, out: *mut sockaddr, room: *mut socklen_t) {
    if out.is_null() || room.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        from.copy_to_nonoverlapping(out.cast(), len.min(*room as usize));
        *room = len as socklen_t;
    }
}

/// The IPv4 address and port that a program names: 0 is any.
///
/// # Safety
/// An address of that length.
unsafe fn address_of(address: *const sockaddr, len: socklen_t) -> Result<(u32, u16), c_int> {
    let len = len as usize;
    if address.is_null() || len < size_of::<libc::sa_family_t>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise; the lengths are looked at.
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET if len >= size_of::<sockaddr_in>() => {
                let address = address.cast::<sockaddr_in>().read_unaligned();
                let ip = u32::from_be(address.sin_addr.s_addr);
                Ok((ip, u16::from_be(address.sin_port)))
            }
            libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
                let address = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = ipv4_of(address.sin6_addr.s6_addr).ok_or(libc::ENETUNREACH)?;
                Ok((ip, u16::from_be(address.sin6_port)))
            }
            _ => Err(libc::EAFNOSUPPORT),
        }
    }
}

/// Hosts have IPv4 addresses; IPv6 has a form for those, and for any and for the host itself.
fn ipv4_of(ip: [u8; 16]) -> Option<u32> {
    match u128::from_be_bytes(ip) {
        0 => Some(0),
        1 => Some(LOOPBACK),
        ip if ip >> 32 == 0xffff => Some(ip as u32),
        _ => None,
    }
}

/// # Safety
/// So many readable bytes.
pub(crate) unsafe fn send(fd: c_int, bytes: *const c_void, len: usize) -> Option<isize> {
    let stream = sockets::of(fd)?;
    let mut sent = 0;
    while sent < len {
        let part = (len - sent).min(PART);
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>().add(sent), part) };
        let taken = call(Call::Send, [stream.id, 0, 0], bytes, &mut []);
        if taken < 0 {
            return Some(if sent > 0 {
                sent as isize
            } else {
                answer(taken)
            });
        }
        sent += taken as usize;
    }
    Some(sent as isize)
}

/// # Safety
/// A place for so many bytes.
pub(crate) unsafe fn receive(
    fd: c_int,
    out: *mut c_void,
    len: usize,
    flags: c_int,
) -> Option<isize> {
    let stream = sockets::of(fd)?;
    let is_given = |flag| flags & flag != 0;
    let no_wait = stream.is_non_blocking || is_given(libc::MSG_DONTWAIT);
    let mut how = if no_wait { NO_WAIT } else { 0 };
    if is_given(libc::MSG_PEEK) {
        how |= PEEK;
    }
    let mut got = 0;
    loop {
        let part = (len - got).min(PART);
        // SAFETY: the caller's promise.
        let to = unsafe { slice::from_raw_parts_mut(out.cast::<u8>().add(got), part) };
        let came = call(Call::Receive, [stream.id, part as u64, how], &[], to);
        if came < 0 && got == 0 {
            return Some(answer(came));
        }
        got += came.max(0) as usize;
        // The end of the stream, too, ends waiting for all.
        if came <= 0 || got == len || !is_given(libc::MSG_WAITALL) || is_given(libc::MSG_PEEK) {
            return Some(got as isize);
        }
    }
}

pub(crate) fn shutdown(fd: c_int, how: c_int) -> Option<c_int> {
    let stream = sockets::of(fd)?;
    let how = u64::try_from(how).unwrap_or(u64::MAX);
    Some(answer(call(Call::Shutdown, [stream.id, how, 0], &[], &mut [])) as c_int)
}

pub(crate) fn close(fd: c_int) -> Option<c_int> {
    let stream = sockets::take(fd)?;
    Some(answer(call(Call::Close, [stream.id, 0, 0], &[], &mut [])) as c_int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_both_families() {
        // SAFETY: all zeros are an address.
        let (mut four, mut six): (sockaddr_in, sockaddr_in6) = unsafe { core::mem::zeroed() };
        four.sin_family = libc::AF_INET as u16;
        four.sin_addr.s_addr = 0x0a00_0001_u32.to_be();
        four.sin_port = 18515_u16.to_be();
        six.sin6_family = libc::AF_INET6 as u16;
        six.sin6_port = 7_u16.to_be();
        let read = |address: *const sockaddr, len: usize| {
            // SAFETY: an address of at least that length.
            unsafe { address_of(address, len as socklen_t) }
        };
        let (at_four, at_six) = ((&raw const four).cast(), (&raw const six).cast());
        assert_eq!(read(at_four, 16), Ok((0x0a00_0001, 18515)));
        assert_eq!(read(at_four, 15), Err(libc::EAFNOSUPPORT));
        assert_eq!(read(at_four, 1), Err(libc::EINVAL));
        assert_eq!(read(at_six, 28), Ok((0, 7)));
        assert_eq!(read(core::ptr::null(), 28), Err(libc::EINVAL));
        let mut ip = [0; 16];
        ip[15] = 1;
        assert_eq!(ipv4_of(ip), Some(LOOPBACK));
        ip[..12].copy_from_slice(&MAPPED);
        assert_eq!(ipv4_of(ip), Some(1));
        ip[0] = 0xfd;
        assert_eq!(ipv4_of(ip), None);
    }

    #[test]
    fn other_descriptors_are_left_alone() {
        assert_eq!(open(libc::AF_INET, libc::SOCK_STREAM), None);
        assert_eq!(listen(1, 1), None);
        assert_eq!(close(-1), None);
    }
}
