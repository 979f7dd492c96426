//! Event channels.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

use super::event;
use super::manager::manager;
use crate::errno::{Errno, minus_one, pointer};
use crate::layout::{rdma_cm_event, rdma_event_channel};
use crate::object::{Object, delete, new, of};
use crate::verbs::context::{is_non_blocking, make_blocking};

/// Behind `rdma_event_channel`.
#[repr(C)]
pub(crate) struct Channel {
    ibv: UnsafeCell<rdma_event_channel>,
    pub(super) urxe: urxe::cm::EventChannel,
}

// SAFETY: repr(C), and `ibv` is first.
unsafe impl Object for Channel {
    type C = rdma_event_channel;
}

impl Channel {
    /// The object behind a program's pointer.
    ///
    /// # Safety
    /// As for [`of`].
    pub(super) unsafe fn of<'a>(channel: *mut rdma_event_channel) -> &'a Channel {
        // SAFETY: the caller's promise.
        unsafe { of::<Channel>(channel) }
    }
}

pub(crate) unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    pointer(create())
}

fn create() -> Result<*mut rdma_event_channel, Errno> {
    let urxe = urxe::cm::EventChannel::with_manager(manager())?;
    let fd = urxe.as_fd().as_raw_fd();
    make_blocking(fd)?;
    Ok(new(Channel {
        ibv: UnsafeCell::new(rdma_event_channel { fd }),
        urxe,
    }))
}

pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if !channel.is_null() {
        // SAFETY: a channel that the program does not use again, by the rules of the function.
        unsafe { delete::<Channel>(channel) };
    }
}

pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if channel.is_null() || event.is_null() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: a channel, by the rules of the function.
    minus_one(unsafe { next(channel) }.map(|found| {
        // SAFETY: a place for a pointer, by the rules of the function.
        unsafe { event.write(found) };
    }))
}

/// Takes an event, waiting unless the program made the descriptor a non-blocking one.
///
/// # Safety
/// A live channel.
pub(super) unsafe fn next(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: the caller's promise; the descriptor does not change.
    let (object, fd) = unsafe { (Channel::of(channel), (*channel).fd) };
    loop {
        let found = match object.urxe.try_next()? {
            Some(found) => found,
            None if is_non_blocking(fd) => return Err(Errno(libc::EAGAIN)),
            None => match object.urxe.wait(None)? {
                Some(found) => found,
                None => continue,
            },
        };
        // One of an id that is being destroyed is nobody's.
        if let Some(event) = event::translate(channel, found)? {
            return Ok(event);
        }
    }
}
