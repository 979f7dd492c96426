//! Event channels of the connection manager. Nothing arrives on them while there is no connection manager; programs that
//! use other things of RDMA (libfabric's datagrams) make one all the same.

use core::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use super::context::is_non_blocking;
use crate::errno::{Errno, minus_one, pointer};
use crate::stub;

/// `struct rdma_event_channel`
#[repr(C)]
pub(crate) struct rdma_event_channel {
    fd: c_int,
}

const _: () = assert!(size_of::<rdma_event_channel>() == 4);

pub(crate) unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    // SAFETY: takes numbers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
    if fd < 0 {
        return pointer(Err(Errno::last()));
    }
    pointer(Ok(Box::into_raw(Box::new(rdma_event_channel { fd }))))
}

pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: from `rdma_create_event_channel`, and not used again, by the rules of the function.
    let channel = unsafe { Box::from_raw(channel) };
    // SAFETY: made with the channel, and nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(channel.fd) });
}

/// There is none now, nor will there be.
pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    _event: *mut *mut c_void,
) -> c_int {
    // SAFETY: a channel, by the rules of the function.
    let fd = unsafe { (*channel).fd };
    if is_non_blocking(fd) {
        return minus_one(Err(Errno(libc::EAGAIN)));
    }
    stub::no_cm("rdma_get_cm_event") as c_int
}
