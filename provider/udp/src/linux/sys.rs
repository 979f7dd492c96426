//! The system calls that rustix has not (socket options by number), or has only in a form
//! that costs more: by number, with checked arguments where that can be.
//!
//! Neither here nor by rustix on Linux do they go through libc's functions: programs run
//! under libraries such as librspreload, which define `socket()`, `sendmsg()` and the rest to
//! turn sockets into RDMA connections. A provider that were caught by them would carry itself.

use std::io;
use std::mem::{offset_of, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_long, mmsghdr, msghdr, syscall};
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, ipproto, socket_with};

use crate::Dest;
use crate::steer::Insn;

/// What a system call returned: a count, or -1 and `errno`.
fn count(ret: c_long) -> io::Result<usize> {
    usize::try_from(ret).map_err(|_| io::Error::last_os_error())
}

/// A datagram socket: close-on-exec, non-blocking.
pub(crate) fn udp_socket(ipv6: bool) -> io::Result<OwnedFd> {
    let family = if ipv6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(ipproto::UDP);
    Ok(socket_with(family, SocketType::DGRAM, flags, protocol)?)
}

/// The address that the socket is bound to.
pub(crate) fn local_addr(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(getsockname(fd)?.try_into()?)
}

/// Sets an option with an `int` as its value.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads one `int` at `value`.
    let ret = unsafe {
        syscall(
            libc::SYS_setsockopt,
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value),
            size_of::<c_int>(),
        )
    };
    count(ret).map(drop)
}

/// `sock_fprog` without bytes that are not initialised: the kernel reads all of them.
#[repr(C)]
struct Program {
    len: u16,
    padding: [u8; size_of::<usize>() - size_of::<u16>()],
    filter: *mut libc::sock_filter,
}

const _: () = assert!(
    size_of::<Program>() == size_of::<libc::sock_fprog>()
        && offset_of!(Program, filter) == offset_of!(libc::sock_fprog, filter)
);

/// Has `insns` choose among the sockets of the group that `fd` belongs to.
pub(crate) fn attach_reuseport(fd: BorrowedFd<'_>, insns: &[Insn]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, insns)
}

/// Has `insns` say how many bytes stay of what arrives, the UDP header counted; of 0 nothing arrives.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, insns: &[Insn]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_FILTER, insns)
}

fn attach(fd: BorrowedFd<'_>, option: c_int, insns: &[Insn]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = insns
        .iter()
        .map(|&Insn { code, jt, jf, k }| libc::sock_filter { code, jt, jf, k })
        .collect();
    let program = Program {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        padding: [0; size_of::<usize>() - size_of::<u16>()],
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: `Program` is laid out as `sock_fprog`, of which the kernel reads one, and the
    // `len` instructions that it points to, which are alive until the call returns.
    let ret = unsafe {
        syscall(
            libc::SYS_setsockopt,
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            ptr::from_ref(&program),
            size_of::<Program>(),
        )
    };
    count(ret).map(drop)
}

/// Reads an option of `N` 32-bit words (one, for most).
pub(crate) fn option<const N: usize>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
) -> io::Result<[c_int; N]> {
    let mut value = [0; N];
    let mut len = (N * size_of::<c_int>()) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, which is that long, and
    // `len` itself.
    let ret = unsafe {
        syscall(
            libc::SYS_getsockopt,
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr(),
            ptr::from_mut(&mut len),
        )
    };
    count(ret)?;
    Ok(value)
}

/// Sends one packet that needs no control message.
#[inline]
pub(crate) fn send_to(fd: BorrowedFd<'_>, bytes: &[u8], dest: &Dest) -> io::Result<usize> {
    let to = dest.as_bytes();
    // SAFETY: the kernel reads `bytes.len()` bytes at `bytes` and `to.len()` at `to`.
    let ret = unsafe {
        syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            bytes.as_ptr(),
            bytes.len(),
            0,
            to.as_ptr(),
            to.len(),
        )
    };
    count(ret)
}

/// Sends what one header describes.
///
/// # Safety
/// Every pointer in `header` leads to as many readable bytes as the length beside it says.
#[inline]
pub(crate) unsafe fn send_msg(fd: BorrowedFd<'_>, header: &msghdr) -> io::Result<usize> {
    // SAFETY: the caller vouches for the pointers; the kernel only reads.
    count(unsafe { syscall(libc::SYS_sendmsg, fd.as_raw_fd(), ptr::from_ref(header), 0) })
}

/// Sends what several headers describe; returns how many were sent, at least 1.
///
/// # Safety
/// As for [`send_msg`], for every header.
#[inline]
pub(crate) unsafe fn send_mmsg(fd: BorrowedFd<'_>, headers: &mut [mmsghdr]) -> io::Result<usize> {
    // SAFETY: the caller vouches for the pointers; the kernel writes `msg_len` only.
    count(unsafe {
        syscall(
            libc::SYS_sendmmsg,
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len(),
            0,
        )
    })
}

/// Receives one datagram; returns its length.
///
/// # Safety
/// Every pointer in `header` leads to as many writable bytes as the length beside it says.
#[inline]
pub(crate) unsafe fn recv_msg(fd: BorrowedFd<'_>, header: &mut msghdr) -> io::Result<usize> {
    // SAFETY: the caller vouches for the pointers.
    count(unsafe { syscall(libc::SYS_recvmsg, fd.as_raw_fd(), ptr::from_mut(header), 0) })
}

/// Receives one datagram and where it came from, and nothing about it; returns its
/// whole length, which may be more than the buffer's.
#[inline]
pub(crate) fn recv_from(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    source: &mut Dest,
) -> io::Result<usize> {
    let mut source_len = Dest::CAPACITY as libc::socklen_t;
    // SAFETY: the kernel writes at most `buffer.len()` and `source_len` bytes, which the
    // buffers have, and `source_len` itself.
    let len = count(unsafe {
        syscall(
            libc::SYS_recvfrom,
            fd.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
            libc::MSG_TRUNC,
            source.buffer_mut().as_mut_ptr(),
            ptr::from_mut(&mut source_len),
        )
    })?;
    source.set_len(source_len);
    Ok(len)
}

/// Receives several datagrams; returns how many, at least 1.
///
/// # Safety
/// As for [`recv_msg`], for every header.
#[inline]
pub(crate) unsafe fn recv_mmsg(fd: BorrowedFd<'_>, headers: &mut [mmsghdr]) -> io::Result<usize> {
    let no_timeout = ptr::null_mut::<libc::timespec>();
    // SAFETY: the caller vouches for the pointers.
    count(unsafe {
        syscall(
            libc::SYS_recvmmsg,
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len(),
            0,
            no_timeout,
        )
    })
}
