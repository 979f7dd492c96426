//! Which QP sends next.
//!
//! What QPs owe their peers in small packets (ACKs, NAKs, results of atomics) goes first. Data goes round by deficit: in a
//! round each QP that has some may send a quantum of bytes, and what it sent beyond its right is taken off the next
//! time. A QP that had nothing left to send after its last turn is asked before the round goes on, as long as it has
//! not used up what the round gives it: so a short message does not wait for all that others have to send, and no QP
//! gets more than its share.

use std::collections::VecDeque;

use crate::table::QpIndex;
use crate::time::Time;
use crate::transmit::TxBatch;

/// What part of a quantum a QP may send in one go ahead of the round.
const AHEAD: i32 = 8;
/// What part of its turn a QP must have left to go on in the next batch.
const WORTH: i32 = 8;
/// A quantum is worth so many packets at most: small ones cost time, not bytes. Enough for a full train.
const PACKETS: i32 = 128;

/// A QP's part of the rounds, and in which lists it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// Bytes that it may still send in its round; negative if it sent too many.
    deficit: i32,
    /// The round that this is about.
    round: u32,
    /// Bytes of data sent since it was made, modulo 2^32.
    sent: u32,
    /// Turns after which nothing more could be sent, modulo 2^16.
    stops: u16,
    /// True if it is in the list of QPs with data.
    is_listed: bool,
    /// True if it is in the list of QPs that owe answers.
    pub(crate) owes: bool,
    /// True if it had more data after its last turn, but was not allowed to send it.
    is_backlogged: bool,
}

/// What a QP had of its host's time to send, to compare QPs ([`Shard::sending`](crate::Shard::sending)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// True if it has data, and only other QPs keep it from leaving.
    pub could_send: bool,
    /// Bytes of data that it sent, modulo 2^32.
    pub sent: u32,
    /// How often it had nothing more to send, or was not allowed to, modulo 2^16. As long as it stays the same, a QP
    /// that could send could do so all the time.
    pub stops: u16,
}

impl Share {
    /// True if it has a turn, or did when it was looked at last.
    #[inline]
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// True if it had more data after its last turn, but was not allowed to send it.
    #[inline]
    pub(crate) fn is_backlogged(&self) -> bool {
        self.is_backlogged
    }

    pub(crate) fn sending(&self, could_send: bool) -> Sending {
        Sending {
            could_send,
            sent: self.sent,
            stops: self.stops,
        }
    }
}

/// How much a QP may send in one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes and packets of the batch at its start.
    bytes: usize,
    packets: usize,
    /// Requests that were carried out without a packet.
    pub(crate) local: usize,
    limit: i32,
    packet_min: i32,
}

impl Budget {
    /// What was used up: bytes, but a small packet counts for more, as its cost is time.
    #[inline]
    fn used(&self, batch: &TxBatch) -> i32 {
        let bytes = self.sent(batch);
        let packets = batch.packets().saturating_sub(self.packets) + self.local;
        // A batch is far below 2^31 bytes.
        (bytes as i32).max(packets as i32 * self.packet_min)
    }

    /// Bytes sent.
    #[inline]
    pub(crate) fn sent(&self, batch: &TxBatch) -> usize {
        batch.used().saturating_sub(self.bytes)
    }

    /// Packets of so many bytes that may still be sent, the one that uses it up among them.
    #[inline]
    pub(crate) fn packets_left(&self, len: usize, batch: &TxBatch) -> u32 {
        let left = self.limit.saturating_sub(self.used(batch)).max(0) as u32;
        left.div_ceil((len as u32).max(self.packet_min as u32))
    }

    /// True if the turn is over.
    #[inline]
    pub(crate) fn is_used_up(&self, batch: &TxBatch) -> bool {
        self.used(batch) >= self.limit
    }
}

/// How a QP's turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Nothing more to send.
    Idle,
    /// There is more, after others had their turn.
    Again,
    /// The batch is full.
    BatchFull,
    /// Congestion control lets nothing more leave before this time.
    Paced(Time),
}

/// How a turn at sending data ended, for the lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TurnEnd {
    /// There is nothing more.
    Empty,
    /// There is more, but it may not be sent now.
    Blocked,
    /// There is more.
    More,
    /// There is more, but no room in the batch.
    BatchFull,
}

/// The lists of QPs that have something to send. Neither is ever searched but when a QP goes.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// QPs that owe answers.
    pub(crate) owing: VecDeque<QpIndex>,
    /// One of them may owe more than an ACK that can be held back.
    pub(crate) owes_more: bool,
    /// QPs with data that are asked ahead of the round.
    ahead: VecDeque<QpIndex>,
    /// The others: the rest of the round, then those of the next one.
    round: VecDeque<QpIndex>,
    /// How many of `round` belong to this one.
    left: usize,
    /// Its number.
    number: u32,
    quantum: i32,
}

impl Turns {
    /// Makes room for so many QPs.
    pub(crate) fn reserve(&mut self, qps: usize) {
        for list in self.lists() {
            list.reserve(qps.saturating_sub(list.len()));
        }
    }

    /// Gives memory up that so many QPs do not need.
    pub(crate) fn shrink(&mut self, qps: usize) {
        for list in self.lists() {
            list.shrink_to(qps);
        }
    }

    fn lists(&mut self) -> [&mut VecDeque<QpIndex>; 3] {
        [&mut self.owing, &mut self.ahead, &mut self.round]
    }

    /// A QP is gone.
    pub(crate) fn forget(&mut self, index: QpIndex, share: &Share) {
        if share.owes {
            self.owing.retain(|&i| i != index);
        }
        if share.is_listed {
            self.ahead.retain(|&i| i != index);
            let at = self.round.iter().position(|&i| i == index);
            if let Some(at) = at {
                self.round.remove(at);
                self.left -= usize::from(at < self.left);
            }
        }
    }

    /// True if a QP has data.
    #[inline]
    pub(crate) fn has_data(&self) -> bool {
        !self.ahead.is_empty() || !self.round.is_empty()
    }

    /// True if a QP has anything.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_data() || !self.owing.is_empty()
    }

    /// The QP that owes an answer and has data, if no other QP has anything to send.
    #[inline]
    pub(crate) fn only(&self) -> Option<QpIndex> {
        let index = match (self.ahead.len(), self.round.len()) {
            (1, 0) => self.ahead.front(),
            (0, 1) => self.round.front(),
            _ => None,
        };
        index
            .copied()
            .filter(|_| self.owing.len() == 1 && self.owing.front() == index)
    }

    /// The only QP that owed an answer owes none any more.
    #[inline]
    pub(crate) fn settle_owing(&mut self, index: QpIndex, share: &mut Share) {
        if self.owing.front() == Some(&index) {
            share.owes = false;
            self.owing.pop_front();
        }
    }

    /// A QP owes an answer; `more` if that is not just an ACK which can be held back.
    #[inline]
    pub(crate) fn add_owing(&mut self, index: QpIndex, share: &mut Share, more: bool) {
        self.owes_more |= more;
        if !share.owes {
            share.owes = true;
            self.owing.push_back(index);
        }
    }

    /// A QP has data.
    #[inline]
    pub(crate) fn add(&mut self, index: QpIndex, share: &mut Share) {
        if share.is_listed {
            return;
        }
        share.is_listed = true;
        let is_new = share.round != self.number;
        if !share.is_backlogged && (is_new || share.deficit > 0) {
            self.ahead.push_back(index);
        } else {
            self.round.push_back(index);
        }
    }

    /// From here on a quantum is what such a batch holds: so the packets of one QP stay together.
    #[inline]
    pub(crate) fn begin(&mut self, batch: &TxBatch) {
        self.quantum = batch.capacity().min(1 << 24) as i32;
    }

    /// The QP that is next.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<QpIndex> {
        if let Some(&index) = self.ahead.front() {
            return Some(index);
        }
        if self.left == 0 {
            self.number = self.number.wrapping_add(1);
            self.left = self.round.len();
        }
        self.round.front().copied()
    }

    /// What the QP that [`Turns::peek`] named may send.
    #[inline]
    pub(crate) fn budget(&self, share: &mut Share, batch: &TxBatch) -> Budget {
        if share.round != self.number {
            // What others left it no room for in the last round it may have now.
            let kept = if share.is_backlogged {
                share.deficit.min(self.quantum / AHEAD)
            } else {
                share.deficit.min(0)
            };
            share.deficit = self.quantum + kept;
            share.round = self.number;
        }
        let limit = if self.ahead.is_empty() {
            share.deficit
        } else {
            share.deficit.min(self.quantum / AHEAD)
        };
        Budget {
            bytes: batch.used(),
            packets: batch.packets(),
            local: 0,
            limit,
            packet_min: (self.quantum / PACKETS).max(1),
        }
    }

    /// The QP that [`Turns::peek`] named had its turn.
    #[inline]
    pub(crate) fn end(
        &mut self,
        share: &mut Share,
        budget: &Budget,
        end: TurnEnd,
        batch: &TxBatch,
    ) {
        let bytes = budget.sent(batch);
        share.deficit -= budget.used(batch);
        share.sent = share.sent.wrapping_add(bytes as u32);
        share.stops = match end {
            TurnEnd::Empty | TurnEnd::Blocked => share.stops.wrapping_add(1),
            TurnEnd::More | TurnEnd::BatchFull => share.stops,
        };
        share.is_backlogged = matches!(end, TurnEnd::More | TurnEnd::BatchFull | TurnEnd::Blocked);
        // It goes on in the next batch, unless what is left would make a train too short.
        let left = budget.limit - budget.used(batch);
        if end == TurnEnd::BatchFull && left > budget.limit / WORTH {
            return;
        }
        let is_ahead = !self.ahead.is_empty();
        let list = if is_ahead {
            &mut self.ahead
        } else {
            self.left -= 1;
            &mut self.round
        };
        let index = list.pop_front().expect("peek() named it");
        share.is_listed = matches!(end, TurnEnd::More | TurnEnd::BatchFull);
        if share.is_listed {
            self.round.push_back(index);
        }
    }
}
