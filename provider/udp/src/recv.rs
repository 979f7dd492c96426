//! Received datagrams, and their memory.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use crate::Dest;

/// Room for several datagrams, allocated once and used for every
/// [`UdpSocket::recv`](crate::UdpSocket::recv).
pub struct RecvBatch {
    pub(crate) buffers: Box<[u8]>,
    pub(crate) slot_len: usize,
    pub(crate) meta: Box<[Meta]>,
    pub(crate) filled: usize,
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(crate) linux: crate::linux::RecvState,
}

/// What is known of a received datagram besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) source: Dest,
    /// Where it begins in its slot.
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) segment_size: u32,
    pub(crate) gap: u32,
    pub(crate) dst_ip: Option<IpAddr>,
    pub(crate) tos: u8,
    pub(crate) truncated: bool,
}

impl Meta {
    const EMPTY: Meta = Meta {
        source: Dest::EMPTY,
        start: 0,
        len: 0,
        segment_size: 0,
        gap: 0,
        dst_ip: None,
        tos: 0,
        truncated: false,
    };

    /// Fresh from the system: `len` bytes of packets, one behind the other.
    #[inline]
    pub(crate) fn set_len(&mut self, len: usize, segment_size: u32) {
        (self.start, self.gap) = (0, 0);
        (self.len, self.segment_size) = (len as u32, segment_size);
    }

    /// Its bytes in its slot.
    #[inline]
    fn bytes(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }

    /// The datagram with these bytes.
    #[inline]
    fn of<'a>(&self, data: &'a [u8]) -> Option<Datagram<'a>> {
        Some(Datagram {
            data,
            segment_size: self.segment_size as usize,
            gap: self.gap as usize,
            // The kernel names no sender only for what no peer can cause.
            source: self.source.decode()?,
            dst_ip: self.dst_ip,
            tos: self.tos,
            truncated: self.truncated,
        })
    }
}

/// What [`RecvBatch::rewrite`] leaves of a datagram.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Left {
    /// From the first packet's first byte to the last packet's last one.
    pub range: Range<usize>,
    /// See [`Datagram::segment_size`].
    pub segment_size: usize,
    /// See [`Datagram::gap`].
    pub gap: usize,
}

impl Left {
    /// The packets, in the bytes of the datagram.
    pub fn packets_mut<'a>(&self, bytes: &'a mut [u8]) -> impl Iterator<Item = &'a mut [u8]> {
        let size = self.segment_size.max(1);
        bytes[self.range.clone()]
            .chunks_mut(size + self.gap)
            .map(move |chunk| {
                let len = size.min(chunk.len());
                &mut chunk[..len]
            })
    }
}

impl RecvBatch {
    /// Slots that serve well: see the measurements in `linux/recv.rs`.
    pub const DEFAULT_SLOTS: usize = 8;
    /// More slots than this are never filled by one call.
    pub const SLOTS_MAX: usize = 64;
    /// Bytes in a slot: holds the longest datagram, and the longest train of joined ones.
    pub const SLOT_LEN: usize = 1 << 16;

    /// Room for `slots` datagrams of any length.
    ///
    /// # Panics
    /// If `slots` is 0 or more than [`RecvBatch::SLOTS_MAX`].
    pub fn new(slots: usize) -> RecvBatch {
        RecvBatch::with_slot_len(slots, RecvBatch::SLOT_LEN)
    }

    /// Room for `slots` datagrams of at most `slot_len` bytes; longer ones are cut and
    /// marked [`Datagram::truncated`].
    ///
    /// # Panics
    /// If `slots` is 0 or more than [`RecvBatch::SLOTS_MAX`], or `slot_len` is 0.
    pub fn with_slot_len(slots: usize, slot_len: usize) -> RecvBatch {
        assert!((1..=RecvBatch::SLOTS_MAX).contains(&slots), "{slots} slots");
        assert!(slot_len > 0, "a slot needs room");
        RecvBatch {
            buffers: vec![0; slots * slot_len].into(),
            slot_len,
            meta: vec![Meta::EMPTY; slots].into(),
            filled: 0,
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            linux: crate::linux::RecvState::new(slots),
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.meta.len()
    }

    /// Number of datagrams that the last receive put here.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// True if the last receive found nothing.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Changes the datagrams of the last receive where they lie, before they are looked at. `change` is given each one without its bytes, and
    /// the bytes; it returns where packets lie among these afterwards. A datagram without any is gone.
    pub fn rewrite(&mut self, mut change: impl FnMut(Datagram<'_>, &mut [u8]) -> Left) {
        let slots = self.buffers.chunks_exact_mut(self.slot_len);
        for (buffer, meta) in slots.zip(&mut self.meta).take(self.filled) {
            let Some(about) = meta.of(&[]) else { continue };
            let left = change(about, &mut buffer[meta.bytes()]);
            meta.start += left.range.start as u32;
            meta.len = left.range.len() as u32;
            (meta.segment_size, meta.gap) = (left.segment_size as u32, left.gap as u32);
            if left.range.is_empty() {
                meta.source = Dest::EMPTY;
            }
        }
    }

    /// The datagrams of the last receive, in order of arrival.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Datagram<'_>> {
        let slots = self
            .buffers
            .chunks_exact(self.slot_len)
            .zip(&self.meta)
            .take(self.filled);
        slots.filter_map(|(buffer, meta)| meta.of(&buffer[meta.bytes()]))
    }
}

impl fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch")
            .field("slots", &self.slots())
            .field("slot_len", &self.slot_len)
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

/// One received datagram: a packet, or a train of packets from one sender that the
/// kernel joined.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The bytes of all its packets.
    pub data: &'a [u8],
    /// Size of every packet but the last, which may be shorter. Equal to the length
    /// of the data when there is only one.
    pub segment_size: usize,
    /// Bytes between two packets that belong to neither; 0 in what the system received.
    pub gap: usize,
    /// The sender's address.
    pub source: SocketAddr,
    /// The local address it was sent to, where the system tells.
    pub dst_ip: Option<IpAddr>,
    /// Traffic class byte (DSCP and ECN); 0 where the system does not tell.
    pub tos: u8,
    /// True if it was longer than the slot; the rest is lost.
    pub truncated: bool,
}

impl<'a> Datagram<'a> {
    /// Number of packets.
    #[inline]
    pub fn packets(&self) -> usize {
        if self.data.len() <= self.segment_size {
            return 1;
        }
        self.data.len().div_ceil(self.stride())
    }

    /// From a packet's first byte to that of the next one.
    #[inline]
    fn stride(&self) -> usize {
        self.segment_size.max(1) + self.gap
    }

    /// The packet at a place in the train.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn packet(&self, place: usize) -> &'a [u8] {
        let start = place * self.stride();
        &self.data[start..self.data.len().min(start + self.segment_size)]
    }

    /// The packets, each with its place in the train.
    #[inline]
    pub fn segments(&self) -> Segments<'a> {
        Segments {
            rest: self.data,
            size: self.segment_size.max(1),
            stride: self.stride(),
            next: 0,
            empty_one: self.data.is_empty(),
        }
    }
}

/// The packets of a [`Datagram`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
    size: usize,
    stride: usize,
    next: usize,
    /// A datagram without bytes is still one packet.
    empty_one: bool,
}

impl<'a> Iterator for Segments<'a> {
    type Item = (usize, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        if self.rest.is_empty() && !self.empty_one {
            return None;
        }
        self.empty_one = false;
        let packet = &self.rest[..self.size.min(self.rest.len())];
        let index = self.next;
        self.rest = &self.rest[self.stride.min(self.rest.len())..];
        self.next += 1;
        Some((index, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_with_gaps_between_them_are_found() {
        let mut bytes = *b".one---two---3.";
        let left = Left {
            range: 1..14,
            segment_size: 3,
            gap: 3,
        };
        let mut batch = RecvBatch::with_slot_len(1, bytes.len());
        batch.filled = 1;
        batch.buffers.copy_from_slice(&bytes);
        batch.meta[0].set_len(bytes.len(), bytes.len() as u32);
        batch.meta[0].source = Dest::new((std::net::Ipv4Addr::LOCALHOST, 1).into());
        batch.rewrite(|_, _| left.clone());
        let expected: [&[u8]; 3] = [b"one", b"two", b"3"];
        {
            let datagram = batch.iter().next().expect("one");
            assert_eq!(datagram.packets(), 3);
            assert!(datagram.segments().map(|(_, packet)| packet).eq(expected));
            assert!((0..3).map(|place| datagram.packet(place)).eq(expected));
        }
        let packets = left.packets_mut(&mut bytes);
        assert!(packets.map(|packet| &*packet).eq(expected));
        // The next one that the system receives has none.
        batch.meta[0].set_len(6, 3);
        let datagram = batch.iter().next().expect("one");
        assert_eq!(datagram.packet(1), b"e--");
    }
}
