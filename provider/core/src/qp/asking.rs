//! How the messages of a QP ask for acknowledgements: which may leave without ([`silence.rs`](super::silence)) depends on those before them.

use crate::time::Time;

/// Silent messages in a row at most. One ACK for so many is not seen in their time any more.
pub(super) const SILENT_MAX: u32 = 64;
/// A message asks if none before it did for so long: where messages are far between, an ACK with each answer costs little, and the one that
/// the peer sends by itself would be a packet of its own.
const SILENT_NS: u64 = 200_000;
/// Messages that ask, one after the other, until the peer sends its ACKs as the ends of pairs (`pair.rs`): their receiver has to have the system
/// join packets, which costs those that come alone, and should not for a message that asks now and then.
pub(crate) const PAIRS_FROM: u8 = 32;
/// A long message asks at least every so many packets, so that the window moves on within it.
pub(crate) const ACK_EVERY: u32 = 16;

/// In the place of a count: all messages ask from now on.
const ALL_ASK: u8 = u8::MAX;

/// How the messages of a QP that were sent last asked. (In few bytes: QPs may be many.)
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asking {
    /// When one asked last, in [`ticks`].
    asked_at: u16,
    /// Silent messages since.
    silent: u8,
    /// Messages that asked since the last silent one, up to [`PAIRS_FROM`]; or [`ALL_ASK`].
    in_a_row: u8,
}

/// A tick is 33 us. Two seconds make a round of them: a message after just that time may be silent, though it should ask.
const TICK_BITS: u32 = 15;

#[inline]
fn ticks(now: Time) -> u16 {
    (now.0 >> TICK_BITS) as u16
}

impl Asking {
    /// A request that is carried out here waits until all before it are acknowledged: from now on nothing else may keep it waiting.
    pub(crate) fn all_ask(&mut self) {
        self.in_a_row = ALL_ASK;
    }

    /// A packet leaves that asks.
    #[inline]
    pub(crate) fn on_asked(&mut self, now: Time) {
        self.asked_at = ticks(now);
        self.silent = 0;
    }

    /// So many messages leave that ask, or a silent one. Returns true if their ACKs may be ends of pairs.
    #[inline]
    pub(crate) fn on_messages(&mut self, count: u32, ask: bool) -> bool {
        if ask {
            return add_asked(&mut self.in_a_row, count);
        }
        mark!(Silent);
        self.silent = self.silent.saturating_add(1);
        self.in_a_row = 0;
        false
    }

    /// Silent messages since one asked.
    #[inline]
    pub(super) fn silent(&self) -> u32 {
        self.silent.into()
    }

    /// The next message may be silent, as far as is known here.
    #[inline]
    pub(super) fn may_be_silent(&self, now: Time) -> bool {
        let since = ticks(now).wrapping_sub(self.asked_at);
        u64::from(since) << TICK_BITS < SILENT_NS && self.in_a_row != ALL_ASK
    }
}

/// So many messages asked, after `in_a_row` that did. Returns true if the ACK of the last one may be the end of a pair. Both sides count alike.
#[inline]
pub(crate) fn add_asked(in_a_row: &mut u8, count: u32) -> bool {
    let sum = u32::from(*in_a_row).saturating_add(count);
    *in_a_row = sum.min(PAIRS_FROM.into()).max((*in_a_row).into()) as u8;
    *in_a_row >= PAIRS_FROM
}
