//! Completion channels.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::blocking::{is_non_blocking, make_blocking};
use crate::errno::{Errno, minus_one, pointer};
use crate::events::show_completed;
use crate::layout::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::live;
use crate::object::{Channel, Context, Cq, Object, Shared};

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
        urxe,
        users: Arc::default(),
    }))
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
    minus_one(next(channel).map(|found| {
        // SAFETY: it was delivered, so it lives until it is acknowledged; and places for two pointers, by the
        // rules of the function.
        unsafe {
            cq_context.write((*Cq::of(found).ibv.get()).cq_context);
            cq.write(found);
        }
    }))
}

/// Takes an event, waiting unless the program made the descriptor a non-blocking one.
fn next(channel: &Channel) -> Result<*mut ibv_cq, Errno> {
    // SAFETY: the program's part; neither field changes.
    let (context, fd) = unsafe {
        let ibv = channel.ibv.get();
        (Context::of((*ibv).context), (*ibv).fd)
    };
    loop {
        let found = match channel.urxe.try_get()? {
            Some(found) => found,
            None if is_non_blocking(fd) => return Err(Errno(libc::EAGAIN)),
            None => channel.urxe.wait()?,
        };
        let registry = context.registry();
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
