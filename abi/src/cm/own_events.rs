//! Events that the program itself is the reason of: addresses that it asked for by a name, and what it writes.

use core::ffi::{c_char, c_int};
use core::ptr;

use urxe::cm::EventKind;

use super::addrinfo::{Found, rdma_getaddrinfo};
use super::id::Id;
use crate::errno::{Errno, minus_one, store};
use crate::layout::{rdma_addrinfo, rdma_cm_id};
use crate::object::Object;

/// By the service's name from an InfiniBand subnet's manager, of which there is none.
const RAI_SA: c_int = 0x10;

/// Looks for a name, and says by an event when the result is there for [`rdma_query_addrinfo`]. The call itself takes as
/// long as the system does with the name, in upstream's library too.
pub(crate) unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    // SAFETY: an id, strings and hints, or nulls, by the rules of the function.
    minus_one(unsafe { resolve(Id::find(id), node, service, hints) })
}

/// # Safety
/// As [`rdma_resolve_addrinfo`] wants it.
unsafe fn resolve(
    id: Result<&Id, Errno>,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> Result<(), Errno> {
    let id = id?;
    if id.state().info.is_some() {
        return Err(Errno::BUSY);
    }
    // SAFETY: the caller's promise.
    if unsafe { hints.as_ref() }.is_some_and(|hints| hints.ai_flags & RAI_SA != 0) {
        return Err(Errno(libc::ENOTSUP));
    }
    let mut list = ptr::null_mut();
    // SAFETY: the caller's promise, and a place for the list.
    match unsafe { rdma_getaddrinfo(node, service, hints, &raw mut list) } {
        0 => {}
        -1 => return Err(Errno::last()),
        // What the system says of names has numbers of its own.
        _ => return Err(Errno::NO_ENTRY),
    }
    id.state().info = Some(Found::new(list));
    id.urxe.write_event(EventKind::AddrInfoResolved, 0, 0)?;
    id.finish()
}

/// The list is the program's, for `rdma_freeaddrinfo`.
pub(crate) unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: an id, by the rules of the function.
    let found = unsafe { Id::find(id) }.and_then(|id| {
        let found = id.state().info.take().ok_or(Errno::NO_ENTRY)?;
        Ok(found.into_list())
    });
    // SAFETY: a place for a pointer, by the rules of the function.
    minus_one(unsafe { store(info, found) })
}

/// An event of the program's own: it gets back what it gives.
pub(crate) unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: c_int,
    status: c_int,
    arg: u64,
) -> c_int {
    if event != EventKind::User as c_int {
        return minus_one(Err(Errno::INVAL));
    }
    // SAFETY: an id, by the rules of the function.
    let written = unsafe { Id::find(id) }
        .and_then(|id| Ok(id.urxe.write_event(EventKind::User, status, arg)?));
    minus_one(written)
}
