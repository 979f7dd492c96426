//! Asynchronous events.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::os::fd::RawFd;
use std::sync::Weak;

use urxe::{AsyncEvent, EventType};

use crate::blocking::is_non_blocking;
use crate::errno::{Errno, minus_one, store};
use crate::events::{Acks, show_completed};
use crate::file::{File, Registry};
use crate::layout::{ibv_async_event, ibv_context};
use crate::object::{Context, Cq, Object, Qp, Srq};
use crate::read::{self, Reading};

pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: a context, by the rules of the function.
    let (object, fd) = unsafe { (Context::of(context), (*context).async_fd) };
    // SAFETY: a place for an event, by the rules of the function.
    minus_one(unsafe { store(event, next(&object.file, fd)) })
}

/// Has the events read, too, as `ib_uverbs_async_event_desc`.
pub(super) fn offer(file: &Weak<File>, fd: RawFd) -> Option<Reading> {
    let file = file.clone();
    read::offer(fd, move || {
        let file = file.upgrade().ok_or(libc::EIO)?;
        let event = next(&file, fd).map_err(|errno| errno.0)?;
        let mut record = [0; 16];
        let element = event.element.expose_provenance() as u64;
        record[..8].copy_from_slice(&element.to_ne_bytes());
        record[8..12].copy_from_slice(&event.event_type.to_ne_bytes());
        Ok(record)
    })
}

fn next(file: &File, fd: RawFd) -> Result<ibv_async_event, Errno> {
    loop {
        let found = match file.urxe.poll_async_event() {
            Some(found) => Some(found),
            None if is_non_blocking(fd) => return Err(Errno(libc::EAGAIN)),
            None => file.urxe.wait_async_event(None)?,
        };
        // Events of objects that are gone are dropped.
        if let Some(event) = found.and_then(|event| deliver(&file.registry(), event)) {
            return Ok(event);
        }
    }
}

/// The event as C has it, noted at the object that it is about.
fn deliver(registry: &Registry, event: AsyncEvent) -> Option<ibv_async_event> {
    let element: *mut c_void = match event {
        AsyncEvent::CqErr(id) => registry.cqs.get(&id.0)?.0.cast(),
        AsyncEvent::SrqLimitReached(id) => registry.srqs.get(&id.0)?.0.cast(),
        AsyncEvent::QpFatal(qpn)
        | AsyncEvent::QpReqErr(qpn)
        | AsyncEvent::QpAccessErr(qpn)
        | AsyncEvent::CommEst(qpn)
        | AsyncEvent::SqDrained(qpn)
        | AsyncEvent::QpLastWqeReached(qpn) => registry.qps.get(&qpn.get())?.0.cast(),
        AsyncEvent::PortActive(port) | AsyncEvent::PortErr(port) | AsyncEvent::GidChange(port) => {
            ptr::without_provenance_mut(usize::from(port))
        }
        AsyncEvent::DeviceFatal => ptr::null_mut(),
        // An event that came later to the engine than to this table.
        _ => return None,
    };
    let event = ibv_async_event {
        element,
        event_type: event.event_type() as c_int,
    };
    // SAFETY: it is registered, and not destroyed while the registry is locked.
    if let Some((acks, _)) = unsafe { acks(&event) } {
        acks.deliver();
    }
    Some(event)
}

/// What counts the events of the object that an event is about, if it is about one; and where C's object shows how many
/// were acknowledged.
///
/// # Safety
/// The object lives.
unsafe fn acks<'a>(event: &ibv_async_event) -> Option<(&'a Acks, *mut u32)> {
    let is = |kind: EventType| event.event_type == kind as c_int;
    let of_qp = [
        EventType::QpFatal,
        EventType::QpReqErr,
        EventType::QpAccessErr,
        EventType::CommEst,
        EventType::SqDrained,
        EventType::QpLastWqeReached,
    ];
    // SAFETY: the type says what the element is; and the caller's promise.
    unsafe {
        if is(EventType::CqErr) {
            let cq = Cq::of(event.element.cast());
            let shown = &raw mut (*cq.ibv.get()).async_events_completed;
            Some((&cq.async_events, shown))
        } else if is(EventType::SrqLimitReached) {
            let srq = Srq::of(event.element.cast());
            let shown = &raw mut (*srq.ibv.get()).events_completed;
            Some((&srq.async_events, shown))
        } else if of_qp.into_iter().any(is) {
            let qp = Qp::of(event.element.cast());
            let shown = &raw mut (*qp.ibv.get()).qp_base.events_completed;
            Some((&qp.async_events, shown))
        } else {
            None
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: an event from `ibv_get_async_event`, by the rules of the function; its object is not destroyed before this
    // is acknowledged.
    if let Some((acks, shown)) = unsafe { acks(&*event) } {
        // SAFETY: as above.
        unsafe { show_completed(shown, 1) };
        acks.clone().ack(1);
    }
}
