//! Rendezvous of tag matching: a tag took a request, and its message is READ into the tag's memory; then the peer is told.

use crate::context::{Cx, Host};
use crate::cq::{Cqe, TmFlags, TmInfo, WcOpcode};
use crate::error::Fault;
use crate::event::AsyncEvent;
use crate::qp::requester::Requester;
use crate::qp::{Link, Qp};
use crate::work::{RNDV_MAX, SendWqe, WrOpcode};

impl Qp {
    /// Queues the READs that requests of the peer ask for, and counts the places that are left.
    #[cold]
    pub(crate) fn begin_rendezvous(&mut self) {
        if let Some(role) = &mut self.resp.tagged {
            for of in role.asked.drain(..) {
                self.req.sq.push_read(&of);
            }
            self.link.rendezvous_room = RNDV_MAX.saturating_sub(self.req.sq.own());
        }
    }
}

impl Requester {
    /// The oldest request, which is the shard's own, succeeded.
    #[cold]
    pub(crate) fn retire_own<H: Host>(&mut self, link: &Link, cx: &mut Cx<'_, '_, H>) {
        let wqe = *self.sq.wqe(self.sq.head());
        if wqe.opcode == WrOpcode::RdmaRead {
            complete_own(&wqe, Fault::None, link, cx);
            self.sq.push_fin();
        }
        self.sq.leave_own();
        cx.has_rendezvous = true;
    }

    /// It failed, or is flushed.
    #[cold]
    pub(crate) fn flush_own<H: Host>(&mut self, fault: Fault, link: &Link, cx: &mut Cx<'_, '_, H>) {
        let wqe = *self.sq.wqe(self.sq.head());
        if wqe.opcode == WrOpcode::RdmaRead {
            complete_own(&wqe, fault, link, cx);
        } else if fault != Fault::Flushed {
            // The program has its message: no completion is left that could tell it.
            cx.common.push_event(AsyncEvent::QpFatal(link.index));
        }
        self.sq.leave_own();
        cx.has_rendezvous = true;
    }
}

/// The second completion of a rendezvous.
fn complete_own<H: Host>(wqe: &SendWqe, fault: Fault, link: &Link, cx: &mut Cx<'_, '_, H>) {
    let cqe = link.cqe(wqe.wr_id, WcOpcode::TmRecv, fault, wqe.length);
    let tm = TmInfo {
        flags: TmFlags::DATA_VALID,
        ..TmInfo::default()
    };
    cx.complete(link.tags_cq, Cqe { tm, ..cqe });
}
