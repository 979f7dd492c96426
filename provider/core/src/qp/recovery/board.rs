//! What a requester knows of each packet under way, and which of them it takes for lost.
//!
//! Packets have numbers, which go on where PSNs wrap. No time stamp travels and none is kept for a packet: what was sent
//! once was sent in order of its number, and what was sent again was sent before the packet that was the next new one
//! then ([`Order`]). A packet is overtaken when one that was sent later is here. It is lost when it is still missing after a
//! patience, which is none until the peer counts duplicates. Each packet is looked at once for each time that it was sent.

use std::collections::VecDeque;

use crate::time::Time;

/// The place of a packet in the order of sending: the number of the next new packet when it left, and among
/// packets sent again before that one, which of them it was.
type Order = (u64, u32);

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Nothing of it needs to be sent again: the peer has it, or its answer is here.
    is_here: bool,
    /// The peer has the request and answers it later.
    is_held: bool,
    /// It waits to be sent again.
    is_queued: bool,
    /// An answer with this PSN must come.
    is_answered: bool,
    /// Its answer was asked for again, with one before it that is missing, before the first of its answers was due.
    is_covered: bool,
    /// It was the first of those that were sent again as one.
    is_first: bool,
    /// The [`Resent`] that sent it last; 0 if it was sent once.
    resent: u32,
}

/// Packets sent again as one: several are the answers that one READ request asks for.
#[derive(Clone, Copy, Debug)]
struct Resent {
    first: u64,
    count: u32,
    next_new: u64,
    at: Time,
}

/// What is known of the packets under way.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Number of the first place: the oldest packet that is not acknowledged.
    una: u64,
    /// From there on, as far as something is known.
    places: VecDeque<Place>,
    here: u32,
    queued: u32,
    lost: VecDeque<u64>,
    /// Of those that wait, some that wait for no window, in the order in which they leave.
    urgent: VecDeque<u64>,
    /// Sent again, in order; the last has the number `resends`.
    resent: VecDeque<Resent>,
    resends: u32,
    /// Overtaken, with what sent them last and since when.
    doubtful: VecDeque<(u64, u32, Time)>,
    /// The last in order of sending that is here.
    reached: Order,
    /// Packets sent once were looked at up to this number.
    scanned: u64,
    /// How long an overtaken packet is waited for.
    patience: u64,
    /// The shortest round trip; 0 if none was measured.
    rtt_min: u64,
    duplicates: u16,
}

impl Board {
    /// Number of the oldest packet that is not acknowledged.
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// Packets that are not under way: here, or waiting to be sent again.
    #[inline]
    pub(crate) fn elsewhere(&self) -> u32 {
        self.here + self.queued
    }

    /// Something waits to be sent again.
    #[inline]
    pub(crate) fn has_lost(&self) -> bool {
        self.queued > 0
    }

    /// The oldest packet waits to be sent again.
    pub(crate) fn is_oldest_queued(&self) -> bool {
        self.places.front().is_some_and(|place| place.is_queued)
    }

    /// When [`Board::find_lost`] is to be called even if nothing arrives.
    pub(crate) fn doubt_until(&self) -> Option<Time> {
        let first = self.doubtful.front();
        first.map(|&(_, _, since)| since + self.patience)
    }

    pub(crate) fn set_rtt_min(&mut self, rtt_min: u64) {
        self.rtt_min = rtt_min;
    }

    fn place(&mut self, number: u64) -> &mut Place {
        let at = (number - self.una) as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, Place::default());
        }
        &mut self.places[at]
    }

    fn known(&self, number: u64) -> Place {
        let at = number.checked_sub(self.una);
        let place = at.and_then(|at| self.places.get(at as usize));
        place.copied().unwrap_or_default()
    }

    /// These packets are a READ's or an atomic's: answers with their PSNs must come.
    pub(crate) fn expect_answers(&mut self, first: u64, count: u32) {
        for number in first..first + u64::from(count) {
            self.place(number).is_answered = true;
        }
    }

    pub(crate) fn is_here(&self, number: u64) -> bool {
        self.known(number).is_here
    }

    pub(crate) fn expects_answer(&self, number: u64) -> bool {
        self.known(number).is_answered
    }

    /// Everything before `number` is acknowledged. Returns how many packets that is news of.
    pub(crate) fn advance(&mut self, number: u64, now: Time) -> u32 {
        let mut news = 0;
        while self.una < number {
            let place = self.places.pop_front().unwrap_or_default();
            self.here -= u32::from(place.is_here);
            self.queued -= u32::from(place.is_queued);
            news += u32::from(!place.is_here);
            if !place.is_here {
                self.reach(self.una, place.resent, now);
            }
            self.una += 1;
        }
        self.scanned = self.scanned.max(self.una);
        while self
            .resent
            .front()
            .is_some_and(|r| r.first + u64::from(r.count) <= self.una)
        {
            self.resent.pop_front();
        }
        news
    }

    /// Nothing is under way: nothing is remembered but how patient to be.
    pub(crate) fn rest(&mut self) {
        *self = Board {
            una: self.una,
            resends: self.resends,
            reached: self.reached,
            scanned: self.una,
            patience: self.patience,
            rtt_min: self.rtt_min,
            duplicates: self.duplicates,
            ..Board::default()
        };
    }

    /// The packet arrived, or its answer did. False if that was known.
    pub(crate) fn arrived(&mut self, number: u64, now: Time) -> bool {
        if number < self.una || self.known(number).is_here {
            return false;
        }
        let place = self.place(number);
        let was_queued = core::mem::take(&mut place.is_queued);
        (place.is_here, place.is_held) = (true, false);
        let resent = place.resent;
        self.queued -= u32::from(was_queued);
        self.here += 1;
        self.reach(number, resent, now);
        true
    }

    /// The peer has the request, and answers it when it has what is before.
    pub(crate) fn held(&mut self, number: u64, now: Time) {
        let known = self.known(number);
        if number < self.una || known.is_here || known.is_held {
            return;
        }
        let place = self.place(number);
        let was_queued = core::mem::take(&mut place.is_queued);
        place.is_held = true;
        let resent = place.resent;
        self.queued -= u32::from(was_queued);
        self.reach(number, resent, now);
    }

    /// The peer answered it, but the answer is not here.
    pub(crate) fn answer_missing(&mut self, number: u64, now: Time) {
        let known = self.known(number);
        if number < self.una || known.is_here || known.is_queued {
            return;
        }
        let place = self.place(number);
        place.is_held = false;
        if !core::mem::take(&mut place.is_covered) {
            self.doubtful.push_back((number, known.resent, now));
        }
    }

    /// The peer will answer these twice: they are asked for again with one that is missing, and it has not answered them yet.
    pub(crate) fn cover(&mut self, from: u64, end: u64) {
        mark!(AnswersCovered);
        for number in from..end {
            self.place(number).is_covered = true;
        }
    }

    /// The peer misses this one, and has something later.
    pub(crate) fn missing(&mut self, number: u64, now: Time) {
        let known = self.known(number);
        // If it was sent again, this may be old news.
        if number >= self.una && !known.is_here && !known.is_queued && known.resent == 0 {
            self.doubtful.push_back((number, 0, now));
        }
    }

    /// As `missing`, of a packet that is to leave at once. False if it may be old news.
    pub(crate) fn missing_urgently(&mut self, number: u64) -> bool {
        let is_news = self.known(number).resent == 0;
        if is_news {
            self.urge(number);
        }
        is_news
    }

    fn reach(&mut self, number: u64, resent: u32, now: Time) {
        let order = if resent == 0 {
            (number + 1, 0)
        } else {
            let back = self.resends - resent;
            let at = self.resent.len().checked_sub(1 + back as usize);
            let Some(again) = at.map(|at| self.resent[at]) else {
                return;
            };
            // Sooner than any answer comes: it is the earlier one that arrived. Without a measure it may be.
            if self.rtt_min == 0 || now.since_ns(again.at) < self.rtt_min {
                return;
            }
            (again.next_new, resent)
        };
        self.reached = self.reached.max(order);
    }

    /// How far beyond the oldest packet something is known, in order of sending.
    pub(crate) fn reached(&self) -> u32 {
        self.reached.0.saturating_sub(self.una) as u32
    }

    /// Looks through what was overtaken. Returns how many packets are lost that were not known to be.
    pub(crate) fn find_lost(&mut self, end: u64, now: Time) -> u32 {
        let (reached, _) = self.reached;
        for number in self.scanned..reached.min(end) {
            let known = self.known(number);
            if !known.is_here && !known.is_held && !known.is_queued && known.resent == 0 {
                self.doubtful.push_back((number, 0, now));
            }
        }
        self.scanned = self.scanned.max(reached.min(end));
        self.find_resent(|_| true, now);
        self.end_doubt(now)
    }

    /// The same for a peer that does not say what is here: what it said that it misses is lost, and answers are that did not come. Of what else
    /// was overtaken nothing is known.
    pub(crate) fn find_unanswered(&mut self, now: Time) -> u32 {
        self.find_resent(|place| place.is_answered, now);
        self.end_doubt(now)
    }

    /// Has sent again what was doubtful for long enough. Returns how many packets those are.
    fn end_doubt(&mut self, now: Time) -> u32 {
        let before = self.queued;
        while let Some(&(number, resent, since)) = self.doubtful.front() {
            if now.since_ns(since) < self.patience {
                break;
            }
            self.doubtful.pop_front();
            let known = self.known(number);
            if number >= self.una && !known.is_held && known.resent == resent {
                self.queue(number);
            }
        }
        self.queued - before
    }

    fn find_resent(&mut self, is_known: fn(Place) -> bool, now: Time) {
        while let Some(&again) = self.resent.front() {
            let which = self.resends - (self.resent.len() as u32 - 1);
            if (again.next_new, which) >= self.reached {
                break;
            }
            self.resent.pop_front();
            for number in again.first..again.first + u64::from(again.count) {
                let known = self.known(number);
                let is_last = number >= self.una && known.resent == which;
                let is_missing = !known.is_here && !known.is_held && !known.is_queued;
                if is_last && is_missing && is_known(known) {
                    self.doubtful.push_back((number, which, now));
                }
            }
        }
    }

    /// Has the packet sent again, if it is not here.
    pub(crate) fn queue(&mut self, number: u64) {
        let known = self.known(number);
        if number >= self.una && !known.is_here && !known.is_queued {
            self.place(number).is_queued = true;
            self.queued += 1;
            self.lost.push_back(number);
        }
    }

    /// Nothing was heard for long: the oldest packet is sent again, whatever the peer said of it, and the newest.
    pub(crate) fn probe(&mut self, end: u64) {
        if self.una == end {
            return;
        }
        let una = self.una;
        let place = self.place(una);
        if core::mem::take(&mut place.is_here) {
            self.here -= 1;
        }
        self.urge(una);
        self.urge(end - 1);
    }

    /// Has the packet sent again before all others, and whatever the window: the answer tells what is missing.
    pub(crate) fn urge(&mut self, number: u64) {
        // What left already gives its place to what is urged now: else it would leave before that when it is urged again.
        self.next_urgent();
        self.queue(number);
        if number >= self.una && self.known(number).is_queued && !self.urgent.contains(&number) {
            self.urgent.push_back(number);
        }
    }

    fn next_urgent(&mut self) -> Option<u64> {
        while let Some(&number) = self.urgent.front() {
            if self.is_waiting(number) {
                return Some(number);
            }
            self.urgent.pop_front();
        }
        None
    }

    /// Such a packet waits.
    pub(crate) fn has_urgent(&self) -> bool {
        self.urgent.iter().any(|&number| self.is_waiting(number))
    }

    fn is_waiting(&self, number: u64) -> bool {
        number >= self.una && self.known(number).is_queued
    }

    /// The packet is not sent again after all.
    pub(crate) fn give_up(&mut self, number: u64) {
        let place = self.place(number);
        if core::mem::take(&mut place.is_queued) {
            self.queued -= 1;
        }
    }

    /// The next packet to send again.
    pub(crate) fn next_lost(&mut self) -> Option<u64> {
        let urgent = self.next_urgent();
        if urgent.is_some() {
            return urgent;
        }
        while let Some(&number) = self.lost.front() {
            if self.is_waiting(number) {
                return Some(number);
            }
            self.lost.pop_front();
        }
        None
    }

    /// Packets from `number` on, at most so many, that are to be sent again like this one.
    pub(crate) fn run_of_lost(&self, number: u64, max: u32) -> u32 {
        let run = (0..max).take_while(|&n| self.known(number + u64::from(n)).is_queued);
        (run.count() as u32).max(1)
    }

    /// Packets from `number` on, at most so many, up to the last that is to be sent again.
    pub(crate) fn span_of_lost(&self, number: u64, max: u32) -> u32 {
        let last = (0..max).rfind(|&n| self.known(number + u64::from(n)).is_queued);
        last.map_or(1, |last| last + 1)
    }

    /// How far before `number`, at most so far, the first packet is that is not here.
    pub(crate) fn missing_before(&self, number: u64, max: u32) -> u32 {
        let max = u64::from(max).min(number - self.una);
        let mut back = (1..=max).rev();
        let missing = back.find(|back| !self.known(number - back).is_here);
        missing.unwrap_or(0) as u32
    }

    /// The packet was not sent again.
    pub(crate) fn was_sent_once(&self, number: u64) -> bool {
        self.known(number).resent == 0
    }

    /// What was sent again last with this packet began with it.
    pub(crate) fn was_asked_from(&self, number: u64) -> bool {
        self.known(number).is_first
    }

    /// Packets were sent again as one, before the new packet `next_new`.
    pub(crate) fn on_sent_again(&mut self, first: u64, count: u32, next_new: u64, now: Time) {
        self.resends += 1;
        let resends = self.resends;
        for number in first..first + u64::from(count) {
            let place = self.place(number);
            let was_queued = core::mem::take(&mut place.is_queued);
            place.is_held = false;
            place.resent = resends;
            place.is_first = number == first;
            self.queued -= u32::from(was_queued);
        }
        self.resent.push_back(Resent {
            first,
            count,
            next_new,
            at: now,
        });
    }

    /// The peer counts so many duplicates: what was taken for lost came after all, so more patience is better.
    pub(crate) fn on_duplicates(&mut self, duplicates: u16, rtt: u64) {
        let more = duplicates.wrapping_sub(self.duplicates);
        if (1..1 << 15).contains(&more) {
            mark!(SpuriousSeen);
            self.duplicates = duplicates;
            self.patience = (2 * self.patience).clamp(rtt / 16, (rtt / 2).max(rtt / 16));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);

    /// Resends as far as there is something to, each as one packet. Returns which.
    fn send(board: &mut Board, next_new: u64, now: Time) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some(number) = board.next_lost() {
            board.on_sent_again(number, 1, next_new, now);
            sent.push(number);
        }
        sent
    }

    fn arrive(board: &mut Board, numbers: &[u64], end: u64, now: Time) -> bool {
        for &number in numbers {
            board.arrived(number, now);
        }
        board.find_lost(end, now) > 0
    }

    #[test]
    fn what_was_overtaken_is_lost_once() {
        let mut board = Board::default();
        assert!(arrive(&mut board, &[2, 4], 10, NOW));
        assert_eq!(board.elsewhere(), 2 + 3);
        assert_eq!(send(&mut board, 10, NOW), [0, 1, 3]);
        assert_eq!(board.elsewhere(), 2);
        assert!(!arrive(&mut board, &[2, 4], 10, NOW), "that was known");
        assert!(arrive(&mut board, &[7], 10, NOW));
        assert_eq!(send(&mut board, 10, NOW), [5, 6]);
        assert_eq!(
            board.advance(8, NOW),
            5,
            "three of eight were known to be here"
        );
        assert_eq!((board.una(), board.elsewhere()), (8, 0));
    }

    #[test]
    fn a_lost_repetition_is_found_by_what_was_sent_after_it() {
        let mut board = Board::default();
        board.set_rtt_min(100);
        arrive(&mut board, &[1], 10, NOW);
        assert_eq!(send(&mut board, 10, NOW), [0]);
        let later = NOW + 1000;
        assert!(!arrive(&mut board, &[2, 9], 20, later) || send(&mut board, 20, later) != [0]);
        assert!(arrive(&mut board, &[10], 20, later), "10 was sent after it");
        assert!(send(&mut board, 20, later).contains(&0));
    }

    /// Of two packets sent again the second arrives: the first is lost once more.
    #[test]
    fn repetitions_have_an_order_among_themselves() {
        let mut board = Board::default();
        board.set_rtt_min(100);
        arrive(&mut board, &[2], 3, NOW);
        assert_eq!(send(&mut board, 3, NOW), [0, 1]);
        assert!(
            !arrive(&mut board, &[1], 3, NOW + 50),
            "it was the first copy that came"
        );
        let mut board = Board::default();
        board.set_rtt_min(100);
        arrive(&mut board, &[2], 3, NOW);
        assert_eq!(send(&mut board, 3, NOW), [0, 1]);
        assert!(arrive(&mut board, &[1], 3, NOW + 100));
        assert_eq!(send(&mut board, 3, NOW), [0]);
    }

    /// The packet that tells what is missing next leaves behind the one that is missing now, also when it left before.
    #[test]
    fn what_is_urged_again_leaves_in_the_order_of_urging() {
        let mut board = Board::default();
        board.probe(10);
        let first = board.next_lost();
        board.on_sent_again(first.expect("the oldest"), 1, 10, NOW);
        let second = board.next_lost();
        board.on_sent_again(second.expect("the newest"), 1, 10, NOW);
        assert_eq!((first, second), (Some(0), Some(9)));
        board.advance(1, NOW);
        assert!(board.missing_urgently(1));
        board.urge(9);
        assert_eq!(send(&mut board, 10, NOW), [1, 9]);
    }

    #[test]
    fn duplicates_make_patient() {
        let mut board = Board::default();
        board.on_duplicates(3, 16_000);
        arrive(&mut board, &[1], 10, NOW);
        assert_eq!(board.next_lost(), None);
        assert_eq!(board.doubt_until(), Some(NOW + 1000));
        assert!(!arrive(&mut board, &[0], 10, NOW + 500), "it was only late");
        assert!(board.find_lost(10, NOW + 1000) == 0 && board.doubt_until().is_none());
        for duplicates in 4..20 {
            board.on_duplicates(duplicates, 16_000);
        }
        // Half a round trip, and no more.
        arrive(&mut board, &[4], 10, NOW);
        assert_eq!(board.doubt_until(), Some(NOW + 8000));
        assert_eq!(board.find_lost(10, NOW + 8000), 2);
        assert_eq!(send(&mut board, 10, NOW), [2, 3]);
        board.on_duplicates(2, 16_000);
        assert_eq!(board.duplicates, 19, "an old count is none");
    }

    #[test]
    fn a_request_that_the_peer_holds_is_not_lost_and_its_answer_may_be() {
        let mut board = Board::default();
        board.expect_answers(1, 2);
        board.held(1, NOW);
        board.held(2, NOW);
        assert!(arrive(&mut board, &[3], 10, NOW));
        assert_eq!(send(&mut board, 10, NOW), [0]);
        // It has executed them, and said so after its answers.
        board.answer_missing(1, NOW);
        board.answer_missing(2, NOW);
        assert_eq!(board.find_lost(10, NOW), 2);
        assert_eq!(board.next_lost(), Some(1));
        assert_eq!(board.run_of_lost(1, 8), 2);
        board.on_sent_again(1, 2, 10, NOW);
        assert_eq!((board.next_lost(), board.has_lost()), (None, false));
    }

    /// Whatever a peer claims, the oldest packet can be sent again, and nothing is counted twice.
    #[test]
    fn claims_do_not_stop_the_oldest_packet() {
        let mut board = Board::default();
        for number in [0, 0, 5, 5, 9, 1, 1] {
            board.arrived(number, NOW);
            board.held(number, NOW);
        }
        board.missing(0, NOW);
        board.answer_missing(5, NOW);
        assert_eq!(board.elsewhere(), 4);
        board.probe(10);
        assert_eq!(send(&mut board, 10, NOW), [0]);
        board.give_up(3);
        board.queue(3);
        board.queue(3);
        board.give_up(3);
        assert_eq!((board.next_lost(), board.elsewhere()), (None, 3));
        board.advance(10, NOW);
        assert_eq!(board.elsewhere(), 0);
        board.rest();
        board.probe(10);
        assert_eq!(board.next_lost(), None, "nothing is under way");
    }

    /// Any sequence of events leaves counts that fit the places.
    #[test]
    fn counts_agree_with_places() {
        for seed in 0..2000u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut below = |n: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % n
            };
            let (mut board, mut end, mut now) = (Board::default(), 0, NOW);
            for _ in 0..200 {
                let number = board.una() + below(12);
                now = now + below(50);
                match below(9) {
                    0 => {
                        end += below(8);
                        0
                    }
                    1 => board.advance(board.una() + below(4).min(end - board.una()), now),
                    2 if number < end => u32::from(board.arrived(number, now)),
                    3 if number < end => {
                        board.held(number, now);
                        0
                    }
                    4 if number < end => {
                        board.answer_missing(number, now);
                        0
                    }
                    5 => {
                        board.on_duplicates(below(4) as u16, 40);
                        board.set_rtt_min(below(60));
                        0
                    }
                    6 => {
                        board.probe(end);
                        0
                    }
                    7 => board.find_lost(end, now),
                    _ => {
                        if let Some(number) = board.next_lost() {
                            assert!(number >= board.una() && number < end, "seed {seed}");
                            let count = board.run_of_lost(number, (end - number) as u32);
                            board.on_sent_again(number, count, end, now);
                        }
                        0
                    }
                };
                let here = board.places.iter().filter(|place| place.is_here).count();
                let queued = board.places.iter().filter(|place| place.is_queued).count();
                let counts = (board.here as usize, board.queued as usize);
                assert_eq!(counts, (here, queued), "seed {seed}");
                assert!(
                    board.una() + board.places.len() as u64 <= end.max(board.una()),
                    "seed {seed}"
                );
            }
        }
    }
}
