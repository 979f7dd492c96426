//! The receive queue of a QP: its own, or a shared one.

use urxe_wire::{CreditCode, Qpn};

use crate::config::QpLimits;
use crate::context::{Cx, Host};
use crate::cq::CqId;
use crate::create_error::CreateQpError;
use crate::event::AsyncEvent;
use crate::mr::PdId;
use crate::qp::attr::QpCap;
use crate::qp::responder::Responder;
use crate::qp::state::QpType;
use crate::qp::{Link, Qp, QpInit};
use crate::srq::SrqTable;
use crate::table::{QpIndex, SrqId};
use crate::tm::TmCap;
use crate::work::{PostError, RecvQueue};

/// The source of receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvSource {
    /// The shared queue, if the QP has none of its own.
    pub(crate) srq: Option<SrqId>,
    /// The number that the peer named that queue by (XRC).
    pub(crate) srqn: Option<Qpn>,
    /// The protection domain of the receives' memory: the shared queue's, not the QP's.
    pub(crate) pd: PdId,
    /// Where receives complete.
    pub(crate) cq: CqId,
    /// Entries of a receive.
    pub(crate) sge_max: u32,
    /// The shared queue has tags.
    pub(crate) has_tags: bool,
}

impl RecvSource {
    /// The source that a QP is created with.
    pub(crate) fn of(init: &QpInit, srqs: &SrqTable) -> Result<RecvSource, CreateQpError> {
        let mut source = RecvSource {
            srq: init.srq,
            srqn: None,
            pd: init.pd,
            cq: init.recv_cq,
            sge_max: init.cap.max_recv_sge,
            has_tags: false,
        };
        if (init.qp_type == QpType::XrcRecv) != init.xrcd.is_some() {
            return Err(CreateQpError::Xrcd);
        }
        if let Some(id) = init.srq {
            if matches!(init.qp_type, QpType::XrcSend | QpType::XrcRecv) {
                let why = "QPs of XRC reach those of a domain, or none";
                return Err(CreateQpError::Srq(why));
            }
            let srq = srqs.at(id).ok_or(CreateQpError::Srq("it does not exist"))?;
            if srq.xrc.is_some() {
                let why = "it is of type XRC, which only XRC target QPs reach";
                return Err(CreateQpError::Srq(why));
            }
            source.pd = srq.pd;
            source.sge_max = srq.max_sge();
            if let Some(tags) = &srq.tags {
                if init.qp_type != QpType::Rc {
                    let why = "it has tag matching, which only QPs of type RC have";
                    return Err(CreateQpError::Srq(why));
                }
                if init.pd != srq.pd {
                    let why = "it has tag matching, and is of another protection domain";
                    return Err(CreateQpError::Srq(why));
                }
                source.cq = tags.tm.cq;
                source.sge_max = source.sge_max.max(TmCap::SGE_MAX);
                source.has_tags = true;
            }
        }
        Ok(source)
    }

    /// The QP's own queue, or its place for the shared receive that it is filling.
    pub(crate) fn queue(&self, qp_type: QpType, cap: &QpCap) -> RecvQueue {
        match (self.srq, qp_type) {
            (Some(_), _) => RecvQueue::place(self.sge_max as usize),
            // A receive of any queue of its domain.
            (None, QpType::XrcRecv) => RecvQueue::place(QpLimits::SGE_MAX as usize),
            (None, QpType::XrcSend) => RecvQueue::place(0),
            _ => RecvQueue::new(cap.max_recv_wr, cap.max_recv_sge as usize),
        }
    }
}

impl Responder {
    /// The queue that the receive at hand was taken from was destroyed meanwhile, and
    /// its completion queue perhaps too, so no completion is written for this receive.
    #[cold]
    pub(crate) fn forget_orphan(&mut self, srqs: &SrqTable) {
        if self
            .recvs
            .srqn
            .is_some_and(|srqn| srqs.find(srqn).is_none())
        {
            self.rq.clear();
        }
    }

    /// A message begins and there is no receive here: one is taken from the shared
    /// queue, if the QP has one, or from what the program posted meanwhile. False if there is none.
    pub(crate) fn find_receive<H: Host>(&mut self, link: &Link, cx: &mut Cx<'_, '_, H>) -> bool {
        match self.recvs.srq {
            Some(srq) => cx.common.take_shared(srq, cx.env.late, &mut self.rq),
            None => self.find_late(link.index, cx),
        }
    }

    #[cold]
    fn find_late<H: Host>(&mut self, index: QpIndex, cx: &mut Cx<'_, '_, H>) -> bool {
        if let Some(late) = cx.env.late {
            late.of_qp(index, &mut self.rq);
        }
        if self.rq.is_empty() {
            return false;
        }
        mark!(LateReceive);
        self.on_receives_posted();
        true
    }

    /// Receives that others may take cannot be promised: the code for "no limit" says
    /// so (IBTA 9.7.7.2).
    pub(crate) fn credits_shared(&mut self) -> CreditCode {
        let code = CreditCode::UNLIMITED;
        self.ack.on_credits_told(code.credits());
        code
    }
}

impl Qp {
    /// The failed QP takes no more receives from its shared queue: the program may
    /// now count those that are left, and destroy the QP.
    pub(crate) fn report_last_wqe<H: Host>(&self, cx: &mut Cx<'_, '_, H>) {
        if self.init.srq.is_some() {
            cx.common
                .push_event(AsyncEvent::QpLastWqeReached(self.link.index));
        }
    }

    /// Why a receive was not taken: a QP with a shared queue takes none.
    #[cold]
    pub(crate) fn post_recv_error(&self, error: PostError) -> PostError {
        match self.init.qp_type {
            qp_type @ (QpType::XrcSend | QpType::XrcRecv) => PostError::NoQueue(qp_type),
            _ if self.init.srq.is_some() => PostError::HasSrq,
            _ => error,
        }
    }
}
