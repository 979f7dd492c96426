//! Sockets that programs open to the kernel's RDMA subsystem (`AF_NETLINK`, `NETLINK_RDMA`): many kernels have none, and those
//! that have one know nothing of urxe's devices.
//!
//! In place of each stands a local socket that is connected to itself. What the program sends on it does not leave: the
//! answers ([`crate::nldev`]) are sent there, and the program receives them as from the kernel.

use core::ffi::{CStr, c_int, c_void};
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libc::{iovec, msghdr, sockaddr_nl, socklen_t};

use crate::nldev::answer;

/// `NETLINK_RDMA`
const RDMA: c_int = 20;
/// At a time, in a process: each is used for some requests and closed.
const SOCKETS_MAX: usize = 16;
/// No request is longer.
const REQUEST_MAX: usize = 64 << 10;

/// A socket of ours. Nothing says when the program closes it: another file may have the number then, with another inode.
struct Socket {
    fd: AtomicI32,
    inode: AtomicU64,
}

static SOCKETS: [Socket; SOCKETS_MAX] = [const {
    Socket {
        fd: AtomicI32::new(-1),
        inode: AtomicU64::new(0),
    }
}; SOCKETS_MAX];
/// How many there ever were. Most programs have none, and are to notice nothing.
static EVER: AtomicUsize = AtomicUsize::new(0);

/// What the program asked `socket` for, as a local one; `None`: it asked for another kind, or has no device files.
pub(crate) fn open(family: c_int, kind: c_int, protocol: c_int) -> Option<c_int> {
    if family != libc::AF_NETLINK || protocol != RDMA {
        return None;
    }
    root()?;
    let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    let place = SOCKETS.iter().find(|socket| !socket.is_open())?;
    // SAFETY: takes numbers.
    let fd = unsafe { libc::syscall(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_DGRAM | flags, 0) };
    let fd = fd as c_int;
    if fd < 0 {
        return Some(fd);
    }
    if !connect_to_itself(fd) {
        // SAFETY: just opened, and not used.
        unsafe { libc::close(fd) };
        return Some(-1);
    }
    place.inode.store(inode(fd).unwrap_or(0), Ordering::Relaxed);
    place.fd.store(fd, Ordering::Release);
    EVER.fetch_add(1, Ordering::Release);
    Some(fd)
}

/// True if the program's descriptor is one of ours.
#[inline]
pub(crate) fn is_ours(fd: c_int) -> bool {
    EVER.load(Ordering::Acquire) > 0
        && fd >= 0
        && SOCKETS
            .iter()
            .any(|socket| socket.fd.load(Ordering::Acquire) == fd && socket.is_open())
}

impl Socket {
    fn is_open(&self) -> bool {
        let fd = self.fd.load(Ordering::Acquire);
        fd >= 0 && inode(fd) == Some(self.inode.load(Ordering::Relaxed))
    }
}

fn inode(fd: c_int) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a place for the result.
    let done = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    // SAFETY: written, as the call says.
    (done == 0).then(|| unsafe { stat.assume_init() }.st_ino)
}

/// An address of the system's choice, and a connection to that.
fn connect_to_itself(fd: c_int) -> bool {
    let mut address = MaybeUninit::<libc::sockaddr_un>::zeroed();
    let mut len = size_of::<libc::sockaddr_un>() as socklen_t;
    // SAFETY: addresses of the given lengths: the family alone asks for any name.
    unsafe {
        (*address.as_mut_ptr()).sun_family = libc::AF_UNIX as u16;
        let short = size_of::<u16>();
        libc::syscall(libc::SYS_bind, fd, address.as_ptr(), short) == 0
            && libc::syscall(
                libc::SYS_getsockname,
                fd,
                address.as_mut_ptr(),
                &raw mut len,
            ) == 0
            && libc::syscall(libc::SYS_connect, fd, address.as_ptr(), len) == 0
    }
}

/// Where the tree is, of which the answers are made.
fn root() -> Option<PathBuf> {
    // SAFETY: a string.
    let root = unsafe { libc::getenv(c"URXE_ROOT".as_ptr()) };
    if root.is_null() {
        return None;
    }
    // SAFETY: the C library returned a string.
    let root = unsafe { CStr::from_ptr(root) }.to_bytes();
    Some(PathBuf::from(OsStr::from_bytes(root)))
}

/// Takes requests, and leaves the answers to be received. Returns what `send` does.
///
/// # Safety
/// So many readable parts.
pub(crate) unsafe fn send(fd: c_int, parts: *const iovec, count: usize) -> isize {
    let mut requests = Vec::new();
    for at in 0..count {
        // SAFETY: the caller's promise.
        let part = unsafe { &*parts.add(at) };
        if part.iov_len > REQUEST_MAX - requests.len() {
            // SAFETY: the address of the calling thread's `errno`.
            unsafe { *libc::__errno_location() = libc::EMSGSIZE };
            return -1;
        }
        if part.iov_len > 0 {
            // SAFETY: the caller's promise.
            let bytes =
                unsafe { core::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            requests.extend_from_slice(bytes);
        }
    }
    for message in answer(&root().unwrap_or_default(), &requests) {
        let (at, len) = (message.as_ptr(), message.len());
        // A program that never receives, and fills the socket's buffer, loses answers.
        // SAFETY: readable bytes.
        unsafe { libc::syscall(libc::SYS_sendto, fd, at, len, libc::MSG_DONTWAIT, 0, 0) };
    }
    requests.len() as isize
}

/// The kernel's own address, as the sender of what was received, or the name of the socket.
///
/// # Safety
/// Null, or a place for so many bytes.
pub(crate) unsafe fn write_address(to: *mut c_void, room: *mut socklen_t) {
    const LEN: usize = size_of::<sockaddr_nl>();
    // SAFETY: numbers, of which zero is one.
    let mut address: sockaddr_nl = unsafe { core::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    if to.is_null() || room.is_null() {
        return;
    }
    // SAFETY: the caller's promise; no more is written than there is room.
    unsafe {
        let len = LEN.min(*room as usize);
        ptr::copy_nonoverlapping(ptr::from_ref(&address).cast::<u8>(), to.cast(), len);
        *room = LEN as socklen_t;
    }
}

/// What a `msghdr` has room for, filled as [`write_address`] does.
///
/// # Safety
/// A message header with a place of the length `room` for an address, or null.
pub(crate) unsafe fn write_sender(message: *mut msghdr, room: socklen_t) {
    let mut room = room;
    // SAFETY: the caller's promise.
    unsafe {
        if (*message).msg_name.is_null() {
            return;
        }
        write_address((*message).msg_name, &raw mut room);
        (*message).msg_namelen = room;
    }
}
