//! Responder resources: the READs and atomics that were accepted, kept so that
//! they can be answered in PSN order, and answered again when the answer was lost.

use std::collections::VecDeque;

use urxe_wire::{Psn, Rkey};

use crate::mr::PdId;

/// An accepted READ or atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) first_psn: Psn,
    pub(crate) packets: u32,
    pub(crate) kind: ResourceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    /// Read again from memory each time that it is answered.
    Read {
        va: u64,
        rkey: Rkey,
        len: u32,
        /// The domain that it was checked in: a later request may be for another (XRC).
        pd: PdId,
    },
    /// Executed once; only the answer is repeated.
    Atomic { original: u64 },
    /// An ATOMIC WRITE or FLUSH: executed once, and answered without data.
    Placed,
}

/// Where the next response packet comes from. (A resource is not copied for each packet: the copy has to wait for all stores of the last
/// packet's data.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextResponse<'a> {
    pub(crate) resource: &'a Resource,
    /// PSN of the packet.
    pub(crate) psn: Psn,
    /// PSN at which the request asked the answer to begin.
    pub(crate) begin: Psn,
}

/// The ring of resources. As many as `max_dest_rd_atomic` are remembered.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    depth: u8,
    /// Empty until the first request: most QPs never see one, and their memory counts.
    ring: Box<[Resource]>,
    /// Number that the next resource gets.
    tail: u64,
    /// Number of the resource that is being answered; equal to `tail` if none is.
    unsent: u64,
    /// Number of the first resource that was never answered to the end. What is being
    /// answered before it is a repetition.
    fresh: u64,
    send_psn: Psn,
    begin_psn: Psn,
    /// Parts that are answered again before anything else, while there are any.
    parts: Option<Box<Parts>>,
}

/// One pointer while there are none: every QP has a place for them.
#[derive(Debug, Default)]
struct Parts(VecDeque<Part>);

/// A part of an answer that was lost.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Ends where the part does.
    resource: Resource,
    psn: Psn,
    begin: Psn,
}

/// Parts that wait; more must be asked for again.
const PARTS_MAX: usize = 256;

/// All places hold requests with answers that have not been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplayFull;

impl Replay {
    pub(crate) fn new(depth: u8) -> Self {
        Replay {
            depth,
            ..Replay::default()
        }
    }

    /// Changes how many are remembered; the newest stay, and what is not answered yet.
    pub(crate) fn resize(&mut self, depth: u8) {
        self.depth = depth;
        if self.ring.is_empty() {
            return;
        }
        let kept = self.tail.min(self.ring.len() as u64);
        let owed = self.tail - self.unsent;
        let len = u64::from(depth).max(owed);
        let nothing = Resource {
            first_psn: Psn::ZERO,
            packets: 0,
            kind: ResourceKind::Atomic { original: 0 },
        };
        let mut ring = vec![nothing; len as usize];
        for number in self.tail - kept.min(len)..self.tail {
            ring[(number % len) as usize] = *self.at(number);
        }
        self.ring = ring.into();
    }

    /// True if one more request can be accepted. Repetitions take no place: a peer that
    /// asks for something new has what it had asked for again.
    pub(crate) fn has_room(&self) -> bool {
        self.tail - self.fresh < u64::from(self.depth)
    }

    /// Accepts a request; its answer is due.
    pub(crate) fn push(&mut self, resource: Resource) -> Result<(), ReplayFull> {
        if !self.has_room() {
            return Err(ReplayFull);
        }
        if self.ring.is_empty() {
            self.ring = vec![resource; self.depth.into()].into();
        }
        let len = self.ring.len() as u64;
        if self.tail - self.unsent >= len {
            mark!(RepeatOvertaken);
            self.answer_from(self.unsent + 1);
        }
        if !self.is_whole_due() {
            self.send_psn = resource.first_psn;
            self.begin_psn = resource.first_psn;
        }
        self.ring[(self.tail % len) as usize] = resource;
        self.tail += 1;
        Ok(())
    }

    /// True if answers are due.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.unsent != self.tail || self.parts.is_some()
    }

    /// True if an answer is due that is no part of an earlier one.
    fn is_whole_due(&self) -> bool {
        self.unsent != self.tail
    }

    /// True if the answer that is due carries no data.
    #[inline]
    pub(crate) fn owes_result(&self) -> bool {
        self.peek()
            .is_some_and(|next| !matches!(next.resource.kind, ResourceKind::Read { .. }))
    }

    /// The response packet that is due.
    #[inline]
    pub(crate) fn peek(&self) -> Option<NextResponse<'_>> {
        if let Some(part) = self.parts.as_ref().and_then(|parts| parts.0.front()) {
            return Some(NextResponse {
                resource: &part.resource,
                psn: part.psn,
                begin: part.begin,
            });
        }
        self.is_whole_due().then(|| NextResponse {
            resource: self.at(self.unsent),
            psn: self.send_psn,
            begin: self.begin_psn,
        })
    }

    /// The packet that [`Replay::peek`] named was sent.
    pub(crate) fn advance(&mut self) {
        if self.parts.is_some() {
            return self.advance_part();
        }
        let resource = self.at(self.unsent);
        let psn = self.send_psn.next();
        let is_last = psn.distance_from(resource.first_psn) >= resource.packets;
        self.send_psn = psn;
        if is_last {
            self.answer_from(self.unsent + 1);
            self.fresh = self.fresh.max(self.unsent);
        }
    }

    /// So many packets from the one on that [`Replay::peek`] named were sent, not the last one of the answer and no part of an earlier one.
    #[inline]
    pub(crate) fn advance_by(&mut self, packets: u32) {
        self.send_psn = self.send_psn.add(packets);
    }

    /// True if parts are answered again.
    #[inline]
    pub(crate) fn has_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// True if what is due was answered before.
    pub(crate) fn is_repeat(&self) -> bool {
        self.parts.is_some() || self.unsent < self.fresh
    }

    /// Drops the repetitions that are due.
    pub(crate) fn skip_repeats(&mut self) {
        self.parts = None;
        if self.unsent < self.fresh {
            self.answer_from(self.fresh);
        }
    }

    fn answer_from(&mut self, number: u64) {
        self.unsent = number;
        if self.is_whole_due() {
            self.send_psn = self.at(number).first_psn;
            self.begin_psn = self.send_psn;
        }
    }

    /// Finds the remembered resource that a PSN falls in.
    pub(crate) fn find(&self, psn: Psn) -> Option<(u64, Resource)> {
        let oldest = self.tail.saturating_sub(self.ring.len() as u64);
        (oldest..self.tail)
            .rev()
            .map(|n| (n, *self.at(n)))
            .find(|(_, r)| psn.distance_from(r.first_psn) < r.packets)
    }

    /// The PSN before the newest resources, of which the last ends at `psn`: before all
    /// that follow each other without a gap.
    pub(crate) fn before_run_to(&self, mut psn: Psn) -> Psn {
        let oldest = self.tail.saturating_sub(self.ring.len() as u64);
        for number in (oldest..self.tail).rev() {
            let resource = self.at(number);
            if psn.distance_from(resource.first_psn) + 1 != resource.packets {
                break;
            }
            psn = resource.first_psn.prev();
        }
        psn
    }

    /// Answers resource `number` again from `psn` on, and all later ones after it;
    /// nothing changes if that is still to come anyway.
    pub(crate) fn rewind(&mut self, number: u64, psn: Psn) {
        let ahead = number > self.unsent
            || (number == self.unsent && self.is_whole_due() && !psn.is_before(self.send_psn));
        mark!(RepeatOfPendingAnswer if ahead);
        if !ahead {
            self.unsent = number;
            self.send_psn = psn;
            self.begin_psn = psn;
        }
    }

    /// The PSNs are the rest of what the resource asked for.
    pub(crate) fn is_rest(&self, number: u64, psn: Psn, packets: u32) -> bool {
        let resource = self.at(number);
        psn.distance_from(resource.first_psn) + packets == resource.packets
    }

    /// Answers so many packets of resource `number` again, and nothing behind them; nothing changes if they are still to come anyway. The last
    /// packet leaves once the whole answer did, and not before in a part: the peer asks for something new when it has that packet.
    pub(crate) fn repeat_part(&mut self, number: u64, psn: Psn, packets: u32) {
        let is_next = number == self.unsent && self.is_whole_due();
        let is_to_come = number > self.unsent || is_next && !psn.is_before(self.send_psn);
        if is_to_come {
            return;
        }
        if is_next && self.is_rest(number, psn, packets) {
            return self.rewind(number, psn);
        }
        let at = psn.distance_from(self.at(number).first_psn);
        let resource = Resource {
            packets: at + packets,
            ..*self.at(number)
        };
        self.add_part(resource, psn);
    }

    /// Answers this READ, of which nothing is remembered, and nothing behind it.
    pub(crate) fn repeat(&mut self, resource: Resource) {
        self.add_part(resource, resource.first_psn);
    }

    fn add_part(&mut self, resource: Resource, psn: Psn) {
        let parts = &mut self.parts.get_or_insert_default().0;
        let waits = parts.iter().any(|part| part.psn == psn);
        if !waits && parts.len() < PARTS_MAX {
            mark!(PartRepeated);
            let begin = psn;
            parts.push_back(Part {
                resource,
                psn,
                begin,
            });
        }
    }

    fn advance_part(&mut self) {
        let Some(Parts(parts)) = self.parts.as_deref_mut() else {
            return;
        };
        if let Some(part) = parts.front_mut() {
            part.psn = part.psn.next();
            if part.psn.distance_from(part.resource.first_psn) >= part.resource.packets {
                parts.pop_front();
            }
        }
        if parts.is_empty() {
            self.parts = None;
        }
    }

    /// Drops every answer that is due.
    pub(crate) fn cancel(&mut self) {
        (self.unsent, self.fresh) = (self.tail, self.tail);
        self.parts = None;
    }

    #[inline]
    fn at(&self, number: u64) -> &Resource {
        &self.ring[(number % self.ring.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(first: u32, packets: u32) -> Resource {
        Resource {
            first_psn: Psn::new(first),
            packets,
            kind: ResourceKind::Read {
                va: 0,
                rkey: Rkey(1),
                len: packets * 256,
                pd: PdId(1),
            },
        }
    }

    fn drain(r: &mut Replay) -> Vec<u32> {
        let mut psns = Vec::new();
        while let Some(next) = r.peek() {
            psns.push(next.psn.get());
            r.advance();
        }
        psns
    }

    #[test]
    fn answers_come_in_psn_order_and_again_on_demand() {
        let mut r = Replay::new(2);
        r.push(read(0xff_fffe, 3)).expect("room");
        r.push(read(1, 1)).expect("room");
        assert_eq!(r.push(read(2, 1)), Err(ReplayFull));
        assert_eq!(drain(&mut r), [0xff_fffe, 0xff_ffff, 0, 1]);
        let (n, found) = r.find(Psn::new(0xff_ffff)).expect("kept");
        assert_eq!(found.packets, 3);
        r.rewind(n, Psn::new(0xff_ffff));
        assert_eq!(r.peek().expect("due").begin, Psn::new(0xff_ffff));
        assert_eq!(drain(&mut r), [0xff_ffff, 0, 1]);
    }

    #[test]
    fn asking_again_for_what_is_still_to_come_changes_nothing() {
        let mut r = Replay::new(4);
        r.push(read(10, 4)).expect("room");
        r.push(read(14, 2)).expect("room");
        r.advance();
        r.rewind(0, Psn::new(12));
        r.rewind(1, Psn::new(15));
        assert_eq!(drain(&mut r), [11, 12, 13, 14, 15]);
    }

    #[test]
    fn the_last_packet_of_an_answer_leaves_after_all_others() {
        let mut r = Replay::new(1);
        r.push(read(10, 4)).expect("room");
        r.advance();
        r.advance();
        r.repeat_part(0, Psn::new(11), 2);
        r.repeat_part(0, Psn::new(12), 2);
        r.repeat_part(0, Psn::new(10), 4);
        assert_eq!(drain(&mut r), [11, 12, 10, 11, 12, 13]);
        r.push(read(14, 1))
            .expect("the answer has left: there is room");
    }

    #[test]
    fn another_depth_keeps_the_newest_and_what_is_owed() {
        let mut r = Replay::new(3);
        for first in 0..5 {
            r.push(read(first, 1)).expect("room");
            drain(&mut r);
        }
        r.resize(2);
        assert!(r.find(Psn::new(2)).is_none());
        assert!(r.find(Psn::new(3)).is_some() && r.find(Psn::new(4)).is_some());
        r.resize(4);
        assert!(r.find(Psn::new(2)).is_none() && r.find(Psn::new(3)).is_some());
        for first in 5..9 {
            r.push(read(first, 1)).expect("four places");
        }
        assert_eq!(r.push(read(9, 1)), Err(ReplayFull));
        // Four answers are due: they are not dropped, but no more is accepted.
        r.resize(1);
        assert!(!r.has_room());
        assert_eq!(drain(&mut r), [5, 6, 7, 8]);
        r.resize(0);
        assert!(!r.has_room() && r.find(Psn::new(8)).is_none());
        r.resize(1);
        r.push(read(9, 1)).expect("one place");
        assert_eq!(drain(&mut r), [9]);
    }

    #[test]
    fn a_repetition_takes_no_place_from_a_new_request() {
        let mut r = Replay::new(2);
        for first in 0..2 {
            r.push(read(first, 1)).expect("room");
        }
        drain(&mut r);
        r.rewind(0, Psn::new(0));
        assert!(r.is_repeat());
        r.push(read(2, 1)).expect("room: nothing new is due");
        r.push(read(3, 1)).expect("room for two");
        assert_eq!(r.push(read(4, 1)), Err(ReplayFull));
        assert_eq!(drain(&mut r), [2, 3], "the repetitions were overtaken");
        r.rewind(2, Psn::new(2));
        r.skip_repeats();
        assert!(!r.is_due());
    }

    #[test]
    fn old_resources_are_forgotten() {
        let mut r = Replay::new(1);
        r.push(read(5, 1)).expect("room");
        drain(&mut r);
        r.push(read(6, 1)).expect("room");
        assert!(r.find(Psn::new(5)).is_none());
        assert!(Replay::new(0).push(read(0, 1)).is_err());
    }
}
