//! Tag matching: a shared receive queue with a list of tags beside its receives. A message that begins with a
//! [`Tmh`] goes straight into the memory of the oldest tag that matches it, without the header; one that
//! no tag matches goes whole into an ordinary receive, and the program looks for its place itself.
//!
//! # Synchronization
//!
//! A message is *unexpected* from its first packet on if no tag of the list matches it then. The program learns of it
//! later, and meanwhile it may have added a tag that the message should have taken; a later message must not overtake it
//! there. So the list counts unexpected messages, and the program reports how many it has handled
//! ([`TagWr::unexpected_cnt`]): looked at, and either given to a receive that was posted before, or kept where the next
//! receive is looked up first. A tag that is added while the two counts differ matches nothing, until they are reported
//! equal. Completions say when that is needed ([`TmFlags::SYNC_REQ`](crate::cq::TmFlags::SYNC_REQ)).
//!
//! Tags that were added in step go on matching: no unexpected message that came after them could have been for them.

mod list;
mod ops;

use urxe_wire::{Rvh, Tmh, TmhOp};

use crate::cq::CqId;
use crate::work::{self, MESSAGE_MAX, Rendezvous, Sge};
pub(crate) use list::TagList;

/// What makes a shared receive queue one of tag matching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqTm {
    /// Where its receives, tags and operations complete.
    pub cq: CqId,
    /// The sizes of its list.
    pub cap: TmCap,
}

/// The sizes of a list of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_tm_cap")]
pub struct TmCap {
    /// Most tags in it, those included that a rendezvous is under way for: 1 to [`TmCap::NUM_TAGS_MAX`].
    pub max_num_tags: u32,
    /// Most operations under way: 1 to [`TmCap::OPS_MAX`]. An operation is carried out as it is posted, so that this
    /// limits nothing.
    pub max_ops: u32,
}

impl TmCap {
    /// Most tags of a list.
    pub const NUM_TAGS_MAX: u32 = 1 << list::PLACE_BITS;
    /// Most that [`TmCap::max_ops`] may ask for.
    pub const OPS_MAX: u32 = 1 << 14;
    /// Most scatter/gather entries of a tag.
    pub const SGE_MAX: u32 = work::TAG_SGE_MAX as u32;
    /// Most bytes of the request for a rendezvous, its headers included.
    pub const RNDV_HDR_MAX: u32 = 64;
    /// Rendezvous of a QP that may be under way at once; further ones are the program's.
    pub const RNDV_MAX: u32 = work::RNDV_MAX;
}

impl Default for TmCap {
    /// 1024 tags.
    fn default() -> TmCap {
        TmCap {
            max_num_tags: 1024,
            max_ops: 16,
        }
    }
}

/// Names a tag of a list from when it is added until it is gone. Numbers of tags that are gone come again only after
/// many others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagHandle(pub u32);

/// An operation on a list of tags.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_ops_wr")]
pub struct TagWr<'a> {
    /// Returned in the operation's completion.
    pub wr_id: u64,
    /// What is done.
    pub op: TagOp<'a>,
    /// Make a completion on success too.
    #[doc(alias = "IBV_OPS_SIGNALED")]
    pub is_signaled: bool,
    /// Report that so many unexpected messages have been handled since the queue was created, modulo 2^32; before the
    /// operation is carried out.
    #[doc(alias = "IBV_OPS_TM_SYNC")]
    pub unexpected_cnt: Option<u32>,
}

impl<'a> TagWr<'a> {
    /// Adds a tag behind all others.
    pub fn add(recv: TagRecv<'a>) -> TagWr<'a> {
        TagWr::new(TagOp::Add(recv))
    }

    /// Removes a tag.
    pub fn del(handle: TagHandle) -> TagWr<'static> {
        TagWr::new(TagOp::Del(handle))
    }

    /// Reports that so many unexpected messages have been handled.
    pub fn sync(unexpected_cnt: u32) -> TagWr<'static> {
        TagWr::new(TagOp::Sync).handled(unexpected_cnt)
    }

    /// This operation, which reports before it that so many unexpected messages have been handled.
    pub fn handled(self, unexpected_cnt: u32) -> TagWr<'a> {
        TagWr {
            unexpected_cnt: Some(unexpected_cnt),
            ..self
        }
    }

    /// This operation, with a completion that has this id.
    pub fn signaled(self, wr_id: u64) -> TagWr<'a> {
        TagWr {
            wr_id,
            is_signaled: true,
            ..self
        }
    }

    fn new(op: TagOp<'_>) -> TagWr<'_> {
        TagWr {
            wr_id: 0,
            op,
            is_signaled: false,
            unexpected_cnt: None,
        }
    }
}

/// Kinds of operations.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_ops_wr_opcode")]
pub enum TagOp<'a> {
    /// Adds a tag behind all others.
    #[doc(alias = "IBV_WR_TAG_ADD")]
    Add(TagRecv<'a>),
    /// Removes a tag. Completes with [`TmErr`](crate::WcStatus::TmErr), signaled or not, if it is gone.
    #[doc(alias = "IBV_WR_TAG_DEL")]
    Del(TagHandle),
    /// Only reports [`TagWr::unexpected_cnt`].
    #[doc(alias = "IBV_WR_TAG_SYNC")]
    Sync,
}

/// A tag with its memory.
#[derive(Clone, Copy, Debug)]
pub struct TagRecv<'a> {
    /// Returned in the completions of the message that it takes.
    pub recv_wr_id: u64,
    /// It takes a message if the message's tag, ANDed with `mask`, is this.
    pub tag: u64,
    /// The bits that count. Each message is looked up once for every mask that is in the list.
    pub mask: u64,
    /// The memory for the message.
    pub sges: &'a [Sge],
}

/// The part of a shared receive queue that has tags.
#[derive(Debug)]
pub(crate) struct Tags {
    pub(crate) tm: SrqTm,
    pub(crate) list: TagList,
}

/// What a QP with tag matching has beside others.
#[derive(Debug)]
pub(crate) struct TagRole {
    pub(crate) message: Tagged,
    /// The READs that were asked for and are not queued yet.
    pub(crate) asked: Vec<Rendezvous>,
}

impl TagRole {
    pub(crate) fn new() -> TagRole {
        TagRole {
            message: Tagged::NoTag,
            asked: Vec::with_capacity(TmCap::RNDV_MAX as usize),
        }
    }
}

/// The message that comes in, at a QP with tag matching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tagged {
    /// It has no tag. (Or none comes in.)
    NoTag,
    /// No tag of the list matched it. It is counted.
    Unexpected,
    /// It goes to the memory of a tag.
    Expected,
}

/// What a message of a queue with tag matching is, by its first packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Header {
    /// It has no tag, or nothing that can be one.
    NoTag,
    /// The bytes behind the header are for the tag.
    Eager(Tmh),
    /// The bytes are where the second header says.
    Rendezvous(Tmh, Rvh),
}

impl Header {
    /// `is_whole`: the packet is the message.
    pub(crate) fn parse(payload: &[u8], is_whole: bool) -> Header {
        let Some(tmh) = payload.first_chunk().map(Tmh::parse) else {
            return Header::NoTag;
        };
        match TmhOp::from_number(tmh.opcode) {
            Some(TmhOp::Eager) => Header::Eager(tmh),
            Some(TmhOp::Rndv) if is_whole && payload.len() <= TmCap::RNDV_HDR_MAX as usize => {
                let rvh = payload[Tmh::LEN..].first_chunk().map(Rvh::parse);
                rvh.filter(|rvh| u64::from(rvh.len) <= MESSAGE_MAX)
                    .map_or(Header::NoTag, |rvh| Header::Rendezvous(tmh, rvh))
            }
            _ => Header::NoTag,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(32)];
        bytes[0] = opcode;
        bytes[15] = 7;
        bytes[31] = 9;
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn what_is_no_whole_header_is_no_tag() {
        for (opcode, len) in [
            (3, 0),
            (3, 15),
            (0, 16),
            (2, 32),
            (4, 16),
            (255, 64),
            (1, 16),
            (1, 31),
            (1, 65),
        ] {
            let found = Header::parse(&message(opcode, len), true);
            assert_eq!(found, Header::NoTag, "{opcode} {len}");
        }
        assert_eq!(
            Header::parse(&message(1, 64), false),
            Header::NoTag,
            "a request of several packets"
        );
        let mut far = message(1, 32);
        far[28..].copy_from_slice(&(MESSAGE_MAX as u32 + 1).to_be_bytes());
        assert_eq!(Header::parse(&far, true), Header::NoTag);
    }

    #[test]
    fn whole_headers_are_found() {
        for is_whole in [false, true] {
            let Header::Eager(tmh) = Header::parse(&message(3, 16), is_whole) else {
                panic!("eager");
            };
            assert_eq!(tmh.tag, 7);
        }
        for len in [32, 64] {
            let Header::Rendezvous(tmh, rvh) = Header::parse(&message(1, len), true) else {
                panic!("rendezvous");
            };
            assert_eq!((tmh.tag, rvh.len), (7, 9));
        }
    }
}
