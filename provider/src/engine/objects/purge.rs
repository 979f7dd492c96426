//! Removes the completions of a QP that goes to RESET.
//!
//! RESET forgets both work queues, and a program starts over with request ids of its choice. A completion of
//! the former life that is still in a queue would be taken for one of the new, so adapters' drivers clean the
//! queues at this moment, and programs that bring a failed QP up again rely on it.

use std::sync::atomic::Ordering;

use urxe_core::cq::CqId;
use urxe_wire::Qpn;

use crate::queues::CqCore;
use crate::queues::CqTable;

impl CqTable {
    /// Takes a QP's completions out of its queues, which may be one.
    pub(crate) fn purge(&self, qpn: Qpn, send_cq: CqId, recv_cq: CqId) {
        for id in [send_cq, recv_cq] {
            if let Some(cq) = self.at(id) {
                cq.purge(qpn);
            }
        }
    }
}

impl CqCore {
    /// Those of other QPs stay, in order. The engine's lock keeps new ones of this QP away.
    fn purge(&self, qpn: Qpn) {
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(stamps) = &mut inner.stamps {
            let mut cqes = inner.ring.iter();
            stamps.retain(|_| cqes.next().is_some_and(|cqe| cqe.qpn != qpn));
        }
        inner.ring.retain(|cqe| cqe.qpn != qpn);
        self.len.store(inner.ring.len(), Ordering::Release);
    }
}
