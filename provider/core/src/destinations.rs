//! What all QPs of a shard may have under way to one destination.
//!
//! A receiver has one socket buffer, whatever number of QPs send to it: what they have under way together must fit, and
//! each message waits for all that is before it. So QPs that have something to send to one address divide what
//! there is: each may have its part under way while there is room. A part is a train at least. When there are more QPs than
//! trains, streams wait in a line for theirs, in which no peer that is gone holds up the others: it moves on when nothing
//! comes back for some time. While small messages go beside streams, the whole is smaller: then the small ones wait less.

use core::net::IpAddr;
use core::num::NonZeroU64;
use std::collections::{BTreeMap, VecDeque};

use crate::config::ShardConfig;
use crate::table::QpIndex;
use crate::time::{Due, Time};
use crate::turns::TurnEnd;

/// How long a small message, or a stream, counts after it was sent: longer than a round trip, shorter than a program
/// would notice. A stream that waits looks as often whether anything came back.
const COUNTS_NS: u64 = 1_000_000;
/// Fewer bytes than this in a turn are a small message, or some. A full packet of any useful MTU is more.
const SMALL: usize = 512;
/// Bytes that a stream may send when it has waited: some packets for segmentation offload, few enough that the next
/// stream's come soon.
const TRAIN: u32 = 12 << 10;

const _: () = assert!(TRAIN <= u16::MAX as u32);

/// A QP's place among those that send to its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Its destination, from the moment that it may send.
    place: Option<u32>,
    /// It has requests that are not complete.
    is_busy: bool,
    /// It waited, and so many bytes beside the room were promised to it for its next turn: a train, or none.
    promise: Option<u16>,
    /// Bytes that it was told it may have under way.
    allowed: u32,
    /// Bytes that it had when it was last looked at.
    under_way: u32,
    /// It is in the line of its destination.
    wait: Option<Wait>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// When it looks whether anything came back; never: in its next turn.
    until: Due,
    /// [`Destination::returned`] when it began to wait, or looked last, counted from 1.
    returned: NonZeroU64,
}

impl Default for Way {
    fn default() -> Way {
        Way {
            place: None,
            is_busy: false,
            promise: None,
            // What its window is limited to while it was told nothing.
            allowed: u32::MAX,
            under_way: 0,
            wait: None,
        }
    }
}

impl Way {
    /// Its destination.
    #[inline]
    pub(crate) fn place(&self) -> Option<u32> {
        self.place
    }

    /// Nothing is under way, and nothing was to be.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_busy && self.under_way == 0
    }

    /// When its QP wants a turn, whatever comes back.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.wait.and_then(|wait| wait.until.time())
    }

    /// Looks at the clock.
    pub(crate) fn expire(&mut self, now: Time) {
        if let Some(wait) = &mut self.wait {
            wait.until = wait.until.time().filter(|&until| now < until).into();
        }
    }
}

#[derive(Debug)]
struct Destination {
    addr: IpAddr,
    /// QPs that it is the destination of.
    qps: u32,
    /// Those of them that have requests which are not complete.
    busy: u32,
    /// Bytes that all of these may have under way, and each of them.
    whole: u32,
    part: u32,
    /// Bytes that they have, and that were promised to QPs which waited.
    under_way: u64,
    promised: u64,
    /// Bytes that were under way and are not any more, ever.
    returned: u64,
    /// Streams that wait for a train, the first of them longest.
    line: VecDeque<QpIndex>,
    /// A stream goes there, until this time.
    streams_until: Time,
    /// Small messages go beside it, until this time.
    beside_until: Option<Time>,
    /// The shortest round trip of any of these QPs, in nanoseconds: 0 if none is known. That of one alone may be a wait for the others.
    rtt_min: u64,
}

impl Destination {
    fn new(addr: IpAddr, config: &ShardConfig) -> Destination {
        Destination {
            addr,
            qps: 0,
            busy: 0,
            whole: config.destination_bytes,
            part: config.destination_bytes,
            under_way: 0,
            promised: 0,
            returned: 0,
            line: VecDeque::new(),
            streams_until: Time::ZERO,
            beside_until: None,
            rtt_min: 0,
        }
    }

    fn divide(&mut self, config: &ShardConfig) {
        self.whole = match self.beside_until {
            None => config.destination_bytes,
            Some(_) => config.destination_bytes_beside,
        };
        // Of a QP that is alone nothing changes, however often it has something to send.
        self.part = match self.busy {
            0 | 1 => self.whole,
            // No division where trains are all that fits: then each post and each completion of many QPs comes here.
            busy if u64::from(busy) * u64::from(TRAIN) >= self.whole.into() => {
                TRAIN.min(self.whole)
            }
            busy => self.whole / busy,
        };
    }

    /// A QP has requests that are not complete, or none.
    #[inline]
    fn note_load(&mut self, way: &mut Way, is_busy: bool, config: &ShardConfig) {
        if is_busy != way.is_busy {
            way.is_busy = is_busy;
            if is_busy {
                self.busy += 1;
            } else {
                self.busy -= 1;
            }
            self.divide(config);
        }
    }

    /// Bytes that may be under way beside those that are, and those that were promised.
    fn room(&self) -> u64 {
        u64::from(self.whole).saturating_sub(self.under_way + self.promised)
    }

    fn has_train(&self) -> bool {
        self.room() >= u64::from(TRAIN.min(self.whole))
    }

    /// A QP has so many bytes under way. Returns how many it may have.
    #[inline]
    fn allow(&mut self, way: &mut Way, bytes: u32) -> u32 {
        self.under_way = self.under_way - u64::from(way.under_way) + u64::from(bytes);
        self.returned += u64::from(way.under_way.saturating_sub(bytes));
        way.under_way = bytes;
        let free = match way.promise {
            Some(promised) => self.room() + u64::from(promised),
            None if self.line.is_empty() => self.room(),
            // What comes back is for those that wait.
            None => 0,
        };
        // No more than the part, which is of 32 bits.
        (u64::from(bytes) + free).min(self.part.into()) as u32
    }

    fn promise_train(&mut self, way: &mut Way) {
        way.promise = Some(TRAIN as u16);
        self.promised += u64::from(TRAIN);
    }

    fn end_promise(&mut self, way: &mut Way) {
        self.promised -= u64::from(way.promise.take().unwrap_or(0));
    }
}

/// The shorter one of two round trips, as far as they are known.
#[inline]
pub(crate) fn shorter(a: u64, b: u64) -> u64 {
    // 0 is the longest.
    a.wrapping_sub(1).min(b.wrapping_sub(1)).wrapping_add(1)
}

/// The destinations of all QPs.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    list: Vec<Destination>,
    /// Places in `list` without a QP.
    free: Vec<u32>,
    places: BTreeMap<IpAddr, u32>,
}

impl Destinations {
    fn join(&mut self, addr: IpAddr, config: &ShardConfig) -> u32 {
        let place = *self.places.entry(addr).or_insert_with(|| {
            // There are at most as many as QPs.
            let place = self.free.pop().unwrap_or(self.list.len() as u32);
            let new = Destination::new(addr, config);
            match self.list.get_mut(place as usize) {
                Some(old) => *old = new,
                None => self.list.push(new),
            }
            place
        });
        let destination = &mut self.list[place as usize];
        destination.qps += 1;
        // The line has a place for each: none is made for a packet.
        let (qps, line) = (destination.qps as usize, &mut destination.line);
        line.reserve(qps - line.len());
        place
    }

    /// A QP goes, or sends elsewhere from now on.
    pub(crate) fn leave(&mut self, index: QpIndex, way: &mut Way, config: &ShardConfig) {
        let mut way = core::mem::take(way);
        let Some(place) = way.place else {
            return;
        };
        let destination = &mut self.list[place as usize];
        destination.end_promise(&mut way);
        if way.wait.is_some() {
            destination.line.retain(|&waits| waits != index);
        }
        destination.qps -= 1;
        destination.busy -= u32::from(way.is_busy);
        destination.under_way -= u64::from(way.under_way);
        destination.divide(config);
        if destination.qps == 0 {
            destination.line = VecDeque::new();
            self.places.remove(&destination.addr);
            self.free.push(place);
        }
    }

    /// The shortest round trip to an address that QPs which share it have seen; 0 if there is none.
    pub(crate) fn rtt_min(&self, addr: &IpAddr) -> u64 {
        let place = self.places.get(addr);
        place.map_or(0, |&place| self.list[place as usize].rtt_min)
    }

    /// What a QP with such a load, and such a shortest round trip (0: none yet), may have under way, in bytes, if that is news.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        way: &mut Way,
        is_busy: bool,
        under_way: u32,
        rtt_min: u64,
        config: &ShardConfig,
    ) -> Option<u32> {
        let destination = &mut self.list[way.place? as usize];
        destination.rtt_min = shorter(destination.rtt_min, rtt_min);
        destination.note_load(way, is_busy, config);
        let allowed = destination.allow(way, under_way);
        (core::mem::replace(&mut way.allowed, allowed) != allowed).then_some(allowed)
    }

    /// A QP has something to send, and a turn soon, with which the rest is settled.
    #[inline]
    pub(crate) fn begin(&mut self, way: &mut Way, config: &ShardConfig) {
        if let Some(place) = way.place {
            self.list[place as usize].note_load(way, true, config);
        }
    }

    /// A QP has a turn. True if it must wait for one with a train: `is_stream` says that it had more to send after its
    /// last turn.
    #[inline]
    pub(crate) fn before_turn(
        &mut self,
        index: QpIndex,
        way: &mut Way,
        is_stream: bool,
        now: Time,
        config: &ShardConfig,
    ) -> bool {
        let Some(place) = way.place else {
            return false;
        };
        let destination = &mut self.list[place as usize];
        if destination.beside_until.is_some_and(|until| until <= now) {
            destination.beside_until = None;
            destination.divide(config);
        }
        is_stream
            && way.under_way == 0
            && way.promise.is_none()
            && Self::must_wait(destination, index, way, now)
    }

    fn must_wait(destination: &mut Destination, index: QpIndex, way: &mut Way, now: Time) -> bool {
        let returned = NonZeroU64::MIN.saturating_add(destination.returned);
        match way.wait {
            None if destination.line.is_empty() && destination.has_train() => return false,
            None => destination.line.push_back(index),
            Some(wait) if wait.until.is_set() => return true,
            Some(wait) if wait.returned != returned => {}
            Some(_) => {
                // What is under way may be for peers that are gone: it has a packet, and keeps its place.
                way.promise = Some(0);
                return false;
            }
        }
        way.wait = Some(Wait {
            until: Due::at(now + COUNTS_NS),
            returned,
        });
        true
    }

    /// The QP that has waited longest for a train which there is room for now.
    #[inline]
    pub(crate) fn next_in_line(&mut self, place: Option<u32>) -> Option<QpIndex> {
        let destination = &mut self.list[place? as usize];
        if destination.line.is_empty() || !destination.has_train() {
            return None;
        }
        destination.line.pop_front()
    }

    /// It was next in line: its next turn has a train, if it has anything to send.
    pub(crate) fn leave_line(&mut self, way: &mut Way, can_send: bool) {
        way.wait = None;
        if let Some(place) = way.place
            && can_send
        {
            self.list[place as usize].promise_train(way);
        }
    }

    /// It has sent so many bytes.
    #[inline]
    pub(crate) fn after_turn(
        &mut self,
        way: &mut Way,
        sent: usize,
        end: TurnEnd,
        now: Time,
        config: &ShardConfig,
    ) {
        let Some(place) = way.place else {
            return;
        };
        let destination = &mut self.list[place as usize];
        let is_all = end == TurnEnd::Empty;
        if is_all || end == TurnEnd::Blocked {
            destination.end_promise(way);
        }
        if !is_all && sent >= SMALL {
            destination.streams_until = now + COUNTS_NS;
        }
        let is_beside = is_all && 0 < sent && sent < SMALL && now < destination.streams_until;
        if is_beside && destination.beside_until.replace(now + COUNTS_NS).is_none() {
            destination.divide(config);
        }
    }

    /// A QP has got such a destination, or none.
    pub(crate) fn find(
        &mut self,
        index: QpIndex,
        way: &mut Way,
        addr: Option<IpAddr>,
        config: &ShardConfig,
    ) {
        self.leave(index, way, config);
        if config.destination_bytes < u32::MAX {
            way.place = addr.map(|addr| self.join(addr, config));
        }
    }
}
