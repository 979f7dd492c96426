//! What concerns a QP as a whole, seldom, and is found out in the midst of something else: a completion that was lost, a
//! rendezvous that begins or ends.

use crate::context::{Cx, Host};
use crate::cq::CqId;
use crate::error::Fault;
use crate::event::AsyncEvent;
use crate::qp::Qp;
use crate::qp::state::QpState;

impl Qp {
    /// True if its completions go to this queue.
    pub(crate) fn uses_cq(&self, cq: CqId) -> bool {
        self.link.send_cq == cq || self.resp.recvs.cq == cq
    }

    /// One of its completion queues lost a completion, of this QP or another.
    pub(crate) fn on_cq_failed<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        // From RESET there is no way to ERR: its first completion will fail it.
        cx.overrun = self.state() != QpState::Reset;
        self.after(cx);
    }

    /// A call noted something of it.
    #[cold]
    pub(crate) fn after_news<H: Host>(&mut self, cx: &mut Cx<'_, '_, H>) {
        if cx.overrun && self.state() != QpState::Err {
            cx.common.push_event(AsyncEvent::QpFatal(self.link.index));
            self.fail_send(Fault::CqOverrun, None, cx);
        }
        self.begin_rendezvous();
        (cx.overrun, cx.has_rendezvous) = (false, false);
    }
}
