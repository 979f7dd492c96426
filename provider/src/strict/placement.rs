//! Places the bytes of RDMA WRITEs in an order that is legal and unkind.
//!
//! Until something tells the program at the target (a completion, or on the wire a READ
//! or an atomic of the same QP), nothing is promised about the order in which a WRITE's
//! bytes, or those of several WRITEs, appear. Adapters and buses use that freedom now and
//! then. Here it is used always: the last word appears first, short WRITEs overtake long
//! ones, the rest comes later. The sender gets no acknowledgement before the rest is there.

use urxe_core::Time;
use urxe_core::memory::{Memory, MemoryFault};
use urxe_core::mix::SplitMix64;
use urxe_core::mr::MrSpan;
use urxe_wire::Qpn;

use super::ranges::Range;
use crate::mem::UserMemory;

/// Bytes that appear before all others: a program that polls on the last byte or word
/// sees it at once.
const LAST: usize = 8;

/// How long the rest is held back, at least; at most twice as long. Long for a program that
/// looks at the rest as soon as it sees the end, short for the sender's timeout.
const HOLD_NS: u64 = 1_000_000;

/// However long more bytes keep coming, the first ones appear after this time.
const HOLD_MAX_NS: u64 = 5_000_000;

/// More is not held back.
const BYTES_MAX: usize = 4 << 20;

#[derive(Debug)]
struct Held {
    qpn: Qpn,
    span: MrSpan,
    bytes: Vec<u8>,
    since: Time,
}

/// Bytes of WRITEs that have arrived and are not placed. No two overlap.
///
/// A span is a permission for the length of one call; these live longer. So everything
/// is placed before the engine changes anything: see `Engine::enter`.
#[derive(Debug, Default)]
pub(super) struct HeldWrites {
    held: Vec<Held>,
    bytes: usize,
    due: Option<Time>,
}

impl HeldWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// When the rest is to be placed.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Places the bytes of one packet: some now, some later.
    pub(super) fn write(
        &mut self,
        qpn: Qpn,
        span: MrSpan,
        bytes: &[u8],
        now: Time,
        random: &mut SplitMix64,
    ) -> Result<(), MemoryFault> {
        self.place_overlapping(Range::of(span));
        if bytes.len() <= LAST {
            return UserMemory.copy_in(span, bytes);
        }
        if self.bytes + bytes.len() > BYTES_MAX {
            self.place_all(random);
        }
        let rest = bytes.len() - LAST;
        UserMemory.copy_in(span.part(rest, LAST), &bytes[rest..])?;
        self.held.push(Held {
            qpn,
            span: span.part(0, rest),
            bytes: bytes[..rest].to_vec(),
            since: now,
        });
        self.bytes += rest;
        let last = self.held[0].since + HOLD_MAX_NS;
        let due = now + HOLD_NS + random.below(HOLD_NS);
        self.due = Some(due.min(last));
        Ok(())
    }

    /// These bytes are about to be read or written.
    pub(super) fn place_overlapping(&mut self, range: Range) {
        self.place_where(|held| Range::of(held.span).overlaps(range));
    }

    /// The program is told about the WRITEs of a QP.
    pub(super) fn place_of(&mut self, qpn: Qpn) {
        self.place_where(|held| held.qpn == qpn);
    }

    /// Places everything, in no order.
    pub(super) fn place_all(&mut self, random: &mut SplitMix64) {
        while !self.held.is_empty() {
            let next = random.below(self.held.len() as u64) as usize;
            let held = self.held.swap_remove(next);
            place(&held);
        }
        (self.bytes, self.due) = (0, None);
    }

    fn place_where(&mut self, is_meant: impl Fn(&Held) -> bool) {
        self.held.retain(|held| {
            let stays = !is_meant(held);
            if !stays {
                place(held);
            }
            stays
        });
        self.bytes = self.held.iter().map(|held| held.bytes.len()).sum();
        if self.held.is_empty() {
            self.due = None;
        }
    }
}

fn place(held: &Held) {
    // The peer was told nothing yet, but no packet is left to refuse: as on a bus that
    // reports an error late. The memory was reachable a millisecond ago.
    let _ = UserMemory.copy_in(held.span, &held.bytes);
}
