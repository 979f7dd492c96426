//! What arrives at the other end, and how fast: a rate sample for each answer, in the manner of BBR's delivery rate
//! estimation (draft-cheng-iccrg-delivery-rate-estimation). A mark is made for packets that ask for an answer; the rate is what was
//! delivered between the time that the marked packet left and its answer.

use core::ops::Range;
use std::collections::VecDeque;

use crate::time::Time;

/// Marks that are kept at most. Beyond that there is a sample less.
const MARKS: usize = 256;
/// An acknowledgement of more packets than this tells of some that came long before.
const TOGETHER_MAX: u32 = 64;

/// The last answer to a marked packet: when both were, what had left with that packet, and what was delivered until the answer.
#[derive(Clone, Copy, Debug, Default)]
struct Answer {
    sent_at: Time,
    sent: u64,
    at: Time,
    delivered: u64,
}

/// How things stood when a packet left.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The packet's number in the connection.
    number: u64,
    sent_at: Time,
    /// Packets that had left, this one included.
    sent: u64,
    last: Answer,
    /// The program had no more to send.
    limited: bool,
    is_timed: bool,
}

/// A packet that leaves and asks for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Its number in the connection.
    pub(crate) number: u64,
    /// Packets that it stands for: of a READ, those of its response.
    pub(crate) packets: u32,
    /// Packets under way before it.
    pub(crate) under_way: u32,
    /// The program has no more to send.
    pub(crate) limited: bool,
    /// Its answer ends a round trip: it was not sent before, and is not the last of many.
    pub(crate) is_timed: bool,
}

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// Packets that it told of first.
    pub(crate) packets: u32,
    /// Of packets before this one, by number and in the order in which they left, something is known.
    pub(crate) reached: u64,
    /// Packets under way after it.
    pub(crate) under_way: u32,
    /// A round trip, if it ended one.
    pub(crate) rtt: Option<u64>,
}

/// What an answer tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Packets that arrived between the marked packet's departure and its answer, and the time for that: 0 if it says
    /// nothing.
    pub(super) packets: u64,
    pub(super) elapsed: u64,
    pub(super) rtt: Option<u64>,
    pub(super) limited: bool,
    /// What had been delivered when the marked packet left.
    pub(super) prior: u64,
}

/// Deliveries of one connection.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    marks: VecDeque<Mark>,
    /// Packets that left, those that were sent again among them.
    sent: u64,
    pub(super) delivered: u64,
    /// What was delivered when an acknowledgement told of many packets together.
    together: u64,
    last: Answer,
}

impl Delivery {
    pub(super) fn new() -> Delivery {
        Delivery {
            marks: VecDeque::with_capacity(MARKS),
            sent: 0,
            delivered: 0,
            together: 0,
            last: Answer::default(),
        }
    }

    /// After [`Delivery::on_asked`] for the same packet.
    pub(super) fn on_sent(&mut self, packets: u32) {
        self.sent += u64::from(packets);
    }

    pub(super) fn on_asked(&mut self, asked: Asked, now: Time) {
        if asked.under_way == 0 {
            self.last = Answer {
                sent_at: now,
                sent: self.sent,
                at: now,
                delivered: self.delivered,
            };
        }
        let is_next = self.marks.back().is_none_or(|m| m.number < asked.number);
        if self.marks.len() < MARKS && is_next {
            self.marks.push_back(Mark {
                number: asked.number,
                sent_at: now,
                sent: self.sent + u64::from(asked.packets),
                last: self.last,
                limited: asked.limited,
                is_timed: asked.is_timed,
            });
        }
    }

    /// All that is under way is sent again.
    pub(super) fn on_rewind(&mut self) {
        self.marks.clear();
    }

    /// These are sent again, or wait behind some that are: answers to them end no round trip.
    pub(super) fn on_sent_again(&mut self, numbers: Range<u64>) {
        let first = self.marks.partition_point(|m| m.number < numbers.start);
        let again = self.marks.range_mut(first..);
        for mark in again.take_while(|m| m.number < numbers.end) {
            mark.is_timed = false;
        }
    }

    /// `news` more packets have arrived, and in the order in which they left, something is known of those before `reached`.
    pub(super) fn on_delivered(&mut self, news: u32, reached: u64, now: Time) -> Option<Sample> {
        self.delivered += u64::from(news);
        if news > TOGETHER_MAX {
            self.together = self.delivered;
        }
        let mut last = None;
        while self.marks.front().is_some_and(|m| m.number < reached) {
            last = self.marks.pop_front();
        }
        let m = last?;
        self.last = Answer {
            sent_at: m.sent_at,
            sent: m.sent,
            at: now,
            delivered: self.delivered,
        };
        let sent_in = m.sent_at.since_ns(m.last.sent_at);
        let mut packets = self.delivered - m.last.delivered;
        if self.together > m.last.delivered {
            // A peer that keeps what is ahead of a gap tells of it all when the gap is filled. No more came in that time than had left.
            packets = packets.min(m.sent.saturating_sub(m.last.sent));
        }
        Some(Sample {
            packets,
            elapsed: now.since_ns(m.last.at).max(sent_in),
            rtt: m.is_timed.then(|| now.since_ns(m.sent_at).max(1)),
            limited: m.limited,
            prior: m.last.delivered,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(number: u64, under_way: u32) -> Asked {
        Asked {
            number,
            packets: 1,
            under_way,
            limited: false,
            is_timed: true,
        }
    }

    #[test]
    fn a_sample_is_what_arrived_in_a_round_trip() {
        let mut d = Delivery::new();
        // A packet each microsecond, answered 10 us later.
        for n in 0..100u64 {
            let under_way = n.min(10) as u32;
            d.on_asked(asked(n, under_way), Time(n * 1000));
            d.on_sent(1);
            if n >= 10 {
                let s = d
                    .on_delivered(1, n - 9, Time(n * 1000 + 1))
                    .expect("a mark");
                assert_eq!(s.rtt, Some(10_001));
                // From the last answer before the packet left to its own.
                if n >= 22 {
                    assert_eq!((s.packets, s.elapsed), (11, 11_000));
                }
            }
        }
    }

    #[test]
    fn what_was_sent_again_has_a_rate_and_no_round_trip() {
        let mut d = Delivery::new();
        d.on_sent(15);
        d.on_asked(asked(15, 1), Time(1));
        d.on_rewind();
        assert_eq!(d.on_delivered(4, 4, Time(5)), None);
        let again = Asked {
            is_timed: false,
            ..asked(15, 12)
        };
        d.on_asked(again, Time(10));
        let s = d.on_delivered(12, 16, Time(20)).expect("a mark");
        assert_eq!((s.packets, s.rtt, s.prior), (16, None, 0));
    }

    #[test]
    fn one_packet_that_is_sent_again_ends_no_round_trip() {
        let mut d = Delivery::new();
        for n in 0..4 {
            d.on_asked(asked(n, n as u32), Time(n));
            d.on_sent(1);
        }
        d.on_sent_again(1..3);
        let rtt = |d: &mut Delivery, reached| {
            let sample = d.on_delivered(1, reached, Time(100 + reached));
            sample.expect("a mark").rtt
        };
        assert_eq!(rtt(&mut d, 1), Some(101));
        assert_eq!(rtt(&mut d, 2), None);
        assert_eq!(rtt(&mut d, 3), None);
        assert_eq!(rtt(&mut d, 4), Some(101));
    }

    #[test]
    fn what_was_kept_behind_a_gap_did_not_come_at_once() {
        let mut d = Delivery::new();
        d.on_sent(100);
        d.on_rewind();
        // Two gaps. The packet that fills the first leaves, then the one for the other, behind which all the rest is here.
        d.on_asked(asked(10, 90), Time(100_000));
        d.on_sent(1);
        d.on_delivered(5, 11, Time(110_000));
        d.on_asked(asked(20, 85), Time(111_000));
        d.on_sent(1);
        let s = d.on_delivered(85, 100, Time(121_000)).expect("a mark");
        assert_eq!((s.packets, s.elapsed), (1, 11_000));
    }

    #[test]
    fn no_more_marks_are_kept_than_there_is_room_for() {
        let mut d = Delivery::new();
        for n in 0..10_000 {
            d.on_asked(asked(n, 1), Time(n));
        }
        assert_eq!(d.marks.len(), MARKS);
        assert!(d.marks.capacity() < 2 * MARKS);
    }
}
