//! Memory that a carrier lends a batch: packets are made where they will lie at last, and not copied there.

use core::any::Any;
use core::fmt::Debug;
use core::net::IpAddr;
use core::ops::Range;

use crate::qpn_table::QpnChunk;

/// Memory that packets are made in, in place of a batch's own: where they will lie at last.
pub trait LentMemory: Any + Debug + Send {
    /// These bytes of it.
    fn part_mut(&mut self, part: Range<usize>) -> &mut [u8];
}

/// What is lent ([`TxBatch::lend`](crate::transmit::TxBatch::lend)).
#[derive(Debug)]
pub struct Loan {
    /// The memory.
    pub memory: Box<dyn LentMemory>,
    /// Its bytes.
    pub len: usize,
    /// Each run begins so many bytes behind a multiple of [`Loan::align`].
    pub before: usize,
    /// A power of two.
    pub align: usize,
    /// Bytes of a run, at most, if it has more than one packet.
    pub run_max: usize,
    /// It is for packets to the owner of that chunk at that address that are built without an ICRC.
    pub to: (IpAddr, QpnChunk),
}

impl Loan {
    /// Where a run begins that follows so many bytes.
    #[inline]
    pub(crate) fn start(&self, used: usize) -> usize {
        ((used + self.align - 1) & !(self.align - 1)) + self.before
    }
}
