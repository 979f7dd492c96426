//! What all QPs of a shard may have under way to one destination.
//!
//! A receiver has one socket buffer, whatever number of QPs send to it: what they have under way together must fit, and
//! each message waits for all that is before it. So QPs that have something to send to one address divide what
//! there is: each may have its part under way while there is room, and always a packet, so that none waits for another
//! (with a peer that may be gone). While small messages go beside streams, the whole is smaller: then the small ones wait less.

use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::config::ShardConfig;
use crate::time::Time;

/// How long a small message, or a stream, counts after it was sent: longer than a round trip, shorter than a program
/// would notice.
const COUNTS_NS: u64 = 1_000_000;
/// Fewer bytes than this in a turn are a small message, or some. A full packet of any useful MTU is more.
const SMALL: usize = 512;

/// A QP's place among those that send to its destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    /// Its destination, from the moment that it may send.
    place: Option<u32>,
    /// It has requests that are not complete.
    is_busy: bool,
    /// Bytes that it was told it may have under way.
    allowed: Option<u32>,
    /// Bytes that it had when it was last looked at.
    under_way: u32,
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
    /// Bytes that they have.
    under_way: u64,
    /// A stream goes there, until this time.
    streams_until: Time,
    /// Small messages go beside it, until this time.
    beside_until: Option<Time>,
}

impl Destination {
    fn divide(&mut self, config: &ShardConfig) {
        self.whole = match self.beside_until {
            None => config.destination_bytes,
            Some(_) => config.destination_bytes_beside,
        };
        // Of a QP that is alone nothing changes, however often it has something to send.
        self.part = match self.busy {
            0 | 1 => self.whole,
            busy => self.whole / busy,
        };
    }

    /// A QP has so many bytes under way, and had `before`. Returns how many it may have.
    #[inline]
    fn allow(&mut self, before: u32, bytes: u32) -> u32 {
        self.under_way = self.under_way - u64::from(before) + u64::from(bytes);
        let room = u64::from(self.whole).saturating_sub(self.under_way);
        // No more than the whole, which is of 32 bits.
        (u64::from(bytes) + room).min(self.part.into()) as u32
    }
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
        let place = match self.places.get(&addr) {
            Some(&place) => place,
            None => {
                let new = Destination {
                    addr,
                    qps: 0,
                    busy: 0,
                    whole: config.destination_bytes,
                    part: config.destination_bytes,
                    under_way: 0,
                    streams_until: Time::ZERO,
                    beside_until: None,
                };
                let place = match self.free.pop() {
                    Some(place) => {
                        self.list[place as usize] = new;
                        place
                    }
                    None => {
                        self.list.push(new);
                        // There are at most as many as QPs.
                        (self.list.len() - 1) as u32
                    }
                };
                self.places.insert(addr, place);
                place
            }
        };
        self.list[place as usize].qps += 1;
        place
    }

    /// A QP goes, or sends elsewhere from now on.
    pub(crate) fn leave(&mut self, way: &mut Way, config: &ShardConfig) {
        let way = core::mem::take(way);
        let Some(place) = way.place else {
            return;
        };
        let destination = &mut self.list[place as usize];
        destination.qps -= 1;
        destination.busy -= u32::from(way.is_busy);
        destination.under_way -= u64::from(way.under_way);
        destination.divide(config);
        if destination.qps == 0 {
            self.places.remove(&destination.addr);
            self.free.push(place);
        }
    }

    /// What a QP with such a load may have under way, in bytes, if that is news.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        way: &mut Way,
        is_busy: bool,
        under_way: u32,
        config: &ShardConfig,
    ) -> Option<u32> {
        let destination = &mut self.list[way.place? as usize];
        if is_busy != way.is_busy {
            way.is_busy = is_busy;
            match is_busy {
                true => destination.busy += 1,
                false => destination.busy -= 1,
            }
            destination.divide(config);
        }
        let allowed = destination.allow(way.under_way, under_way);
        way.under_way = under_way;
        (way.allowed.replace(allowed) != Some(allowed)).then_some(allowed)
    }

    /// A QP has a turn.
    #[inline]
    pub(crate) fn before_turn(&mut self, way: Way, now: Time, config: &ShardConfig) {
        if let Some(place) = way.place {
            let destination = &mut self.list[place as usize];
            if destination.beside_until.is_some_and(|until| until <= now) {
                destination.beside_until = None;
                destination.divide(config);
            }
        }
    }

    /// It has sent so many bytes, and `is_all` if it had no more.
    #[inline]
    pub(crate) fn after_turn(
        &mut self,
        way: Way,
        sent: usize,
        is_all: bool,
        now: Time,
        config: &ShardConfig,
    ) {
        let Some(place) = way.place else {
            return;
        };
        let destination = &mut self.list[place as usize];
        if !is_all && sent >= SMALL {
            destination.streams_until = now + COUNTS_NS;
        }
        let is_beside = is_all && 0 < sent && sent < SMALL && now < destination.streams_until;
        if is_beside && destination.beside_until.replace(now + COUNTS_NS).is_none() {
            destination.divide(config);
        }
    }

    /// A QP has got such a destination, or none.
    pub(crate) fn find(&mut self, way: &mut Way, addr: Option<IpAddr>, config: &ShardConfig) {
        self.leave(way, config);
        if config.destination_bytes < u32::MAX {
            way.place = addr.map(|addr| self.join(addr, config));
        }
    }
}
