//! Synchronous ids: without a channel of the program, functions wait for the event that they cause.

use std::sync::atomic::Ordering;

use super::channel;
use super::id::Id;
use crate::errno::Errno;

/// `RDMA_CM_EVENT_REJECTED`
const REJECTED: i32 = 8;

impl Id {
    /// After a request: of an id that waits, its event. The event stays with the id (`id->event`) until the next one.
    pub(super) fn finish(&self) -> Result<(), Errno> {
        if !self.is_sync.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.forget_event();
        let ibv = self.ibv.get();
        // SAFETY: the id's own event and channel.
        unsafe {
            let event = channel::next((*ibv).channel)?;
            (*ibv).event = event;
            match (*event).status {
                0 => Ok(()),
                _ if (*event).event == REJECTED => Err(Errno(libc::ECONNREFUSED)),
                status => Err(Errno(status.abs())),
            }
        }
    }
}
