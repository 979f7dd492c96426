//! What arrived ahead of a gap. It is kept as it came, and handled in order once the gap is filled, by the same code as
//! any packet: nothing that a program can see comes in another order than without.

use std::collections::VecDeque;

use urxe_wire::{Operation, Packet, Psn};

/// PSNs, from the expected one on, that are kept.
pub(crate) const SPAN_MAX: u32 = 8 << 10;
/// Packets ahead of a gap after which a peer that wants to know hears of them.
const TELL_EVERY: u32 = 8;
/// What a place costs, whether or not a packet is in it.
const PLACE: usize = size_of::<Slot>();

/// PSNs that a request packet stands for.
pub(crate) fn span(packet: &Packet<'_>, mtu: u32) -> u32 {
    match (packet.info().operation, packet.reth()) {
        (Operation::ReadRequest, Some(reth)) => reth.dma_len.div_ceil(mtu).max(1),
        _ => 1,
    }
}

/// What all QPs of a shard keep together.
#[derive(Debug)]
pub(crate) struct Room {
    held: usize,
    max: usize,
}

impl Room {
    pub(crate) fn new(max: usize) -> Room {
        Room { held: 0, max }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.max - self.held;
        if fits {
            self.held += bytes;
        }
        fits
    }

    fn give(&mut self, bytes: usize) {
        self.held -= bytes;
    }
}

#[derive(Debug)]
enum Slot {
    Missing,
    Kept(Box<[u8]>),
    /// One of the PSNs that a READ request stands for besides its first.
    Covered,
}

/// What became of a packet that is ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// It is here now.
    New,
    /// It was here before.
    Again,
    /// It is too far ahead, or there is no room for it.
    No,
}

/// Packets ahead of a gap.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// PSN of the first place: the expected one, or one before it.
    base: Psn,
    slots: VecDeque<Slot>,
    kept: u32,
    /// Packets that the peer has not been told of.
    untold: u32,
}

impl Ahead {
    pub(crate) fn new(expected: Psn) -> Ahead {
        Ahead {
            base: expected,
            slots: VecDeque::new(),
            kept: 0,
            untold: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept == 0
    }

    /// Packets that are kept.
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    /// Takes a packet that is ahead of the expected one and stands for `span` PSNs.
    pub(crate) fn keep(&mut self, packet: &Packet<'_>, span: u32, room: &mut Room) -> Keep {
        let at = packet.bth().psn.distance_from(self.base);
        if at >= SPAN_MAX || span > SPAN_MAX - at {
            return Keep::No;
        }
        let (at, end) = (at as usize, (at + span) as usize);
        if matches!(self.slots.get(at), Some(Slot::Kept(_) | Slot::Covered)) {
            return Keep::Again;
        }
        let places = end.saturating_sub(self.slots.len());
        if !room.take(places * PLACE + packet.bytes().len()) {
            return Keep::No;
        }
        if places > 0 {
            self.slots.resize_with(end, || Slot::Missing);
        }
        self.slots[at] = Slot::Kept(packet.bytes().into());
        for slot in self.slots.range_mut(at + 1..end) {
            if matches!(slot, Slot::Missing) {
                *slot = Slot::Covered;
            }
        }
        self.kept += 1;
        // A gap within what is here is news.
        self.untold += if places > 1 { TELL_EVERY } else { 1 };
        Keep::New
    }

    /// It is time that the peer hears which packets are here.
    pub(crate) fn is_news(&self) -> bool {
        self.untold >= TELL_EVERY
    }

    /// Places in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Which of them are filled; the peer is told.
    pub(crate) fn tell(&mut self) -> impl Iterator<Item = bool> {
        self.untold = 0;
        self.slots.iter().map(|slot| !matches!(slot, Slot::Missing))
    }

    /// The packet that is expected now, if it is here. What is before it is forgotten.
    pub(crate) fn take(&mut self, expected: Psn, room: &mut Room) -> Option<Box<[u8]>> {
        let passed = expected.distance_from(self.base) as usize;
        self.base = expected;
        for _ in 0..passed.min(self.slots.len()) {
            if let Some(Slot::Kept(bytes)) = self.slots.pop_front() {
                self.kept -= 1;
                room.give(bytes.len());
            }
            room.give(PLACE);
        }
        let first = self.slots.front_mut()?;
        let Slot::Kept(bytes) = core::mem::replace(first, Slot::Missing) else {
            return None;
        };
        self.kept -= 1;
        room.give(bytes.len());
        Some(bytes)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, room: &mut Room) {
        for slot in self.slots.drain(..) {
            if let Slot::Kept(bytes) = slot {
                room.give(bytes.len());
            }
            room.give(PLACE);
        }
        self.kept = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(psn: u32) -> Vec<u8> {
        // An RC ACKNOWLEDGE has no payload, and any kind will do.
        let mut bytes = vec![0x11, 0, 0xff, 0xff, 0, 0, 0, 1, 0];
        bytes.extend(&Psn::new(psn).get().to_be_bytes()[1..]);
        bytes.resize(20, 0);
        bytes
    }

    fn keep(ahead: &mut Ahead, psn: u32, span: u32, room: &mut Room) -> Keep {
        let bytes = packet(psn);
        ahead.keep(&Packet::parse(&bytes).expect("a packet"), span, room)
    }

    fn psn_of(bytes: &[u8]) -> u32 {
        Packet::parse(bytes).expect("a packet").bth().psn.get()
    }

    #[test]
    fn what_is_kept_comes_back_in_order_and_leaves_nothing_behind() {
        let mut room = Room::new(1 << 20);
        let mut ahead = Ahead::new(Psn::new(0xff_fffe));
        for psn in [1, 0xff_ffff, 3] {
            assert_eq!(keep(&mut ahead, psn, 1, &mut room), Keep::New);
        }
        assert_eq!(keep(&mut ahead, 1, 1, &mut room), Keep::Again);
        assert!(ahead.take(Psn::new(0xff_fffe), &mut room).is_none());
        let first = ahead.take(Psn::new(0xff_ffff), &mut room).expect("here");
        assert_eq!(psn_of(&first), 0xff_ffff);
        assert!(ahead.take(Psn::new(0), &mut room).is_none());
        let second = ahead.take(Psn::new(1), &mut room).expect("here");
        assert_eq!(psn_of(&second), 1);
        assert!(!ahead.is_empty());
        assert!(ahead.take(Psn::new(4), &mut room).is_none());
        assert!(ahead.is_empty());
        assert_eq!(room.held, 0, "and none of the room");
    }

    #[test]
    fn a_read_request_stands_for_its_answers_too() {
        let mut room = Room::new(1 << 20);
        let mut ahead = Ahead::new(Psn::new(0));
        assert_eq!(keep(&mut ahead, 2, 3, &mut room), Keep::New);
        assert_eq!(keep(&mut ahead, 4, 1, &mut room), Keep::Again);
        assert!(ahead.take(Psn::new(2), &mut room).is_some());
        assert!(ahead.take(Psn::new(5), &mut room).is_none());
        assert_eq!(room.held, 0);
    }

    #[test]
    fn there_is_an_end_to_how_far_and_to_how_much() {
        let mut room = Room::new(200);
        let mut ahead = Ahead::new(Psn::new(0));
        assert_eq!(keep(&mut ahead, SPAN_MAX, 1, &mut room), Keep::No);
        assert_eq!(keep(&mut ahead, 1, SPAN_MAX, &mut room), Keep::No);
        assert_eq!(keep(&mut ahead, 1, u32::MAX, &mut room), Keep::No);
        assert_eq!(
            keep(&mut ahead, 100, 1, &mut room),
            Keep::No,
            "places cost room"
        );
        let kept = (1..).take_while(|&n| keep(&mut ahead, n, 1, &mut room) == Keep::New);
        let kept = kept.count();
        assert!((2..10).contains(&kept), "{kept}");
        ahead.clear(&mut room);
        assert_eq!(room.held, 0);
        assert_eq!(keep(&mut ahead, 1, 1, &mut room), Keep::New);
    }
}
