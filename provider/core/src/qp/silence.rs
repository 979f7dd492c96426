//! Which messages ask for an acknowledgement.
//!
//! The last packet of a message does, so that its completion comes soon. But a message that makes no completion is not
//! waited for, and in a ping-pong of such messages each ACK costs as much as a packet: through memory half a round trip takes 0.49 us without them,
//! and 0.58 us with one beside each answer. So short messages that leave one by one to a neighbour on this host are *silent*, as far as nothing
//! needs their acknowledgement soon: the queue, the window and the credits have room for as many more, one asked a moment ago, and the program polls. The
//! neighbour acknowledges silent messages by itself when nothing came for a moment ([`ack.rs`](super::ack)); on a network, where packets
//! are lost, every message asks.

use crate::context::{Cx, Host};
use crate::qp::Link;
use crate::qp::asking::{ACK_EVERY, SILENT_MAX};
use crate::qp::requester::Requester;
use crate::qp::window::SHORT_BYTES;
use crate::work::{SendFlags, SendWqe};

impl Requester {
    /// Packet `at` of a SEND or WRITE asks for an acknowledgement.
    #[inline]
    pub(crate) fn asks_for_ack<H: Host>(
        &self,
        link: &Link,
        wqe: &SendWqe,
        (at, is_last): (u32, bool),
        cx: &Cx<'_, '_, H>,
    ) -> bool {
        is_last && !self.is_silent(link, wqe, cx)
            || (at + 1).is_multiple_of(ACK_EVERY)
            || self.under_way() + 1 >= self.room(wqe)
            || self.probe.is_due()
            || self.selective.is_some() && self.next_psn.is_before(self.sent_end)
    }

    /// So many messages were built that ask, or do not.
    #[inline]
    pub(crate) fn note_asking<H: Host>(
        &mut self,
        messages: u32,
        ask: bool,
        link: &Link,
        cx: &mut Cx<'_, '_, H>,
    ) {
        if link.takes_pairs {
            cx.common.expects_pairs |= self.retry.asking.on_messages(messages, ask);
        }
    }

    /// After so long without an answer to what left last something is wrong.
    #[inline]
    pub(crate) fn patience(&self) -> Option<u64> {
        /// What is silent is acknowledged after a moment, by a thread that looks once in a millisecond or two.
        const LATER_NS: u64 = 3_000_000;
        let later = if self.retry.asking.silent() == 0 {
            0
        } else {
            LATER_NS
        };
        self.rtt.patience().map(|ns| ns + later)
    }

    /// The message at the cursor, or the rest of it, may leave without asking.
    #[inline]
    fn is_silent<H: Host>(&self, link: &Link, wqe: &SendWqe, cx: &Cx<'_, '_, H>) -> bool {
        link.takes_pairs
            && !link.sq_sig_all
            && !wqe.flags.contains(SendFlags::SIGNALED)
            && wqe.length <= SHORT_BYTES
            && self.retry.asking.may_be_silent(cx.now())
            && cx.common.waits_until <= cx.now()
            && !cx.common.config.all_ask
            && self.has_room_for_silence(wqe)
    }

    fn has_room_for_silence(&self, wqe: &SendWqe) -> bool {
        // One behind others, or before them, is of a stream, and one that is sent again has to be known to arrive.
        let is_alone = self.cursor + 1 == self.sq.tail() && self.next_psn == self.sent_end;
        if !is_alone
            || !self.retry.is_patient()
            || self.selective.is_some()
            || self.congestion.is_some()
        {
            return false;
        }
        let credits = match wqe.opcode.takes_credit() {
            true => self.credit.allowed(),
            false => u32::MAX,
        };
        let places = self.sq.capacity() - self.sq.len();
        let window = self.room(wqe).saturating_sub(self.under_way());
        self.retry.asking.silent() < SILENT_MAX.min(credits).min(places).min(window)
    }
}
