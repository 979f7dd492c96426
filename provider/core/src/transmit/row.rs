//! Several packets of one size, reserved at once: those in the middle of a message.

use super::{TxBatch, TxDest, TxSlot};

/// Places for packets that join the last run, one behind the other.
#[derive(Debug)]
pub struct TxRow<'a> {
    bytes: &'a mut [u8],
    size: usize,
    stride: usize,
    ident: u16,
}

impl TxRow<'_> {
    /// How many packets.
    #[inline]
    pub fn packets(&self) -> usize {
        self.bytes.len().div_ceil(self.stride)
    }

    /// The place of packet `at`.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn slot(&mut self, at: usize) -> TxSlot<'_> {
        let start = at * self.stride;
        TxSlot {
            bytes: &mut self.bytes[start..start + self.size],
            ident: self.ident + at as u16,
        }
    }
}

impl TxBatch {
    /// Takes room for packets of `len` bytes as [`TxBatch::reserve`] would, as far as they join the last run: up to `count` of them, which
    /// is not 0. `None` if not even one does.
    #[inline]
    pub fn reserve_more(&mut self, dest: &TxDest, len: usize, count: usize) -> Option<TxRow<'_>> {
        let run = self.runs.last()?;
        if run.segment_size != len || !self.joins(dest, len) {
            return None;
        }
        let stride = run.stride();
        let run_left = (self.run_max() - run.range.len() - run.gap) / stride;
        let room = (self.capacity() - self.used) / stride;
        let packets = count
            .min(run_left)
            .min(room)
            .min(self.limits.segments_max - self.in_run);
        if packets == 0 {
            return None;
        }
        let start = self.used + self.room.before;
        self.used += packets * stride;
        let end = self.used - self.room.after;
        let ident = self.in_run as u16;
        self.in_run += packets;
        self.packets += packets;
        if let Some(run) = self.runs.last_mut() {
            run.range.end = end;
        }
        let bytes = match &mut self.loan {
            Some(loan) if self.is_away => loan.memory.part_mut(start..end),
            _ => &mut self.bytes[super::LEAD..][start..end],
        };
        Some(TxRow {
            bytes,
            size: len,
            stride,
            ident,
        })
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;
    use crate::qpn_table::QpnChunk;
    use crate::transmit::{Room, RunLimits};
    use proptest::prelude::*;

    fn dest(n: u8) -> TxDest {
        TxDest {
            local: IpAddr::from([127, 0, 0, 1]),
            remote: IpAddr::from([127, 0, 0, n]),
            tos: 0,
            source_port: 4791,
            chunk: QpnChunk(0),
            in_memory: false,
            near_port: None,
        }
    }

    /// The same by single steps.
    fn one_by_one(batch: &mut TxBatch, to: u8, len: usize, count: usize) -> Vec<u16> {
        let mut idents = Vec::new();
        for _ in 0..count {
            let last = batch.runs().len();
            let Some(slot) = batch.reserve(&dest(to), len) else {
                break;
            };
            let (ident, bytes) = (slot.ident, slot.bytes);
            bytes.fill(ident as u8);
            if batch.runs().len() > last {
                batch.retract(len);
                break;
            }
            idents.push(ident);
        }
        idents
    }

    proptest! {
        /// A row has the places that its packets would get one after the other, and no more of them.
        #[test]
        fn a_row_is_what_single_packets_would_be(
            steps in proptest::collection::vec((0u8..2, prop_oneof![Just(1040usize), Just(272), Just(100)], 1usize..70, any::<bool>()), 1..20),
            segments_max in 1usize..=64,
            room in prop_oneof![Just(Room::default()), Just(Room { before: 16, after: 12 })],
        ) {
            let limits = RunLimits { segments_max, bytes_max: RunLimits::UDP_PAYLOAD_MAX };
            let new = || TxBatch::new(128 << 10, limits).with_room(room);
            let (mut rows, mut single) = (new(), new());
            for (to, len, count, begins) in steps {
                if begins {
                    let slots = [rows.reserve(&dest(to), len), single.reserve(&dest(to), len)];
                    prop_assert_eq!(slots[0].is_some(), slots[1].is_some());
                    for slot in slots.into_iter().flatten() {
                        slot.bytes.fill(slot.ident as u8);
                    }
                }
                let expected = match single.runs().last() {
                    // A shorter packet would join, too, and end the run.
                    Some(run) if run.segment_size == len => one_by_one(&mut single, to, len, count),
                    _ => Vec::new(),
                };
                let mut idents = Vec::new();
                if let Some(mut row) = rows.reserve_more(&dest(to), len, count) {
                    for at in 0..row.packets() {
                        let slot = row.slot(at);
                        prop_assert_eq!(slot.bytes.len(), len);
                        slot.bytes.fill(slot.ident as u8);
                        idents.push(slot.ident);
                    }
                }
                prop_assert_eq!(idents, expected);
                prop_assert_eq!(rows.runs(), single.runs());
                prop_assert_eq!((rows.used(), rows.packets()), (single.used(), single.packets()));
                for run in rows.runs() {
                    let bytes = |batch: &TxBatch| run.packets(&batch.bytes()[run.range.clone()]).map(<[u8]>::to_vec).collect::<Vec<_>>();
                    prop_assert_eq!(bytes(&rows), bytes(&single));
                }
            }
        }
    }
}
