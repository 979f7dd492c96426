//! Synchronous ids: without a channel of the program, functions wait for the event that they cause.

use std::sync::atomic::Ordering;

use super::channel;
use super::id::{Id, forget_event};
use crate::errno::Errno;
use crate::layout::rdma_cm_id;

/// `RDMA_CM_EVENT_REJECTED`
const REJECTED: i32 = 8;

/// After a request: of an id that waits, its event. The event stays with the id (`id->event`) until the next one.
///
/// # Safety
/// A live id.
pub(super) unsafe fn finish(id: *mut rdma_cm_id) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { Id::of(id) };
    if !object.is_sync.load(Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the id's own event and channel.
    unsafe {
        forget_event(id);
        let event = channel::next((*id).channel)?;
        (*id).event = event;
        match (*event).status {
            0 => Ok(()),
            _ if (*event).event == REJECTED => Err(Errno(libc::ECONNREFUSED)),
            status => Err(Errno(status.abs())),
        }
    }
}
