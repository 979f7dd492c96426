//! Operations on the list of tags of a shared receive queue, and what messages take from it.

use urxe_wire::Qpn;

use crate::context::{Common, Cx, Env};
use crate::cq::{CqSink, Cqe, TmFlags, TmInfo, WcOpcode};
use crate::error::{Fault, WcStatus};
use crate::memory::Memory;
use crate::shard::Shard;
use crate::table::SrqId;
use crate::tm::{TagHandle, TagList, TagOp, TagWr, Tags};
use crate::work::{PostError, RecvQueue};

impl Shard {
    /// Carries out an operation on the list of tags of a shared receive queue. An added tag's handle is returned.
    ///
    /// # Errors
    /// [`PostError`]; nothing is done, not even reported.
    #[doc(alias = "ibv_post_srq_ops")]
    pub fn post_srq_op<M: Memory, C: CqSink>(
        &mut self,
        id: SrqId,
        wr: &TagWr<'_>,
        env: &mut Env<'_, M, C>,
    ) -> Result<Option<TagHandle>, PostError> {
        let tags = self.common.tags_mut(id)?;
        let (made, opcode) = (tags.carry_out(wr)?, wr.opcode());
        let fault = match made {
            Made::Gone => Fault::TagGone,
            _ => Fault::None,
        };
        if wr.is_signaled || fault != Fault::None {
            let flags = match tags.list.is_in_step() {
                true => TmFlags::NONE,
                false => TmFlags::SYNC_REQ,
            };
            let (cq, cqe) = (tags.tm.cq, op_cqe(wr.wr_id, opcode, fault, flags));
            Cx::new(env, &mut self.common).complete(cq, cqe);
        }
        Ok(match made {
            Made::Tag(handle) => Some(handle),
            _ => None,
        })
    }

    /// Tags in the list of a shared receive queue; 0 if it has none.
    pub fn srq_tags(&self, id: SrqId) -> u32 {
        let tags = self.common.srqs.at(id).and_then(|srq| srq.tags.as_ref());
        tags.map_or(0, |tags| tags.list.len())
    }
}

/// What came of an operation.
enum Made {
    Tag(TagHandle),
    Done,
    Gone,
}

impl Tags {
    /// The list at fault is found before anything is changed.
    fn carry_out(&mut self, wr: &TagWr<'_>) -> Result<Made, PostError> {
        if let TagOp::Del(handle) = wr.op {
            self.list.check_handle(handle)?;
        }
        if let TagOp::Add(recv) = wr.op {
            self.list.check_add(&recv)?;
        }
        if let Some(handled) = wr.unexpected_cnt {
            self.list.report(handled);
        }
        match wr.op {
            TagOp::Add(recv) => self.list.add(&recv).map(Made::Tag),
            TagOp::Del(handle) => Ok(match self.list.remove(handle)? {
                true => Made::Done,
                false => Made::Gone,
            }),
            TagOp::Sync => Ok(Made::Done),
        }
    }
}

impl TagWr<'_> {
    fn opcode(&self) -> WcOpcode {
        match self.op {
            TagOp::Add(_) => WcOpcode::TmAdd,
            TagOp::Del(_) => WcOpcode::TmDel,
            TagOp::Sync => WcOpcode::TmSync,
        }
    }
}

/// Operations are of no QP.
fn op_cqe(wr_id: u64, opcode: WcOpcode, fault: Fault, flags: TmFlags) -> Cqe {
    let status = fault.status();
    Cqe {
        wr_id,
        status,
        fault,
        opcode,
        byte_len: 0,
        imm: None,
        invalidated: None,
        qpn: Qpn::new(0),
        src_qp: Qpn::new(0),
        grh: false,
        ipv4: false,
        solicited: status != WcStatus::Success,
        tm: TmInfo {
            flags,
            ..TmInfo::default()
        },
    }
}

impl Common {
    fn tags_mut(&mut self, id: SrqId) -> Result<&mut Tags, PostError> {
        let srq = self.srqs.at_mut(id).map_err(|_| PostError::NoSrq)?;
        srq.tags.as_deref_mut().ok_or(PostError::NoTags)
    }

    /// The list of tags of a queue that QPs use as one with tag matching.
    pub(crate) fn tag_list(&mut self, id: SrqId) -> Option<&mut TagList> {
        self.tags_mut(id).ok().map(|tags| &mut tags.list)
    }

    /// Moves the memory of the oldest tag that matches into the place of a QP; false if none does.
    pub(crate) fn take_tag(&mut self, id: SrqId, tag: u64, place: &mut RecvQueue) -> bool {
        let taken = self.tag_list(id).and_then(|list| list.take(tag));
        if let Some(taken) = &taken {
            place.fill(taken.recv_wr_id, taken.sges);
        }
        taken.is_some()
    }
}
