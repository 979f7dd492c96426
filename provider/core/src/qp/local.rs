//! Local requests, which send no packet: binding a memory window, and invalidating an rkey.
//!
//! They are carried out in the order of the send queue, each when all requests before it
//! are complete. That is stricter than IBTA asks of a bind without fence, and makes the
//! order easy to rely on: no earlier request finds the window changed, no later one leaves
//! before it is, and nothing happens if an earlier request fails.

use crate::context::{Cx, Host};
use crate::error::Fault;
use crate::qp::Link;
use crate::qp::requester::{Requester, SendStep};
use crate::work::WrOpcode;

impl Requester {
    /// Carries out the request at the cursor, which is the oldest.
    pub(crate) fn run_local<H: Host>(&mut self, link: &Link, cx: &mut Cx<'_, '_, H>) -> SendStep {
        self.retry.asking.all_ask();
        match self.carry_out(link, cx) {
            Ok(()) => SendStep::Local,
            Err(fault) => self.fault_here(fault),
        }
    }

    /// Executes a local request, for a service where requests fail on the spot.
    ///
    /// # Errors
    /// The fault that ends the request.
    pub(crate) fn carry_out<H: Host>(
        &mut self,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) -> Result<(), Fault> {
        let (wqe, mrs) = (self.sq.wqe(self.cursor), &mut *cx.env.mrs);
        match wqe.opcode {
            WrOpcode::BindMw => mrs
                .bind_mw(link.accessor(), wqe.rkey, &wqe.bind_mw())
                .map_err(|_| Fault::WindowBind)?,
            _ => mrs
                .check_invalidate(wqe.rkey, link.accessor())
                .map(|()| mrs.invalidate(wqe.rkey))
                .map_err(|_| Fault::LocalInvalidate)?,
        }
        self.started += 1;
        self.cursor += 1;
        self.retire(link, cx);
        Ok(())
    }
}
