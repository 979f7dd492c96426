//! Event channels.

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use super::event;
use super::manager::manager;
use crate::blocking::{is_non_blocking, make_blocking};
use crate::errno::{Errno, minus_one, pointer, store};
use crate::layout::{rdma_cm_event, rdma_event_channel};
use crate::lock::lock;
use crate::object::{Kind, Object, Shared, delete, new};

#[repr(C)]
pub(crate) struct Channel {
    ibv: UnsafeCell<rdma_event_channel>,
    life: Mutex<Life>,
}

enum Life {
    Live(urxe::cm::EventChannel),
    /// The thread that destroyed it.
    Destroyed(ThreadId),
}

/// Channels that were destroyed, the latest last: their memory stays for a while, for threads that do not know it yet.
static DESTROYED: Mutex<VecDeque<Shared<rdma_event_channel>>> = Mutex::new(VecDeque::new());
const DESTROYED_MAX: usize = 64;

/// How long a call for an event waits on a channel that another thread has destroyed.
const WAIT_IN_VAIN: Duration = Duration::from_secs(5);

// SAFETY: repr(C), and `ibv` is first.
unsafe impl Object for Channel {}

impl Kind for Channel {
    type C = rdma_event_channel;
}

impl Channel {
    /// The channel, for a call that uses it. Some programs (rping) destroy a channel while a thread of theirs waits on it, and then exit: with
    /// a kernel that thread sleeps on, so it must here. The error names the thread that destroyed it.
    fn hold(&self) -> Result<urxe::cm::EventChannel, ThreadId> {
        match &*lock(&self.life) {
            Life::Live(channel) => Ok(channel.clone()),
            Life::Destroyed(by) => Err(*by),
        }
    }

    /// The channel, to make ids on.
    ///
    /// # Errors
    /// `EBADF` if it was destroyed.
    pub(super) fn urxe(&self) -> Result<urxe::cm::EventChannel, Errno> {
        self.hold().map_err(|_| Errno(libc::EBADF))
    }

    /// The channel, for a call that wants an event. A thread of rping's may call a moment after another has destroyed the channel and is about
    /// to exit: it waits, as it would have if it had called a moment before.
    ///
    /// # Errors
    /// `EBADF` if it was destroyed.
    fn hold_to_wait(&self) -> Result<urxe::cm::EventChannel, Errno> {
        self.hold().map_err(|by| {
            if by != thread::current().id() {
                thread::sleep(WAIT_IN_VAIN);
            }
            Errno(libc::EBADF)
        })
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
        life: Mutex::new(Life::Live(urxe)),
    }))
}

pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if channel.is_null() {
        return;
    }
    let destroyed = Life::Destroyed(thread::current().id());
    // SAFETY: a channel, by the rules of the function.
    let life = core::mem::replace(&mut *lock(unsafe { &Channel::of(channel).life }), destroyed);
    if let Life::Live(urxe) = life {
        drop(urxe);
        let mut all = lock(&DESTROYED);
        all.push_back(Shared(channel));
        let oldest = (all.len() > DESTROYED_MAX).then(|| all.pop_front());
        drop(all);
        if let Some(Shared(oldest)) = oldest.flatten() {
            // SAFETY: it was destroyed once, and long ago: the program does not use it, by the rules of the function.
            unsafe { delete::<Channel>(oldest) };
        }
    }
}

pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if channel.is_null() || event.is_null() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: a channel and a place for a pointer, by the rules of the function.
    minus_one(unsafe { store(event, next(channel)) })
}

/// Takes an event, waiting unless the program made the descriptor a non-blocking one.
///
/// # Safety
/// A live channel.
pub(super) unsafe fn next(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Errno> {
    // SAFETY: the caller's promise.
    let urxe = unsafe { Channel::of(channel) }.hold_to_wait()?;
    // SAFETY: the same; the descriptor does not change.
    let fd = unsafe { (*channel).fd };
    loop {
        let found = match urxe.try_next()? {
            Some(found) => found,
            None if is_non_blocking(fd) => return Err(Errno(libc::EAGAIN)),
            None => match urxe.wait(None)? {
                Some(found) => found,
                None => continue,
            },
        };
        // One of an id that is being destroyed is dropped.
        if let Some(event) = event::translate(channel, found)? {
            return Ok(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> *mut rdma_event_channel {
        // SAFETY: it has no rules.
        let channel = unsafe { rdma_create_event_channel() };
        assert!(!channel.is_null());
        channel
    }

    fn hold(channel: *mut rdma_event_channel) -> Result<urxe::cm::EventChannel, ThreadId> {
        // SAFETY: one of `made`; its memory is there.
        unsafe { Channel::of(channel) }.hold()
    }

    #[test]
    fn who_waits_outlives_the_channel() {
        let channel = made();
        let held = hold(channel).expect("it lives");
        // SAFETY: a channel that is not used after it was destroyed.
        unsafe { rdma_destroy_event_channel(channel) };
        let soon = Some(Duration::from_millis(10));
        assert!(held.wait(soon).expect("it is whole").is_none());
    }

    #[test]
    fn who_comes_late_finds_no_channel_and_nothing_of_another() {
        let channel = made();
        let late = Shared(channel);
        let by = thread::current().id();
        // SAFETY: its memory is there for a while, also after its destruction.
        unsafe { rdma_destroy_event_channel(channel) };
        let others: Vec<_> = (0..DESTROYED_MAX - 1).map(|_| made()).collect();
        assert!(!others.contains(&channel));
        thread::spawn(move || {
            let Shared(channel) = { late };
            assert_eq!(hold(channel).err(), Some(by));
        })
        .join()
        .expect("it finds nothing");
        let mut event = core::ptr::null_mut();
        // SAFETY: the same, and a place for a pointer.
        let code = unsafe { rdma_get_cm_event(channel, &raw mut event) };
        assert_eq!(code, -1, "who destroyed it himself does not wait");
        assert_eq!(Errno::last().0, libc::EBADF);
        for other in others {
            // SAFETY: live channels.
            unsafe { rdma_destroy_event_channel(other) };
        }
    }
}
