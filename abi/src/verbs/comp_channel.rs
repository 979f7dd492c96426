//! Completion channels.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::blocking::{is_non_blocking, make_blocking};
use crate::errno::{Errno, minus_one, pointer};
use crate::events::show_completed;
use crate::file::File;
use crate::layout::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::live;
use crate::object::{Channel, Context, Cq, Object, Shared};
use crate::read::{self, Reading};

pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: a context, by the rules of the function.
    pointer(create(context, unsafe { Context::of(context) }))
}

fn create(context: *mut ibv_context, object: &Context) -> Result<*mut ibv_comp_channel, Errno> {
    let urxe = object.urxe.create_comp_channel()?;
    let fd = urxe.as_raw_fd();
    make_blocking(fd)?;
    Ok(live::give(Channel {
        ibv: UnsafeCell::new(ibv_comp_channel {
            context,
            fd,
            refcnt: 0,
        }),
        _reading: offer(&object.file, &urxe, fd),
        urxe,
        users: Arc::default(),
    }))
}

/// Has the events read, too, as `ib_uverbs_comp_event_desc`.
fn offer(file: &Arc<File>, urxe: &urxe::CompChannel, fd: RawFd) -> Option<Reading> {
    let (file, urxe) = (Arc::downgrade(file), urxe.clone());
    read::offer(fd, move || {
        let file = file.upgrade().ok_or(libc::EIO)?;
        let cq = next(&urxe, &file, fd).map_err(|errno| errno.0)?;
        Ok((cq.expose_provenance() as u64).to_ne_bytes())
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: a channel that the program does not use again, by the rules of the function.
    unsafe { live::destroy(channel, |_: &Channel| ()) }
}

pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: a channel, by the rules of the function.
    let channel = unsafe { Channel::of(channel) };
    // SAFETY: the program's part, of which neither field changes; the context lives longer.
    let (file, fd) = unsafe {
        let ibv = channel.ibv.get();
        (&Context::of((*ibv).context).file, (*ibv).fd)
    };
    minus_one(next(&channel.urxe, file, fd).map(|found| {
        // SAFETY: it was delivered, so it lives until it is acknowledged; and places for two pointers, by the
        // rules of the function.
        unsafe {
            cq_context.write((*Cq::of(found).ibv.get()).cq_context);
            cq.write(found);
        }
    }))
}

/// Takes an event, waiting unless the program made the descriptor a non-blocking one.
fn next(urxe: &urxe::CompChannel, file: &File, fd: RawFd) -> Result<*mut ibv_cq, Errno> {
    loop {
        let found = match urxe.try_get()? {
            Some(found) => found,
            None if is_non_blocking(fd) => return Err(Errno(libc::EAGAIN)),
            None => urxe.wait()?,
        };
        let registry = file.registry();
        // One that is being destroyed gets no more events.
        if let Some(Shared(cq)) = registry.cqs.get(&found.id().0) {
            // SAFETY: it is registered, and not destroyed while the registry is locked.
            unsafe { Cq::of(*cq) }.comp_events.deliver();
            return Ok(*cq);
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) {
    // SAFETY: a CQ, by the rules of the function.
    let cq = unsafe { Cq::of(cq) };
    cq.urxe.ack_events(count);
    // SAFETY: it lives until its events are acknowledged.
    unsafe { show_completed(&raw mut (*cq.ibv.get()).comp_events_completed, count) };
    cq.comp_events.clone().ack(count);
}
