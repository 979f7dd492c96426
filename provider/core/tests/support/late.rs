//! Receives that are posted while a call into the core goes on: the core finds them when a message needs them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use urxe_core::srq::SrqId;
use urxe_core::table::QpIndex;
use urxe_core::work::{RecvQueue, RecvWr};
use urxe_core::{LateReceives, Time};

use super::Node;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    Qp(QpIndex),
    Srq(SrqId),
}

#[derive(Debug, Default)]
pub struct Late(RefCell<BTreeMap<Of, RecvQueue>>);

impl Late {
    /// Into a queue with receives of `sge_max` entries.
    pub fn post(&self, of: Of, sge_max: usize, wr: &RecvWr<'_>) {
        let mut queues = self.0.borrow_mut();
        let queue = queues
            .entry(of)
            .or_insert_with(|| RecvQueue::new(256, sge_max));
        queue.push(wr).expect("few are late");
    }

    fn take(&self, of: Of, into: &mut RecvQueue) {
        if let Some(queue) = self.0.borrow_mut().get_mut(&of) {
            queue.drain_into(into);
        }
    }
}

impl LateReceives for Late {
    fn of_qp(&self, qp: QpIndex, queue: &mut RecvQueue) {
        self.take(Of::Qp(qp), queue);
    }

    fn of_srq(&self, srq: SrqId, queue: &mut RecvQueue) {
        self.take(Of::Srq(srq), queue);
    }
}

impl Node {
    /// The call is over: what was posted meanwhile reaches the core. False if there was nothing.
    pub fn serve_late(&mut self, now: Time) -> bool {
        let queues = std::mem::take(&mut *self.late.0.borrow_mut());
        let any = !queues.is_empty();
        for (of, mut queue) in queues {
            match of {
                Of::Qp(qp) => {
                    self.with_env(now, |s, env| s.drain_recv(qp, &mut queue, env));
                }
                Of::Srq(srq) => self.shard.drain_srq_recv(srq, &mut queue),
            }
        }
        any
    }
}
