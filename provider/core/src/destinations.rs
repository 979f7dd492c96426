//! What all QPs of a shard may have under way to one destination.
//!
//! A receiver has one socket buffer, whatever number of QPs send to it: what they have under way together must fit, and
//! each message waits for all that is before it. So QPs that have something to send to one address divide what
//! there is: each may have its part under way while there is room, and always a packet, so that none waits for another
//! (with a peer that may be gone). While small messages go beside streams, the whole is smaller: then the small ones wait less.

use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::config::ShardConfig;
use crate::qp::Qp;
use crate::shard::Shard;
use crate::table::QpIndex;
use crate::time::Time;
use crate::transmit::TxBatch;
use crate::turns::{Budget, TurnEnd};

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

    /// Tells a QP what its part is; whether it needs one may have changed.
    #[inline]
    pub(crate) fn settle(&mut self, qp: &mut Qp, config: &ShardConfig) {
        let Some(place) = qp.way.place else {
            return;
        };
        let destination = &mut self.list[place as usize];
        let is_busy = !qp.req.sq.is_empty();
        if is_busy != qp.way.is_busy {
            qp.way.is_busy = is_busy;
            match is_busy {
                true => destination.busy += 1,
                false => destination.busy -= 1,
            }
            destination.divide(config);
        }
        let packets = if is_busy { qp.req.outstanding() } else { 0 };
        let bytes = packets.saturating_mul(qp.link.mtu);
        let allowed = destination.allow(qp.way.under_way, bytes);
        qp.way.under_way = bytes;
        if qp.way.allowed != Some(allowed) {
            qp.way.allowed = Some(allowed);
            qp.req.window.set_part(allowed / qp.link.mtu);
        }
    }

    /// A QP has a turn.
    #[inline]
    pub(crate) fn before_turn(&mut self, qp: &mut Qp, now: Time, config: &ShardConfig) {
        if let Some(place) = qp.way.place {
            let destination = &mut self.list[place as usize];
            if destination.beside_until.is_some_and(|until| until <= now) {
                destination.beside_until = None;
                destination.divide(config);
            }
            self.settle(qp, config);
        }
    }

    /// It had a turn.
    #[inline]
    pub(crate) fn on_turn(
        &mut self,
        qp: &mut Qp,
        budget: &Budget,
        end: TurnEnd,
        batch: &TxBatch,
        now: Time,
        config: &ShardConfig,
    ) {
        let Some(place) = qp.way.place else {
            return;
        };
        self.settle(qp, config);
        let destination = &mut self.list[place as usize];
        let sent = budget.sent(batch);
        let is_all = end == TurnEnd::Empty;
        if !is_all && sent >= SMALL {
            destination.streams_until = now + COUNTS_NS;
        }
        let is_beside = is_all && 0 < sent && sent < SMALL && now < destination.streams_until;
        if is_beside && destination.beside_until.replace(now + COUNTS_NS).is_none() {
            destination.divide(config);
        }
    }
}

impl Shard {
    /// A QP's attributes changed: it may have a destination now, or another one.
    pub(crate) fn find_destination(&mut self, index: QpIndex) {
        let config = &self.common.config;
        let Some(qp) = self.qps.at_mut(index) else {
            return;
        };
        self.destinations.leave(&mut qp.way, config);
        let has_window = !qp.is_unreliable() && qp.state().takes_responses();
        if has_window && config.destination_bytes < u32::MAX {
            qp.way.place = Some(self.destinations.join(qp.link.dest.remote, config));
        }
    }
}
