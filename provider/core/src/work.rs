//! Work requests as plain values, and the bounded queues that hold them.

mod check;
mod local;
mod opcode;
mod own;
mod post_error;
mod recv_queue;
mod rules;

use core::ops::Range;

use urxe_wire::{Lkey, Psn, Qpn, Rkey};

use crate::ah::{UdDest, UdTarget};
use crate::error::Fault;
use crate::qp::state::QpType;
pub use opcode::WrOpcode;
pub(crate) use own::{RNDV_MAX, Rendezvous, TAG_SGE_MAX};
pub use post_error::PostError;
pub use recv_queue::RecvQueue;
pub use rules::SendRules;

/// Flags of a send work request, with the bits of `enum ibv_send_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[doc(alias = "ibv_send_flags")]
pub struct SendFlags(pub u32);

impl SendFlags {
    /// No flag.
    pub const NONE: SendFlags = SendFlags(0);
    /// Wait for all earlier READs and atomics.
    pub const FENCE: SendFlags = SendFlags(1);
    /// Make a completion on success too.
    pub const SIGNALED: SendFlags = SendFlags(2);
    /// Raise an event at the receiver, if it asked for solicited ones.
    pub const SOLICITED: SendFlags = SendFlags(4);
    /// The data was copied when the request was posted.
    pub const INLINE: SendFlags = SendFlags(8);
}

bit_set!(SendFlags);

/// A scatter/gather entry, laid out as C has it: `ibv_sge` lists are posted as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
#[doc(alias = "ibv_sge")]
pub struct Sge {
    /// Address of the first byte, as the region's iova counts.
    pub addr: u64,
    /// Number of bytes; 0 means none.
    pub length: u32,
    /// The region's lkey.
    pub lkey: Lkey,
}

impl Sge {
    pub(crate) const EMPTY: Sge = Sge {
        addr: 0,
        length: 0,
        lkey: Lkey(0),
    };
}

/// The bytes of a send request.
#[derive(Clone, Copy, Debug)]
pub enum WrData<'a> {
    /// In registered memory.
    Sges(&'a [Sge]),
    /// Here; copied into the queue by the post.
    Inline(&'a [u8]),
}

/// A send work request as it is posted.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_send_wr")]
pub struct SendWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub opcode: WrOpcode,
    /// Flags (INLINE is implied by `data`).
    pub flags: SendFlags,
    /// Source of the data; for READ and atomics the place of the result.
    pub data: WrData<'a>,
    /// Remote address (RDMA and atomics).
    pub remote_addr: u64,
    /// Remote key (RDMA and atomics), or the rkey to take back (SEND with invalidate).
    pub rkey: Rkey,
    /// Immediate data in network order.
    pub imm: [u8; 4],
    /// Compared value, or the number to add.
    pub compare_add: u64,
    /// Swapped-in value.
    pub swap: u64,
    /// The destination (UD).
    pub ud: Option<UdDest<'a>>,
    /// Number of the peer's shared receive queue (XRC).
    pub srqn: Option<Qpn>,
}

impl SendWr<'_> {
    /// A request with everything unused set to zero.
    pub fn new<'a>(wr_id: u64, opcode: WrOpcode, data: WrData<'a>) -> SendWr<'a> {
        SendWr {
            wr_id,
            opcode,
            flags: SendFlags::SIGNALED,
            data,
            remote_addr: 0,
            rkey: Rkey(0),
            imm: [0; 4],
            compare_add: 0,
            swap: 0,
            ud: None,
            srqn: None,
        }
    }
}

/// A receive work request as it is posted.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_recv_wr")]
pub struct RecvWr<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// The memory for the message.
    pub sges: &'a [Sge],
}

/// Longest message, IBTA 9.7.2: 2^31 bytes.
pub const MESSAGE_MAX: u64 = 1 << 31;

/// A send work request while it waits and while it is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    /// Of a READ that was started, the packets that each of its requests asks for.
    pub(crate) swap: u64,
    pub(crate) rkey: Rkey,
    pub(crate) imm: [u8; 4],
    /// Sum of the entries' lengths (or of the inline bytes).
    pub(crate) length: u32,
    pub(crate) opcode: WrOpcode,
    /// From the request, with INLINE as it was found.
    pub(crate) flags: SendFlags,
    /// Number of scatter/gather entries.
    pub(crate) num_sge: u16,
    /// PSN of the first packet; valid once the request was started.
    pub(crate) first_psn: Psn,
    /// PSN of the last packet (of the response, for READ).
    pub(crate) last_psn: Psn,
    /// A fault found locally; reported when all earlier requests are done.
    pub(crate) fault: Fault,
}

impl SendWqe {
    const EMPTY: SendWqe = SendWqe {
        wr_id: 0,
        remote_addr: 0,
        compare_add: 0,
        swap: 0,
        rkey: Rkey(0),
        imm: [0; 4],
        length: 0,
        opcode: WrOpcode::Send,
        flags: SendFlags::NONE,
        num_sge: 0,
        first_psn: Psn::ZERO,
        last_psn: Psn::ZERO,
        fault: Fault::None,
    };

    /// Packets that each request of a READ asks for, but the last.
    pub(crate) fn chunk(&self) -> u32 {
        self.swap as u32
    }
}

/// Flags that a program does not set.
const NOT_POSTED: SendFlags = SendFlags(SendFlags::INLINE.0 | SendFlags::OWN.0);

/// The send queue: fixed capacity, requests named by an ever-growing number.
///
/// Whether it is empty is asked most often, so what says that comes first.
#[derive(Debug)]
#[repr(C)]
pub struct SendQueue {
    head: u64,
    tail: u64,
    slots: Box<[SendWqe]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    /// Of services that need more.
    more: Option<Box<More>>,
    sge_max: u32,
    inline_max: u32,
    capacity: u32,
    /// Requests that the program did not post.
    own: u32,
    rules: SendRules,
}

/// What requests of some services have beside the others.
#[derive(Debug, Default)]
struct More {
    /// Where each request goes, if the service is UD.
    targets: Box<[Option<UdTarget>]>,
    /// The peer's shared receive queue that each request is for, if the service is XRC.
    srqns: Box<[Qpn]>,
}

impl More {
    fn of(qp_type: QpType, slots: usize) -> Option<Box<More>> {
        let mut more = More::default();
        match qp_type {
            QpType::Ud => more.targets = vec![None; slots].into(),
            QpType::XrcSend => more.srqns = vec![Qpn::new(0); slots].into(),
            _ => return None,
        }
        Some(more.into())
    }
}

impl SendQueue {
    /// How much of it says where it begins and ends.
    pub(crate) const ENDS: usize = core::mem::offset_of!(SendQueue, slots);

    /// Bytes that a queue of this size takes.
    pub const fn bytes(capacity: u32, sge_max: usize, inline_max: usize) -> usize {
        let each = size_of::<SendWqe>() + sge_max * size_of::<Sge>() + inline_max;
        slots_of(capacity) * each
    }

    /// A queue for `capacity` requests of at most so many entries or inline bytes.
    pub fn new(capacity: u32, sge_max: usize, inline_max: usize) -> SendQueue {
        SendQueue::with_rules(SendRules::RC, capacity, sge_max, inline_max)
    }

    /// A queue with the rules of a QP of any service.
    pub fn with_rules(
        rules: SendRules,
        capacity: u32,
        sge_max: usize,
        inline_max: usize,
    ) -> SendQueue {
        let slots = slots_of(capacity + rules.own_max());
        SendQueue {
            more: More::of(rules.qp_type, slots),
            rules,
            slots: vec![SendWqe::EMPTY; slots].into(),
            sges: vec![Sge::EMPTY; slots * sge_max].into(),
            inline: vec![0; slots * inline_max].into(),
            sge_max: sge_max as u32,
            inline_max: inline_max as u32,
            capacity,
            own: 0,
            head: 0,
            tail: 0,
        }
    }

    /// Appends a request.
    ///
    /// # Errors
    /// [`PostError`]; the queue is unchanged.
    pub fn push(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if self.posted() >= self.capacity {
            return Err(PostError::QueueFull(self.capacity));
        }
        let length = self.check(wr)?;
        let slot = self.slot(self.tail);
        let (num_sge, inline_flag) = match wr.data {
            WrData::Sges(sges) => {
                let at = slot * self.sge_max();
                self.sges[at..at + sges.len()].copy_from_slice(sges);
                (sges.len() as u16, 0)
            }
            WrData::Inline(bytes) => {
                let at = slot * self.inline_max();
                self.inline[at..at + bytes.len()].copy_from_slice(bytes);
                (0, SendFlags::INLINE.0)
            }
        };
        if let Some(more) = &mut self.more {
            if let Some(target) = more.targets.get_mut(slot) {
                *target = wr.ud.map(UdTarget::from);
            }
            if let (Some(place), Some(srqn)) = (more.srqns.get_mut(slot), wr.srqn) {
                *place = srqn;
            }
        }
        self.slots[slot] = SendWqe {
            wr_id: wr.wr_id,
            remote_addr: wr.remote_addr,
            compare_add: wr.compare_add,
            swap: wr.swap,
            rkey: wr.rkey,
            imm: wr.imm,
            length,
            opcode: wr.opcode,
            flags: SendFlags(wr.flags.0 & !NOT_POSTED.0 | inline_flag),
            num_sge,
            ..SendWqe::EMPTY
        };
        self.tail += 1;
        Ok(())
    }

    /// Moves all requests to another queue, as far as that has room. For queues
    /// in which posts wait while another thread drives the shard.
    /// They were checked when they were pushed: the other queue must have the same rules and limits, but for its length.
    pub fn drain_into(&mut self, other: &mut SendQueue) {
        debug_assert_eq!(
            (self.rules, self.sge_max, self.inline_max),
            (other.rules, other.sge_max, other.inline_max)
        );
        while self.head < self.tail && other.posted() < other.capacity {
            let (from, to) = (self.slot(self.head), other.slot(other.tail));
            let wqe = self.slots[from];
            let sges = self.sges(self.head);
            other.sges[to * self.sge_max()..][..sges.len()].copy_from_slice(sges);
            if wqe.flags.contains(SendFlags::INLINE) {
                let bytes = self.inline(self.head);
                other.inline[to * self.inline_max()..][..bytes.len()].copy_from_slice(bytes);
            }
            if let (Some(more), Some(own)) = (&mut other.more, &self.more) {
                if let Some(target) = more.targets.get_mut(to) {
                    *target = own.targets[from];
                }
                if let Some(srqn) = more.srqns.get_mut(to) {
                    *srqn = own.srqns[from];
                }
            }
            other.slots[to] = wqe;
            other.tail += 1;
            self.head += 1;
        }
    }

    /// The addresses of where the next request will be stored.
    #[inline]
    pub(crate) fn next_place(&self) -> [Range<usize>; 2] {
        let slot = self.slot(self.tail);
        let inline = self.inline.as_ptr().addr() + slot * self.inline_max();
        let wqe = self.slots.as_ptr().addr() + slot * size_of::<SendWqe>();
        [
            wqe..wqe + size_of::<SendWqe>(),
            inline..inline + self.inline_max(),
        ]
    }

    /// Requests that the program posted.
    #[inline]
    pub fn posted(&self) -> u32 {
        self.len() - self.own
    }

    /// Number of the oldest request.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Number that the next request will get.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Inline bytes a request may have.
    #[inline]
    pub fn inline_max(&self) -> usize {
        self.inline_max as usize
    }

    /// A request by its number, which must be in `head..tail`.
    #[inline]
    pub(crate) fn wqe(&self, number: u64) -> &SendWqe {
        &self.slots[self.slot(number)]
    }

    /// A request by its number, to change it.
    #[inline]
    pub(crate) fn wqe_mut(&mut self, number: u64) -> &mut SendWqe {
        let slot = self.slot(number);
        &mut self.slots[slot]
    }

    /// The scatter/gather entries of a request.
    #[inline]
    pub(crate) fn sges(&self, number: u64) -> &[Sge] {
        let slot = self.slot(number);
        let at = slot * self.sge_max();
        &self.sges[at..at + self.slots[slot].num_sge as usize]
    }

    /// The inline bytes of a request.
    #[inline]
    pub(crate) fn inline(&self, number: u64) -> &[u8] {
        let slot = self.slot(number);
        let at = slot * self.inline_max();
        &self.inline[at..at + self.slots[slot].length as usize]
    }

    /// The destination of a request (UD).
    #[inline]
    pub(crate) fn target(&self, number: u64) -> Option<&UdTarget> {
        let more = self.more.as_ref()?;
        more.targets.get(self.slot(number))?.as_ref()
    }

    /// The peer's shared receive queue that a request is for (XRC).
    #[inline]
    pub(crate) fn srqn(&self, number: u64) -> Option<Qpn> {
        let more = self.more.as_ref()?;
        more.srqns.get(self.slot(number)).copied()
    }
}

/// What queues of fixed capacity have in common, first in, first out: `head` and `tail` ever grow.
macro_rules! ring {
    ($queue:ident) => {
        impl $queue {
            /// Requests in the queue.
            #[inline]
            pub fn len(&self) -> u32 {
                (self.tail - self.head) as u32
            }

            /// True if there is none.
            #[inline]
            pub fn is_empty(&self) -> bool {
                self.tail == self.head
            }

            /// Requests that the queue was created for.
            #[inline]
            pub fn capacity(&self) -> u32 {
                self.capacity
            }

            /// Entries a request may have.
            #[inline]
            pub fn sge_max(&self) -> usize {
                self.sge_max as usize
            }

            /// Takes the oldest request out.
            #[inline]
            pub fn pop(&mut self) {
                debug_assert!(self.head < self.tail, "pop of an empty queue");
                self.head += 1;
            }

            /// Forgets everything.
            pub fn clear(&mut self) {
                self.head = self.tail;
            }

            #[inline]
            fn slot(&self, number: u64) -> usize {
                number as usize & (self.slots.len() - 1)
            }
        }
    };
}
use ring;

ring!(SendQueue);

/// Places of a queue for `capacity` requests: found by masking.
const fn slots_of(capacity: u32) -> usize {
    let capacity = if capacity == 0 { 1 } else { capacity as usize };
    capacity.next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(n: u32) -> Sge {
        Sge {
            addr: u64::from(n),
            length: n,
            lkey: Lkey(n),
        }
    }

    #[test]
    fn limits_of_the_send_queue() {
        let mut q = SendQueue::new(3, 2, 4);
        let two = [sge(1), sge(2)];
        let three = [sge(1), sge(2), sge(3)];
        let wr = |data| SendWr::new(1, WrOpcode::Send, data);
        assert_eq!(
            q.push(&wr(WrData::Sges(&three))),
            Err(PostError::TooManySges { given: 3, max: 2 })
        );
        assert_eq!(
            q.push(&wr(WrData::Inline(b"12345"))),
            Err(PostError::InlineTooLong { given: 5, max: 4 })
        );
        assert_eq!(
            q.push(&SendWr::new(1, WrOpcode::RdmaRead, WrData::Inline(b"1"))),
            Err(PostError::InlineNotAllowed)
        );
        let huge = [Sge {
            length: u32::MAX,
            ..sge(1)
        }];
        assert_eq!(
            q.push(&wr(WrData::Sges(&huge))),
            Err(PostError::MessageTooLong(u64::from(u32::MAX)))
        );
        assert!(q.is_empty());
        for _ in 0..3 {
            q.push(&wr(WrData::Sges(&two))).expect("room");
        }
        assert_eq!(
            q.push(&wr(WrData::Sges(&two))),
            Err(PostError::QueueFull(3))
        );
        q.pop();
        q.push(&wr(WrData::Inline(b"abcd"))).expect("room again");
        assert_eq!(q.inline(q.tail() - 1), b"abcd");
        assert_eq!(q.wqe(q.head()).length, 3);
        assert_eq!(q.sges(q.head()), &two);
    }

    #[test]
    fn draining_keeps_order_and_content() {
        let (mut a, mut b) = (SendQueue::new(4, 1, 8), SendQueue::new(2, 1, 8));
        a.push(&SendWr::new(1, WrOpcode::Send, WrData::Inline(b"xy")))
            .expect("room");
        a.push(&SendWr::new(2, WrOpcode::Send, WrData::Sges(&[sge(9)])))
            .expect("room");
        a.push(&SendWr::new(3, WrOpcode::Send, WrData::Sges(&[])))
            .expect("room");
        a.drain_into(&mut b);
        assert_eq!((a.len(), b.len()), (1, 2));
        assert_eq!(b.inline(0), b"xy");
        assert_eq!(b.sges(1), &[sge(9)]);
        assert_eq!(b.wqe(1).wr_id, 2);
        b.pop();
        a.drain_into(&mut b);
        assert_eq!((a.len(), b.wqe(2).wr_id, b.sges(2)), (0, 3, &[][..]));
    }

    #[test]
    fn a_drained_request_is_moved_as_it_is() {
        let rules = SendRules {
            qp_type: QpType::XrcSend,
            ..SendRules::RC
        };
        let [mut a, mut b] = [4, 2].map(|capacity| SendQueue::with_rules(rules, capacity, 2, 0));
        let two = [sge(3), sge(4)];
        let mut wr = SendWr::new(7, WrOpcode::RdmaWriteWithImm, WrData::Sges(&two));
        wr.flags = SendFlags::FENCE | SendFlags::SOLICITED;
        (wr.remote_addr, wr.rkey, wr.imm) = (1 << 40, Rkey(5), [6; 4]);
        (wr.compare_add, wr.swap) = (8, 9);
        for srqn in [11, 12] {
            wr.srqn = Some(Qpn::new(srqn));
            a.push(&wr).expect("room");
        }
        a.drain_into(&mut b);
        for (number, srqn) in [(0, 11), (1, 12)] {
            let [before, after] = [&a, &b].map(|q| format!("{:?}", q.wqe(number)));
            assert_eq!(before, after);
            assert_eq!(b.sges(number), &two);
            assert_eq!(b.srqn(number), Some(Qpn::new(srqn)));
        }
    }
}
