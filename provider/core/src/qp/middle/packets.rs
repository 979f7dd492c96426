//! Packets of a train, and their bytes: copied out of the network's reach, or not.

use core::sync::atomic::{AtomicU32, Ordering};

use urxe_wire::{BTH_LEN, Bth, Opcode, Qpn};

use crate::memory::{Memory, MemoryFault};
use crate::mr::MrSpan;

/// Bytes of packets.
#[derive(Clone, Copy, Debug)]
pub enum RxBytes<'a> {
    /// Nothing changes them.
    Own(&'a [u8]),
    /// Their sender may change them at any time, and none is read twice.
    Shared(&'a [AtomicU32]),
}

impl<'a> RxBytes<'a> {
    /// How many.
    #[inline]
    pub(super) fn len(self) -> usize {
        match self {
            RxBytes::Own(bytes) => bytes.len(),
            RxBytes::Shared(words) => 4 * words.len(),
        }
    }

    /// A part of them. What is shared begins and ends with a word.
    #[inline]
    pub(super) fn part(self, at: usize, len: usize) -> RxBytes<'a> {
        match self {
            RxBytes::Own(bytes) => RxBytes::Own(&bytes[at..at + len]),
            RxBytes::Shared(words) => RxBytes::Shared(&words[at / 4..(at + len) / 4]),
        }
    }

    /// The BTH that they begin with.
    #[inline]
    pub(super) fn bth(self) -> Option<[u8; BTH_LEN]> {
        match self {
            RxBytes::Own(bytes) => bytes.first_chunk().copied(),
            RxBytes::Shared(words) => {
                let words = words.first_chunk::<{ BTH_LEN / 4 }>()?;
                let mut bth = [0; BTH_LEN];
                for (bytes, word) in bth.chunks_exact_mut(4).zip(words) {
                    bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
                }
                Some(bth)
            }
        }
    }

    /// Places them as [`Memory::copy_in`] does.
    #[inline]
    pub(super) fn copy_in(self, memory: &impl Memory, span: MrSpan) -> Result<(), MemoryFault> {
        match self {
            RxBytes::Own(bytes) => memory.copy_in(span, bytes),
            RxBytes::Shared(words) => memory.copy_words_in(span, words),
        }
    }

    /// Places them as [`Memory::place_write`] does.
    #[inline]
    pub(super) fn place_write(
        self,
        memory: &impl Memory,
        qpn: Qpn,
        span: MrSpan,
    ) -> Result<(), MemoryFault> {
        match self {
            RxBytes::Own(bytes) => memory.place_write(qpn, span, bytes),
            RxBytes::Shared(words) => memory.place_written_words(qpn, span, words),
        }
    }
}

/// The packets of a train that were not handled yet.
#[derive(Clone, Copy, Debug)]
pub struct MiddlePackets<'a> {
    /// Their bytes, from the first one's on.
    pub bytes: RxBytes<'a>,
    /// Bytes of each packet but the last, which may be shorter.
    pub size: usize,
    /// Bytes from one packet to the next.
    pub stride: usize,
    /// The place of the first one in its train.
    pub place: u16,
}

impl<'a> MiddlePackets<'a> {
    /// True if there is one that [`Shard::handle_middle`](crate::Shard::handle_middle) perhaps takes.
    #[inline]
    pub fn is_likely(&self) -> bool {
        const MIDDLES: [u8; 3] = [
            Opcode::RC_WRITE_MIDDLE.0,
            Opcode::RC_READ_RESPONSE_MIDDLE.0,
            Opcode::RC_SEND_MIDDLE.0,
        ];
        let opcode = match self.bytes {
            RxBytes::Own(bytes) => bytes.first().copied(),
            RxBytes::Shared(words) => {
                let first = words.first();
                first.map(|word| word.load(Ordering::Relaxed).to_ne_bytes()[0])
            }
        };
        opcode.is_some_and(|opcode| MIDDLES.contains(&opcode))
    }

    /// The QP that the first one is for.
    #[inline]
    pub(crate) fn dest_qp(&self) -> Option<Qpn> {
        self.bytes.bth().map(|bth| Bth::parse(&bth).dest_qp)
    }

    /// How many have the full size.
    #[inline]
    pub(super) fn full(&self) -> u32 {
        match self.bytes.len().checked_sub(self.size) {
            Some(more) => (more / self.stride) as u32 + 1,
            None => 0,
        }
    }

    /// One of them.
    #[inline]
    pub(super) fn packet(&self, at: u32) -> RxBytes<'a> {
        self.bytes.part(at as usize * self.stride, self.size)
    }
}
