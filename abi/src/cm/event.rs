//! Events, and what the library does by itself when one comes.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::atomic::Ordering;

use urxe::cm::{EventKind, EventParam};

use super::id::Id;
use super::multicast;
use super::param;
use crate::errno::{Errno, minus_one};
use crate::layout::{
    CStruct, rdma_cm_event, rdma_cm_id, rdma_event_channel, rdma_event_param, rdma_ud_param,
};
use crate::object::{Kind, Object, delete, new};

#[repr(C)]
struct Event {
    ibv: UnsafeCell<rdma_cm_event>,
    /// Where the program's pointer to private data leads.
    _data: Vec<u8>,
    /// The id that waits for the acknowledgement: of a request, the one that listens.
    counted: *mut rdma_cm_id,
}

// SAFETY: repr(C), and `ibv` is first.
unsafe impl Object for Event {}

impl Kind for Event {
    type C = rdma_cm_event;
}

/// The event as the program will see it.
struct Seen {
    kind: EventKind,
    status: c_int,
    id: *mut rdma_cm_id,
    listen_id: *mut rdma_cm_id,
    param: rdma_event_param,
    is_ud: bool,
    data: Vec<u8>,
}

/// The program's form of an event, after what has to happen with it. None if its id is gone.
pub(super) fn translate(
    channel: *mut rdma_event_channel,
    event: urxe::cm::Event,
) -> Result<Option<*mut rdma_cm_event>, Errno> {
    let is_request = event.kind == EventKind::ConnectRequest;
    let counted = match &event.listen_id {
        Some(listener) if is_request => Id::deliver(listener.token()),
        _ => Id::deliver(event.id.token()),
    };
    let Some(counted) = counted else {
        return Ok(None);
    };
    let mut seen = Seen {
        kind: event.kind,
        status: event.status,
        id: counted,
        listen_id: ptr::null_mut(),
        param: rdma_event_param {
            ud: rdma_ud_param::zeroed(),
        },
        is_ud: false,
        data: event.private_data().to_vec(),
    };
    if is_request {
        // SAFETY: the listening id, which was counted.
        match unsafe { welcome(channel, counted, event.id.clone()) } {
            Ok(child) => (seen.id, seen.listen_id) = (child, counted),
            Err(_) => {
                // The peer is refused as the id goes.
                // SAFETY: counted above.
                unsafe { Id::of(counted) }.events.clone().ack(1);
                return Ok(None);
            }
        }
    }
    // SAFETY: an id that was counted, or is new.
    let id = unsafe { Id::of(seen.id) };
    react(&mut seen, id, &event.param);
    Ok(Some(give(seen, counted)))
}

fn give(seen: Seen, counted: *mut rdma_cm_id) -> *mut rdma_cm_event {
    let mut ibv = rdma_cm_event {
        id: seen.id,
        listen_id: seen.listen_id,
        event: seen.kind as c_int,
        status: seen.status,
        param: seen.param,
    };
    if !seen.data.is_empty() {
        param::set_data(&mut ibv.param, seen.is_ud, &seen.data);
    }
    new(Event {
        ibv: UnsafeCell::new(ibv),
        _data: seen.data,
        counted,
    })
}

/// An id of the program's for a request.
///
/// # Safety
/// A listening id that stays.
unsafe fn welcome(
    channel: *mut rdma_event_channel,
    listener: *mut rdma_cm_id,
    urxe: urxe::cm::Id,
) -> Result<*mut rdma_cm_id, Errno> {
    let of_listener = listener;
    // SAFETY: the caller's promise.
    let listener = unsafe { Id::of(listener) };
    let mut ibv = rdma_cm_id::zeroed();
    ibv.channel = channel;
    // SAFETY: the caller's promise; these fields do not change.
    unsafe {
        ibv.context = (*of_listener).context;
        ibv.ps = (*of_listener).ps;
        ibv.qp_type = (*of_listener).qp_type;
    }
    let child = Id::give(urxe, ibv, false);
    // SAFETY: just made.
    let new = unsafe { Id::of(child) };
    let ready = new.refresh().and_then(|()| {
        if listener.is_sync.load(Ordering::Relaxed) {
            // SAFETY: no channel. It waits by itself, as the one that listens does.
            return unsafe { new.migrate(ptr::null_mut()) };
        }
        Ok(())
    });
    if let Err(errno) = ready {
        // SAFETY: the program does not have it.
        unsafe { super::id::rdma_destroy_id(child) };
        return Err(errno);
    }
    Ok(child)
}

fn react(seen: &mut Seen, id: &Id, with: &EventParam) {
    let failed = match seen.kind {
        EventKind::AddrResolved | EventKind::RouteResolved => id.resolved(),
        EventKind::ConnectResponse => respond(seen, id),
        EventKind::MulticastJoin => multicast::joined(id, with),
        _ => Ok(()),
    };
    fill(seen, id, with);
    if let Err(Errno(errno)) = failed {
        seen.kind = match seen.kind {
            EventKind::AddrResolved => EventKind::AddrError,
            EventKind::RouteResolved => EventKind::RouteError,
            EventKind::MulticastJoin => EventKind::MulticastError,
            _ => EventKind::ConnectError,
        };
        seen.status = -errno;
    }
}

fn fill(seen: &mut Seen, id: &Id, with: &EventParam) {
    // SAFETY: the program's part.
    let context = unsafe { (*id.ibv.get()).verbs };
    match with {
        EventParam::Conn(conn) => seen.param = param::to_c(conn),
        EventParam::User(arg) => seen.param.arg = *arg,
        EventParam::Ud(ud) if !context.is_null() => {
            seen.is_ud = true;
            // SAFETY: the device's context stays open.
            seen.param = unsafe { param::ud_to_c(context, ud) };
            if matches!(
                seen.kind,
                EventKind::MulticastJoin | EventKind::MulticastError
            ) {
                // What the program gave when it joined.
                seen.param.ud.private_data =
                    ptr::with_exposed_provenance::<c_void>(ud.token as usize);
            }
        }
        _ => {}
    }
}

/// The peer accepted. With a QP of the id's that is all: it is made ready, and the peer told. Without one the program
/// does that (`rdma_establish`).
fn respond(seen: &mut Seen, id: &Id) -> Result<(), Errno> {
    if let Some(qp) = id.qp() {
        id.urxe.answer(qp)?;
        seen.kind = EventKind::Established;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: an event that the program does not use again, by the rules of the function.
    unsafe {
        let counted = Event::of(event).counted;
        delete::<Event>(event);
        // Last: a thread that waits for it may destroy the id now.
        Id::of(counted).events.clone().ack(1);
    }
    0
}
