//! Addresses, routes and listening.

use core::ffi::c_int;
use core::time::Duration;

use super::address::{read, read_some};
use super::id::Id;
use super::manager::{home_of, source_for};
use crate::errno::{Errno, minus_one};
use crate::layout::rdma_cm_id;
use crate::object::Object;

pub(crate) unsafe extern "C" fn rdma_bind_addr(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
) -> c_int {
    // SAFETY: an id and an address, by the rules of the function.
    minus_one(unsafe { bind(Id::of(id), addr) })
}

/// # Safety
/// An address, or null.
pub(super) unsafe fn bind(id: &Id, addr: *const libc::sockaddr) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    id.urxe.bind_addr(home_of(unsafe { read(addr) }?)?)?;
    id.refresh()
}

pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut libc::sockaddr,
    dst_addr: *mut libc::sockaddr,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: an id and addresses, by the rules of the function.
    minus_one(unsafe { resolve_addr(Id::of(id), src_addr, dst_addr, timeout_ms) })
}

/// # Safety
/// Addresses, or null for the source.
pub(super) unsafe fn resolve_addr(
    id: &Id,
    source: *const libc::sockaddr,
    destination: *const libc::sockaddr,
    timeout_ms: c_int,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (source, destination) = unsafe { (read_some(source)?, read(destination)?) };
    let source = source_for(source, destination)?;
    id.urxe
        .resolve_addr(source, destination, timeout(timeout_ms))?;
    id.finish()
}

pub(crate) unsafe extern "C" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: an id, by the rules of the function.
    minus_one(resolve_route(unsafe { Id::of(id) }, timeout_ms))
}

pub(super) fn resolve_route(id: &Id, timeout_ms: c_int) -> Result<(), Errno> {
    id.urxe.resolve_route(timeout(timeout_ms))?;
    id.finish()
}

/// Less than nothing is nothing.
fn timeout(timeout_ms: c_int) -> Duration {
    Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0))
}

pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: an id, by the rules of the function.
    let id = unsafe { Id::of(id) };
    let backlog = u32::try_from(backlog).unwrap_or(0);
    let begun = id.urxe.listen(backlog).map_err(Errno::from);
    minus_one(begun.and_then(|()| id.refresh()))
}

pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: an id, by the rules of the function.
    unsafe { port(&raw const (*id).route.addr.src_storage) }
}

pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: an id, by the rules of the function.
    unsafe { port(&raw const (*id).route.addr.dst_storage) }
}

/// In network order; 0 without an address.
///
/// # Safety
/// A socket address of any family.
unsafe fn port(storage: *const crate::layout::Storage) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { read(storage.cast()) }.map_or(0, |addr| addr.port().to_be())
}
