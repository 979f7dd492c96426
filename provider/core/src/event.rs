//! Asynchronous events: what happens without a work request to report it by.

use crate::cq::CqId;
use crate::shard::Shard;
use crate::table::{QpIndex, SrqId};

/// One event, named as in `enum ibv_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[doc(alias = "ibv_event_type")]
pub enum AsyncEvent {
    /// A completion did not fit into its queue.
    CqErr(CqId),
    /// The QP failed in a way that no completion reports.
    QpFatal(QpIndex),
    /// A peer's request was invalid; the QP is in the error state.
    QpReqErr(QpIndex),
    /// A peer's request failed an access check; the QP is in the error state.
    QpAccessErr(QpIndex),
    /// The first packet arrived while the QP is in RTR.
    CommEst(QpIndex),
    /// The first packet arrived in another state: for the shard itself, which keeps it
    /// ([`crate::Shard::poll_event`]).
    Heard(QpIndex),
    /// The send queue is drained (RTS to SQD).
    SqDrained(QpIndex),
    /// A shared receive queue holds fewer receives than its limit.
    SrqLimitReached(SrqId),
    /// The QP failed and takes no more receives from its shared receive queue.
    QpLastWqeReached(QpIndex),
}

impl Shard {
    /// True if there is an asynchronous event to poll.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.common.events.is_empty()
    }

    /// The next asynchronous event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<AsyncEvent> {
        // Most calls find none.
        if !self.has_events() {
            return None;
        }
        self.take_event()
    }

    #[cold]
    fn take_event(&mut self) -> Option<AsyncEvent> {
        loop {
            let event = self.common.events.pop_front()?;
            match event {
                AsyncEvent::Heard(index) => self.on_heard(index),
                AsyncEvent::CommEst(index) => {
                    self.on_heard(index);
                    return Some(event);
                }
                _ => return Some(event),
            }
        }
    }
}
