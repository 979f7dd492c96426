//! Extended reliable connection: one connection between two processes serves all shared
//! receive queues of the domain at its end. [`crate::qp`] has the QPs' side of it.

use urxe_wire::Qpn;

use crate::qp::RecvSource;
use crate::srq::SrqTable;

/// Identity of an XRC domain, given by the owner of the domains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct XrcdId(pub u32);

impl SrqTable {
    /// What a request for the queue with this number works with; `None` if there is no
    /// such queue in the domain.
    #[inline]
    pub(crate) fn xrc_source(&self, xrcd: XrcdId, srqn: Qpn) -> Option<RecvSource> {
        let (id, srq) = self.find(srqn)?;
        let xrc = srq.xrc.filter(|xrc| xrc.xrcd == xrcd)?;
        Some(RecvSource {
            srq: Some(id),
            srqn: Some(srqn),
            pd: srq.pd,
            cq: xrc.cq,
            sge_max: srq.max_sge(),
            has_tags: false,
        })
    }
}
