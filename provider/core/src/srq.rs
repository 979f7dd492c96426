//! Shared receive queues: receives that the QPs of a program take from as messages
//! arrive, so that buffers need not be dealt out to connections in advance.
//!
//! A receive leaves the queue with the first packet of the message that it is for, and
//! belongs to that QP until it is completed. So the messages of several QPs fill
//! receives of one queue side by side, in whatever order their packets come.

use urxe_wire::Qpn;

use crate::config::QpLimits;
use crate::context::Common;
use crate::cq::CqId;
use crate::event::AsyncEvent;
use crate::late::LateReceives;
use crate::mix::SplitMix64;
use crate::mr::PdId;
use crate::qpn_table::QpnTable;
use crate::shard::Shard;
use crate::table::QpIndex;
pub use crate::table::SrqId;
use crate::tm::{SrqTm, TagList, Tags, TmCap};
use crate::work::{PostError, RecvQueue, RecvWr};
use crate::xrc::XrcdId;

/// What a shared receive queue is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_srq_init_attr")]
#[doc(alias = "ibv_srq_init_attr_ex")]
pub struct SrqInit {
    /// The protection domain of its receives' memory.
    pub pd: PdId,
    /// Its sizes and its limit.
    pub attr: SrqAttr,
    /// For a queue of type XRC: its receives complete to a queue of its own.
    pub xrc: Option<SrqXrc>,
    /// For a queue with tag matching: its list of tags. Such a queue is not of type XRC.
    pub tm: Option<SrqTm>,
}

/// What makes a shared receive queue one of type XRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqXrc {
    /// Its XRC domain: only target QPs of this domain reach it.
    pub xrcd: XrcdId,
    /// The completion queue of its receives.
    pub cq: CqId,
}

/// The attributes of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_srq_attr")]
pub struct SrqAttr {
    /// Most receives that may wait in it.
    pub max_wr: u32,
    /// Most scatter/gather entries of a receive.
    pub max_sge: u32,
    /// An event is raised, once, when fewer receives than this are left; 0 is none.
    pub srq_limit: u32,
}

impl Default for SrqAttr {
    /// 128 receives of up to 4 entries, without a limit.
    fn default() -> SrqAttr {
        SrqAttr {
            max_wr: 128,
            max_sge: 4,
            srq_limit: 0,
        }
    }
}

/// Which attributes a modify names, with the bits of `enum ibv_srq_attr_mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[doc(alias = "ibv_srq_attr_mask")]
pub struct SrqAttrMask(pub u32);

impl SrqAttrMask {
    /// `max_wr`: the queue gets another size.
    #[doc(alias = "IBV_SRQ_MAX_WR")]
    pub const MAX_WR: SrqAttrMask = SrqAttrMask(1);
    /// `srq_limit`: the limit is armed, or (with 0) disarmed.
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub const LIMIT: SrqAttrMask = SrqAttrMask(2);
}

bit_set!(SrqAttrMask);

/// Why a call on a shared receive queue was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SrqError {
    /// No such queue.
    #[error("the shared receive queue does not exist")]
    NoSrq,
    /// A size or the limit is not possible.
    #[error("{name} is {value}, but {min} to {max} is possible")]
    Value {
        /// Name of the field of `ibv_srq_attr` or `ibv_tm_cap`.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The smallest that would do.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// Tag matching and XRC at once.
    #[error("a queue has tag matching or is of type XRC, not both")]
    TwoTypes,
    /// A bit that is no attribute.
    #[error("the attribute mask {0:#x} has bits besides MAX_WR and LIMIT")]
    Mask(u32),
    /// The table is full.
    #[error("all {0} shared receive queues are in use")]
    Full(usize),
    /// QPs take receives from it.
    #[error("{0} QPs or handles still use the queue: destroy them first")]
    InUse(u32),
}

impl SrqAttr {
    /// Every value must be in its range, with `queued` receives in the queue.
    fn check(&self, queued: u32) -> Result<(), SrqError> {
        let ranges = [
            ("max_sge", self.max_sge, 0, QpLimits::SGE_MAX),
            ("max_wr", self.max_wr, queued.max(1), QpLimits::WR_MAX),
            ("srq_limit", self.srq_limit, 0, self.max_wr),
        ];
        for (name, value, min, max) in ranges {
            SrqAttr::check_range(name, value, (min, max))?;
        }
        Ok(())
    }

    fn check_range(name: &'static str, value: u32, (min, max): (u32, u32)) -> Result<(), SrqError> {
        match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(SrqError::Value {
                name,
                value,
                min,
                max,
            }),
        }
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: PdId,
    pub(crate) xrc: Option<SrqXrc>,
    pub(crate) tags: Option<Box<Tags>>,
    attr: SrqAttr,
    queue: RecvQueue,
    /// QPs that were created with it.
    users: u32,
}

/// All shared receive queues of a shard.
#[derive(Debug)]
pub(crate) struct SrqTable {
    srqs: QpnTable<Srq>,
    /// The secret of the next list of tags.
    secrets: SplitMix64,
}

impl SrqTm {
    /// Every size must be in its range.
    fn check(&self) -> Result<(), SrqError> {
        let TmCap {
            max_num_tags,
            max_ops,
        } = self.cap;
        for (name, value, max) in [
            ("max_num_tags", max_num_tags, TmCap::NUM_TAGS_MAX),
            ("max_ops", max_ops, TmCap::OPS_MAX),
        ] {
            SrqAttr::check_range(name, value, (1, max))?;
        }
        Ok(())
    }
}

impl SrqTable {
    pub(crate) fn new(secret: u64) -> SrqTable {
        SrqTable {
            // SRQ numbers must say nothing about QP numbers.
            srqs: QpnTable::new(secret ^ 0x3c6e_f372_fe94_f82b),
            secrets: SplitMix64::new(secret ^ 0x7a67_6d61_7463_6833),
        }
    }

    #[inline]
    pub(crate) fn at(&self, id: SrqId) -> Option<&Srq> {
        self.srqs.at(QpIndex(id.0))
    }

    /// The queue that a number on the wire names.
    #[inline]
    pub(crate) fn find(&self, srqn: Qpn) -> Option<(SrqId, &Srq)> {
        let index = self.srqs.find(srqn)?;
        Some((SrqId(index.0), self.srqs.at(index)?))
    }

    /// The queue has tags.
    pub(crate) fn has_tags(&self, id: SrqId) -> bool {
        self.at(id).is_some_and(|srq| srq.tags.is_some())
    }

    /// A QP begins (or, with `false`, ends) to take receives from the queue.
    pub(crate) fn attach(&mut self, id: SrqId, begins: bool) {
        if let Some(srq) = self.srqs.at_mut(QpIndex(id.0)) {
            srq.users = if begins {
                srq.users + 1
            } else {
                srq.users.saturating_sub(1)
            };
        }
    }

    /// Gives up unused places, if hardly any are in use; returns how many there are.
    pub(crate) fn shrink(&mut self) -> usize {
        self.srqs.shrink();
        self.srqs.occupancy().places
    }

    pub(crate) fn at_mut(&mut self, id: SrqId) -> Result<&mut Srq, SrqError> {
        self.srqs.at_mut(QpIndex(id.0)).ok_or(SrqError::NoSrq)
    }
}

impl Srq {
    pub(crate) fn max_sge(&self) -> u32 {
        self.attr.max_sge
    }
}

impl Common {
    /// Moves the oldest receive of a shared queue into the place that a QP has for the
    /// one that it is filling; false if there is none. `late` may have more for an empty one.
    pub(crate) fn take_shared(
        &mut self,
        id: SrqId,
        late: Option<&dyn LateReceives>,
        place: &mut RecvQueue,
    ) -> bool {
        let Some(srq) = self.srqs.srqs.at_mut(QpIndex(id.0)) else {
            return false;
        };
        if srq.queue.is_empty()
            && let Some(late) = late
        {
            late.of_srq(id, &mut srq.queue);
        }
        if !place.take_from(&mut srq.queue) {
            mark!(SrqEmpty);
            return false;
        }
        // The limit is good for one event; the program arms it again (IBTA 10.2.9.2).
        if srq.queue.len() < srq.attr.srq_limit {
            mark!(SrqLimitReached);
            srq.attr.srq_limit = 0;
            self.push_event(AsyncEvent::SrqLimitReached(id));
        }
        true
    }
}

impl Shard {
    /// Creates a shared receive queue; returns its place and its number, which for one
    /// of type XRC the peers must know.
    ///
    /// # Errors
    /// [`SrqError`] if a size is beyond what there is.
    pub fn create_srq(&mut self, init: &SrqInit) -> Result<(SrqId, Qpn), SrqError> {
        init.attr.check(0)?;
        if let Some(tm) = &init.tm {
            tm.check()?;
            if init.xrc.is_some() {
                return Err(SrqError::TwoTypes);
            }
        }
        let SrqTable {
            srqs: table,
            secrets,
        } = &mut self.common.srqs;
        if table.is_exhausted() {
            // Numbers of shared receive queues are not shared with other owners.
            table.grant_any();
        }
        let made = table.insert_with(|_, _| Srq {
            pd: init.pd,
            xrc: init.xrc,
            tags: init.tm.map(|tm| {
                let list = TagList::new(tm.cap.max_num_tags, secrets.bits());
                Box::new(Tags { tm, list })
            }),
            attr: init.attr,
            queue: RecvQueue::new(init.attr.max_wr, init.attr.max_sge as usize),
            users: 0,
        });
        let (index, srqn) = made.ok_or(SrqError::Full(QpnTable::<Srq>::LEN_MAX))?;
        Ok((SrqId(index.0), srqn))
    }

    /// Destroys a shared receive queue. Its receives make no completions.
    ///
    /// # Errors
    /// [`SrqError::InUse`] while QPs take receives from it.
    pub fn destroy_srq(&mut self, id: SrqId) -> Result<(), SrqError> {
        let srqs = &mut self.common.srqs;
        match srqs.at_mut(id)?.users {
            0 => {
                srqs.srqs.remove(QpIndex(id.0));
                Ok(())
            }
            users => Err(SrqError::InUse(users)),
        }
    }

    /// Changes the attributes that the mask names, all or none. Receives stay where
    /// they are when the size changes.
    ///
    /// # Errors
    /// [`SrqError`]: fewer places than receives, or a limit beyond the size.
    pub fn modify_srq(
        &mut self,
        id: SrqId,
        attr: &SrqAttr,
        mask: SrqAttrMask,
    ) -> Result<(), SrqError> {
        let srq = self.common.srqs.at_mut(id)?;
        let all = SrqAttrMask::MAX_WR | SrqAttrMask::LIMIT;
        if !all.contains(mask) {
            return Err(SrqError::Mask(mask.0));
        }
        let mut new = srq.attr;
        if mask.contains(SrqAttrMask::MAX_WR) {
            new.max_wr = attr.max_wr;
        }
        if mask.contains(SrqAttrMask::LIMIT) {
            new.srq_limit = attr.srq_limit;
        }
        new.check(srq.queue.len())?;
        if new.max_wr != srq.attr.max_wr {
            srq.queue.resize(new.max_wr);
        }
        srq.attr = new;
        Ok(())
    }

    /// The attributes of a shared receive queue. The limit is 0 once its event was
    /// raised.
    pub fn query_srq(&self, id: SrqId) -> Option<SrqAttr> {
        self.common.srqs.at(id).map(|srq| srq.attr)
    }

    /// Appends to a shared receive queue. QPs that found it empty need no call: their
    /// peers try again.
    ///
    /// # Errors
    /// [`PostError`]; the queue is unchanged.
    pub fn post_srq_recv(&mut self, id: SrqId, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let srq = self.common.srqs.at_mut(id).map_err(|_| PostError::NoSrq)?;
        srq.queue.push(wr)
    }

    /// Moves posts that waited elsewhere into a shared receive queue, as many as fit.
    pub fn drain_srq_recv(&mut self, id: SrqId, staged: &mut RecvQueue) {
        match self.common.srqs.at_mut(id) {
            Ok(srq) => staged.drain_into(&mut srq.queue),
            Err(_) => staged.clear(),
        }
    }

    /// Receives in a shared receive queue.
    pub fn srq_len(&self, id: SrqId) -> u32 {
        self.common.srqs.at(id).map_or(0, |srq| srq.queue.len())
    }
}
