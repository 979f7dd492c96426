//! Packets of one datagram, opened: a row of equal ones with a shorter one at its end, as the kernel joins them, and what does not fit into the
//! row. Sealed packets that are equally long may have had packets of different lengths in them, as one may take another along.

use core::ops::Range;

use urxe_core::RxPath;
use urxe_seal::{Envelope, HEADER};
use urxe_udp::{Datagram, Left};

/// The row that is made where the datagram lies. Packets of a train stay where they came, so that none of their payload moves: between
/// two of them is what their envelopes had more.
#[derive(Debug)]
pub(super) struct Row {
    /// From a sealed packet of the datagram to the next one.
    sealed: usize,
    left: Left,
    is_over: bool,
}

impl Row {
    pub(super) fn new(sealed: usize) -> Row {
        Row {
            sealed,
            left: Left::default(),
            is_over: false,
        }
    }

    /// Where the next packet belongs, if its sealed packet begins `from` bytes into the datagram.
    #[inline]
    pub(super) fn next(&self, from: usize) -> usize {
        if self.left.range.is_empty() || self.is_over {
            return from + HEADER;
        }
        self.left.range.end + self.left.gap
    }

    /// True if a packet at this place is the next one of the row.
    #[inline]
    pub(super) fn takes(&mut self, packet: &Range<usize>, has_rider: bool) -> bool {
        let (left, len) = (&mut self.left, packet.len());
        if left.range.is_empty() {
            left.range = packet.start..packet.start;
            left.segment_size = len;
            // A rider's packet lies right behind it.
            left.gap = if has_rider { 0 } else { self.sealed - len };
        } else if packet.start != left.range.end + left.gap {
            self.is_over = true;
        }
        let takes = !self.is_over && len <= left.segment_size;
        self.is_over |= len != left.segment_size;
        if takes {
            left.range.end = packet.end;
        }
        takes
    }

    pub(super) fn left(self) -> Left {
        self.left
    }
}

/// Packets behind the rows of the datagrams that were received last, in order.
#[derive(Debug, Default)]
pub(super) struct Apart {
    bytes: Vec<u8>,
    packets: Vec<(Range<usize>, Envelope)>,
}

impl Apart {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline]
    pub(super) fn keep(&mut self, packet: &[u8], envelope: Envelope) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        self.packets.push((start..self.bytes.len(), envelope));
    }

    /// Gives those from a place on the ICRCs that they would have on a network.
    pub(super) fn add_icrcs(&mut self, from: usize, path: &RxPath) {
        for (range, _) in &self.packets[from..] {
            path.seed.seal(0, &mut self.bytes[range.clone()]);
        }
    }

    /// Some of them, each as a datagram like the one that it came in.
    pub(super) fn datagrams<'a>(
        &'a self,
        range: Range<usize>,
        of: Datagram<'a>,
    ) -> impl Iterator<Item = (Datagram<'a>, &'a Envelope)> {
        self.packets[range].iter().map(move |(range, envelope)| {
            let data = &self.bytes[range.clone()];
            let alone = Datagram {
                data,
                segment_size: data.len(),
                gap: 0,
                ..of
            };
            (alone, envelope)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lays opened packets into a row as they come out of a train, and tells which of them it took, and what it is then.
    fn row(sealed: usize, lens: &[usize]) -> (Vec<bool>, Left) {
        let mut row = Row::new(sealed);
        let lay = |(place, &len): (usize, &usize)| {
            let to = row.next(place * sealed);
            row.takes(&(to..to + len), false)
        };
        let taken = lens.iter().enumerate().map(lay).collect();
        (taken, row.left())
    }

    #[test]
    fn a_row_has_equal_packets_and_a_shorter_one_at_its_end() {
        let left = |end: usize| Left {
            range: HEADER..end,
            segment_size: 40,
            gap: 28,
        };
        assert_eq!(row(68, &[40; 3]), (vec![true; 3], left(16 + 2 * 68 + 40)));
        let last_is_short = (vec![true; 3], left(16 + 2 * 68 + 20));
        assert_eq!(row(68, &[40, 40, 20]), last_is_short);
        // Their order is kept: nothing follows what does not fit.
        assert_eq!(row(68, &[40, 41, 40]).0, [true, false, false]);
        assert_eq!(row(68, &[40, 20, 20]).0, [true, true, false]);
    }

    #[test]
    fn what_did_not_open_leaves_no_hole() {
        let mut row = Row::new(68);
        assert_eq!(row.next(68), 68 + HEADER, "the first was refused");
        assert!(row.takes(&(84..124), false));
        // So was the third: the fourth moves into its place.
        assert_eq!(row.next(3 * 68), 2 * 68 + HEADER);
        assert!(row.takes(&(152..192), false));
        assert_eq!(row.left().range, 84..192);
    }

    #[test]
    fn a_rider_and_its_packet_come_in_order() {
        // Alone: the packet is longer, so it is apart.
        let mut row = Row::new(97);
        assert!(row.takes(&(16..36), true));
        assert!(!row.takes(&(36..64), true));
        assert_eq!(row.left().range, 16..36);
        // Of the rider's length, it is in the row.
        let mut row = Row::new(77);
        assert!(row.takes(&(16..36), true));
        assert!(row.takes(&(36..56), true));
        assert_eq!((row.left.range.clone(), row.left.gap), (16..56, 0));
        // In a train, it is not where the next one belongs.
        let mut row = Row::new(77);
        assert!(row.takes(&(16..36), false));
        let to = row.next(77);
        assert!(row.takes(&(to..to + 20), true));
        assert!(!row.takes(&(to + 20..to + 40), true));
    }
}
