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

    /// For who waits. Some programs (rping) destroy a channel while a thread of theirs waits on it, and then exit: with
    /// a kernel that thread sleeps on, so it must here.
    fn hold(&self) -> urxe::cm::EventChannel {
        self.urxe.clone()
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
    let (urxe, fd) = unsafe { (Channel::of(channel).hold(), (*channel).fd) };
    loop {
        let found = match urxe.try_next()? {
            Some(found) => found,
            None if is_non_blocking(fd) => return Err(Errno(libc::EAGAIN)),
            None => match urxe.wait(None)? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_outlives_the_channel() {
        // SAFETY: a channel that is not used after it was destroyed.
        let held = unsafe {
            let channel = rdma_create_event_channel();
            assert!(!channel.is_null());
            let held = Channel::of(channel).hold();
            rdma_destroy_event_channel(channel);
            held
        };
        let soon = Some(core::time::Duration::from_millis(10));
        assert!(held.wait(soon).expect("it is whole").is_none());
    }
}
