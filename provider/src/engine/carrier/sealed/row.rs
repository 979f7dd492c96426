//! Packets of one datagram, opened: a row of equal ones with a shorter one at its end, as the kernel joins them, and what does not fit into the
//! row. Sealed packets that are equally long may have had packets of different lengths in them, as one may take another along.

use core::ops::Range;

use urxe_core::RxPath;
use urxe_seal::Envelope;
use urxe_udp::Datagram;

/// The row that is made where the datagram lies.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Bytes so far.
    pub(super) len: usize,
    /// The size of each packet but the last.
    pub(super) size: usize,
    is_over: bool,
}

impl Row {
    /// True if a packet of this length is the next one of the row.
    #[inline]
    pub(super) fn takes(&mut self, len: usize) -> bool {
        if self.len == 0 {
            self.size = len;
        }
        let takes = !self.is_over && len <= self.size;
        self.is_over |= len != self.size;
        self.len += if takes { len } else { 0 };
        takes
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
                ..of
            };
            (alone, envelope)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_equal_packets_and_a_shorter_one_at_its_end() {
        let taken = |lens: &[usize]| {
            let mut row = Row::default();
            let taken: Vec<bool> = lens.iter().map(|&len| row.takes(len)).collect();
            (taken, row.len, row.size)
        };
        assert_eq!(taken(&[40, 40, 40]), (vec![true; 3], 120, 40));
        assert_eq!(taken(&[40, 40, 20]), (vec![true; 3], 100, 40));
        assert_eq!(taken(&[20, 24]), (vec![true, false], 20, 20));
        // Their order is kept: nothing follows what does not fit.
        assert_eq!(taken(&[20, 24, 20]), (vec![true, false, false], 20, 20));
        assert_eq!(taken(&[40, 20, 20]), (vec![true, true, false], 60, 40));
    }
}
