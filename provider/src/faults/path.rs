//! The way from the core's batches to the socket, with faults on it.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use urxe_core::Time;
use urxe_core::congestion::frame_overhead;
use urxe_core::transmit::{TxBatch, TxDest};

use super::bottleneck::Bottleneck;
use super::fate::{Fate, Fates};
use super::spec::FaultSpec;
use crate::host::environment::seed_of_context;

/// A packet that is not overtaken, because none follows it, leaves after this time.
const OVERTAKE_NS: u64 = 1_000_000;
/// Bytes of packets that are held back, at most; more are lost, as in any queue.
const HELD_BYTES_MAX: usize = 64 << 20;

/// Counts of what happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FaultCounts {
    /// Packets that came to the way's beginning.
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
    pub(crate) corrupted: u64,
    pub(crate) delayed: u64,
    /// Lost because too many waited for the rate.
    pub(crate) queue_full: u64,
    /// Lost because too many were held back.
    pub(crate) overflowed: u64,
}

/// A packet that has not left.
#[derive(Debug)]
struct Held {
    dest: TxDest,
    bytes: Bytes,
    due: Time,
    /// Its place among all packets.
    number: u64,
    /// Later packets that have to leave before it.
    overtakers: u8,
}

/// A QP: its address, and its number as the BTH has it.
type Peer = (IpAddr, [u8; 3]);

/// Packets between the core and the socket.
#[derive(Debug)]
pub(crate) struct FaultyPath {
    pub(crate) spec: FaultSpec,
    fates: Fates,
    bottleneck: Option<Bottleneck>,
    /// In the order in which they leave.
    queue: VecDeque<Held>,
    /// Packets that others overtake.
    aside: Vec<Held>,
    held_bytes: usize,
    /// The last packet to a QP, if that did not arrive.
    lost_last: BTreeMap<Peer, (TxDest, Bytes)>,
    pub(crate) counts: FaultCounts,
}

/// Destinations with a lost last packet that is kept.
const LOST_LAST_MAX: usize = 4096;

impl FaultyPath {
    /// A way with these faults; `fresh` is a random number, for a specification without a
    /// seed.
    pub(crate) fn new(spec: FaultSpec, fresh: u64) -> FaultyPath {
        let seed = seed_of_context(spec.seed, fresh);
        FaultyPath::with_seed(spec, seed)
    }

    fn with_seed(spec: FaultSpec, seed: u64) -> FaultyPath {
        FaultyPath {
            spec,
            fates: Fates::new(spec, seed),
            bottleneck: Bottleneck::of(&spec),
            queue: VecDeque::new(),
            aside: Vec::new(),
            held_bytes: 0,
            lost_last: BTreeMap::new(),
            counts: FaultCounts::default(),
        }
    }

    /// Takes all packets out of the batch: none of them is in a run, so each can travel
    /// by itself as it is.
    pub(crate) fn take(&mut self, batch: &mut TxBatch, now: Time) {
        for run in batch.runs() {
            debug_assert_eq!(run.segments(), 1, "its ICRC is that of a packet alone");
            let fate = self.fates.next();
            self.enter(run.dest, &batch.bytes()[run.range.clone()], fate, now);
        }
        batch.clear();
    }

    fn enter(&mut self, dest: TxDest, bytes: &[u8], fate: Fate, now: Time) {
        self.counts.packets += 1;
        let due = self.depart(dest, bytes.len(), fate, now);
        let arrives = due.filter(|_| !fate.is_dropped);
        self.note_last(dest, bytes, arrives.is_none() || fate.corrupt.is_some());
        // Lost behind the rate, of which it takes its part as on a road.
        self.counts.dropped += u64::from(fate.is_dropped && due.is_some());
        let Some(due) = arrives else { return };
        let bytes = match fate.corrupt {
            None => Bytes::copy_from_slice(bytes),
            Some(choice) => {
                self.counts.corrupted += 1;
                damaged(bytes, choice)
            }
        };
        self.counts.delayed += u64::from(self.spec.delay.is_some());
        self.counts.reordered += u64::from(fate.overtakers > 0);
        self.hold(dest, bytes.clone(), due, fate.overtakers);
        if fate.is_duplicated {
            // It takes its part of the rate, too.
            if let Some(due) = self.depart(dest, bytes.len(), fate, now) {
                self.counts.duplicated += 1;
                self.hold(dest, bytes, due, 0);
            }
        }
    }

    /// When a packet arrives that comes now, or `None` if it finds the queue full.
    fn depart(&mut self, dest: TxDest, len: usize, fate: Fate, now: Time) -> Option<Time> {
        let mut left = now;
        if let Some(bottleneck) = &mut self.bottleneck {
            let frame = len as u64 + u64::from(frame_overhead(&dest.remote));
            let Some(passed) = bottleneck.pass(frame, now) else {
                self.counts.queue_full += 1;
                return None;
            };
            left = passed;
        }
        let due = left + fate.delay.as_nanos() as u64;
        // The later one waits for the earlier one: disorder is another fault.
        Some(self.queue.back().map_or(due, |last| due.max(last.due)))
    }

    /// Keeps the packet while it is the last one to its QP and did not arrive.
    fn note_last(&mut self, dest: TxDest, bytes: &[u8], is_lost: bool) {
        let Some(qpn) = bytes.get(5..8).and_then(|qpn| qpn.try_into().ok()) else {
            return;
        };
        let key = (dest.remote, qpn);
        if is_lost && self.lost_last.len() < LOST_LAST_MAX {
            let kept = Bytes::copy_from_slice(bytes);
            self.lost_last.insert(key, (dest, kept));
        } else {
            self.lost_last.remove(&key);
        }
    }

    /// A QP is about to go: whatever is held back leaves now, and the last packet to each QP
    /// arrives after all. It may be the ACK of what the peer sent last. A living QP
    /// repeats what is lost, but one that is gone does not.
    pub(crate) fn settle(&mut self, now: Time) {
        for held in self.queue.iter_mut().chain(&mut self.aside) {
            held.due = held.due.min(now);
        }
        for (dest, bytes) in std::mem::take(&mut self.lost_last).into_values() {
            self.hold(dest, bytes, now, 0);
        }
    }

    fn hold(&mut self, dest: TxDest, bytes: Bytes, due: Time, overtakers: u8) {
        if self.held_bytes + bytes.len() > HELD_BYTES_MAX {
            self.counts.overflowed += 1;
            return;
        }
        self.held_bytes += bytes.len();
        let held = Held {
            dest,
            bytes,
            due,
            number: self.counts.packets,
            overtakers,
        };
        if overtakers == 0 {
            self.queue.push_back(held);
        } else {
            self.aside.push(Held {
                due: due + OVERTAKE_NS,
                ..held
            });
        }
    }

    /// Moves packets that are due into the batch, as many as fit. False if there are
    /// none.
    pub(crate) fn release(&mut self, batch: &mut TxBatch, now: Time) -> bool {
        loop {
            // Those that were overtaken often enough, or that no packet overtakes.
            let ready = self
                .aside
                .iter()
                .position(|held| held.overtakers == 0 || held.due <= now);
            let held = if let Some(place) = ready {
                if !put(batch, &self.aside[place]) {
                    break;
                }
                self.aside.remove(place)
            } else {
                let first = self.queue.front().filter(|held| held.due <= now);
                let Some(first) = first else { break };
                if !put(batch, first) {
                    break;
                }
                let first = self.queue.pop_front().expect("just looked at");
                self.overtake(first.number);
                first
            };
            self.held_bytes -= held.bytes.len();
        }
        !batch.is_empty()
    }

    /// A packet leaves before earlier ones that stand aside.
    fn overtake(&mut self, number: u64) {
        for held in self.aside.iter_mut().filter(|held| held.number < number) {
            held.overtakers = held.overtakers.saturating_sub(1);
        }
    }

    /// The time at which the next packet leaves.
    pub(crate) fn due(&self) -> Option<Time> {
        let aside = self.aside.iter().map(|held| held.due).min();
        let first = self.queue.front().map(|held| held.due);
        Time::earliest([aside, first])
    }
}

/// A copy with one bit turned over.
fn damaged(bytes: &[u8], choice: u64) -> Bytes {
    let mut copy = BytesMut::from(bytes);
    let bit = choice % (copy.len() as u64 * 8);
    copy[(bit / 8) as usize] ^= 1 << (bit % 8);
    copy.freeze()
}

fn put(batch: &mut TxBatch, held: &Held) -> bool {
    let Some(slot) = batch.reserve(&held.dest, held.bytes.len()) else {
        return false;
    };
    slot.bytes.copy_from_slice(&held.bytes);
    true
}

#[cfg(test)]
mod tests;
