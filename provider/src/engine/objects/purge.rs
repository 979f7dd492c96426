//! Removes the completions of a QP that goes to RESET, or is destroyed.
//!
//! RESET forgets both work queues, and a program starts over with request ids of its choice. A completion of
//! the former life that is still in a queue would be taken for one of the new, so adapters' drivers clean the
//! queues at this moment, and programs that bring a failed QP up again rely on it. They clean them when a QP is destroyed, too: there
//! a request id is often the address of something that the program frees right after the QP, while another of its threads polls.

use std::sync::atomic::Ordering;

use urxe_core::cq::CqId;
use urxe_wire::Qpn;

use crate::queues::CqCore;
use crate::queues::CqTable;

impl CqTable {
    /// Takes a QP's completions out of its queues, which may be one. Returns how many were taken; those that only say "flushed" are not
    /// counted.
    pub(crate) fn purge(&self, qpn: Qpn, queues: [CqId; 2]) -> usize {
        let of_queue = |id| self.at(id).map_or(0, |cq| cq.purge(qpn));
        queues.into_iter().map(of_queue).sum()
    }
}

impl CqCore {
    /// Those of other QPs stay, in order. The engine's lock keeps new ones of this QP away.
    fn purge(&self, qpn: Qpn) -> usize {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let taken = inner.results_of(qpn);
        if let Some(stamps) = &mut inner.stamps {
            let mut cqes = inner.ring.iter();
            stamps.retain(|_| cqes.next().is_some_and(|cqe| cqe.qpn != qpn));
        }
        inner.ring.retain(|cqe| cqe.qpn != qpn);
        self.len.store(inner.ring.len(), Ordering::Release);
        taken
    }
}
