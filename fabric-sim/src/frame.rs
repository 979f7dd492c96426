//! Frames on their way, in a slab: a frame that arrived leaves its place to the next, so that a
//! warmed-up simulation allocates nothing.

use core::num::NonZeroU32;

use urxe_wire::Pause;

use crate::engine::Time;
use crate::link::FRAME_MIN;
use crate::topology::{HostId, PortId};

/// Place of a frame among all that are somewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FrameId(NonZeroU32);

/// Place of a frame's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct BodyId(NonZeroU32);

/// The payload of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Traffic of a [`Flow`](crate::host::Flow): numbers in place of bytes.
    Flow {
        /// The flow.
        flow: u32,
        /// Number of the packet in the flow.
        packet: u32,
        /// Bytes of payload; 0 for an acknowledgement.
        payload: u32,
    },
    /// A RoCEv2 packet of a real transport.
    Roce {
        /// In `bytes` mode the whole frame without its check sequence; in `lite` mode the beginning
        /// of the packet.
        body: BodyId,
        /// Length of the packet, from the BTH to the ICRC.
        len: u32,
    },
    /// A pause frame (802.3x or 802.1Qbb).
    Pause {
        /// The pauses in it.
        pause: Pause,
        /// In `bytes` mode: the frame, which the receiver reads.
        body: Option<BodyId>,
    },
    /// Credit from a receiver to a sender (RCCC).
    Grant {
        /// The sender's QP.
        qpn: u32,
        /// Packets since the connection began.
        packets: u64,
    },
    /// Link-level credits: the sender of a link may have sent so many bytes of a class in all.
    Credit {
        /// The class.
        priority: u8,
        /// Bytes since the start.
        limit: u64,
    },
}

impl Payload {
    /// The place of its bytes, if it has any.
    #[inline]
    pub(crate) fn body(&self) -> Option<BodyId> {
        match *self {
            Payload::Roce { body, .. } => Some(body),
            Payload::Pause { body, .. } => body,
            _ => None,
        }
    }

    /// True for what ports tell each other: never queued behind data, never forwarded.
    pub fn is_control(&self) -> bool {
        matches!(self, Payload::Pause { .. } | Payload::Credit { .. })
    }
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub(crate) next: Option<FrameId>,
    /// The length from the Ethernet header to the check sequence.
    pub len: u32,
    /// The source host.
    pub src: HostId,
    /// The destination host.
    pub dst: HostId,
    /// Hash of addresses and ports: what switches choose among equal paths by.
    pub flow_hash: u32,
    /// Where it entered the node that has it.
    pub(crate) ingress: PortId,
    /// Class, 0 to 7.
    pub priority: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Hops that are left.
    pub ttl: u8,
    /// Which port of its destination it is for, counted from 1; 0: the nearest.
    pub(crate) rail: u8,
    /// Its bytes do not say yet what `tos` and `ttl` do: [`Fabric::catch_up`](crate::Fabric::catch_up).
    pub(crate) is_behind: bool,
    /// The time of its creation.
    pub born: Time,
    /// Stands for its content in the trace; the same in both modes.
    pub digest: u64,
    /// Its payload.
    pub payload: Payload,
}

impl Frame {
    /// A frame of the shortest length that a port sends to its neighbour, before all others.
    pub(crate) fn control(port: PortId, born: Time, digest: u64, payload: Payload) -> Frame {
        Frame {
            next: None,
            len: FRAME_MIN,
            src: HostId(0),
            dst: HostId(0),
            flow_hash: 0,
            ingress: port,
            priority: 7,
            tos: 0,
            ttl: 1,
            rail: 0,
            is_behind: false,
            born,
            digest,
            payload,
        }
    }

    /// The two ECN bits when congestion was experienced.
    pub const CE: u8 = 3;

    /// True if a switch marked it.
    pub fn is_marked(&self) -> bool {
        self.tos & 3 == Frame::CE
    }

    /// True if its sender understands marks (ECT).
    pub fn is_ect(&self) -> bool {
        self.tos & 3 != 0
    }
}

/// All frames that are somewhere.
#[derive(Debug, Default)]
pub(crate) struct FrameSlab {
    frames: Vec<Frame>,
    free: Option<FrameId>,
    live: u32,
}

impl FrameSlab {
    /// Number of frames.
    pub(crate) fn len(&self) -> u32 {
        self.live
    }

    /// Gives a frame a place.
    #[inline]
    pub(crate) fn insert(&mut self, frame: Frame) -> FrameId {
        self.live += 1;
        match self.free {
            Some(id) => {
                let place = &mut self.frames[Self::index(id)];
                self.free = place.next;
                *place = Frame {
                    next: None,
                    ..frame
                };
                id
            }
            None => {
                self.frames.push(Frame {
                    next: None,
                    ..frame
                });
                let id = u32::try_from(self.frames.len())
                    .ok()
                    .and_then(NonZeroU32::new);
                FrameId(id.expect("fewer frames than memory has bytes"))
            }
        }
    }

    /// Takes a frame away.
    #[inline]
    pub(crate) fn remove(&mut self, id: FrameId) -> Frame {
        self.live -= 1;
        let place = &mut self.frames[Self::index(id)];
        let frame = *place;
        place.next = self.free;
        self.free = Some(id);
        frame
    }

    #[inline]
    fn index(id: FrameId) -> usize {
        id.0.get() as usize - 1
    }

    #[inline]
    pub(crate) fn get(&self, id: FrameId) -> &Frame {
        &self.frames[Self::index(id)]
    }

    /// Reads of both lines that a frame may lie in.
    #[inline]
    pub(crate) fn fetch(&self, id: FrameId) -> u64 {
        let frame = self.get(id);
        u64::from(frame.len) ^ u64::from(frame.payload.is_control())
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[Self::index(id)]
    }
}

/// Where the frames of a network are, with their bytes.
#[derive(Debug)]
pub(crate) struct Store<'a> {
    pub(crate) frames: &'a mut FrameSlab,
    pub(crate) bodies: &'a mut Bodies,
}

impl Store<'_> {
    /// Moves a frame to another place of the kind.
    pub(crate) fn carry(&mut self, id: FrameId, to: &mut Store<'_>) -> FrameId {
        let frame = self.frames.remove(id);
        let bytes = self.bodies.of(&frame);
        let id = to.put(frame, bytes);
        if let Some(body) = frame.payload.body() {
            self.bodies.release(body);
        }
        id
    }

    /// Puts a frame there, with bytes of another place.
    #[inline]
    pub(crate) fn put(&mut self, mut frame: Frame, bytes: &[u8]) -> FrameId {
        if let Payload::Roce { body, .. }
        | Payload::Pause {
            body: Some(body), ..
        } = &mut frame.payload
        {
            *body = self.bodies.take(bytes.len());
            self.bodies.get_mut(*body)[..bytes.len()].copy_from_slice(bytes);
        }
        self.frames.insert(frame)
    }
}

/// A first-in, first-out queue of frames, chained through the slab.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queue {
    head: Option<FrameId>,
    tail: Option<FrameId>,
    pub(crate) bytes: u64,
    pub(crate) frames: u32,
}

impl Queue {
    #[inline]
    pub(crate) fn push(&mut self, slab: &mut FrameSlab, id: FrameId) {
        let frame = slab.get_mut(id);
        frame.next = None;
        self.bytes += u64::from(frame.len);
        self.frames += 1;
        match self.tail {
            Some(tail) => slab.get_mut(tail).next = Some(id),
            None => self.head = Some(id),
        }
        self.tail = Some(id);
    }

    #[inline]
    pub(crate) fn pop(&mut self, slab: &FrameSlab) -> Option<FrameId> {
        let id = self.head?;
        let frame = slab.get(id);
        self.head = frame.next;
        if self.head.is_none() {
            self.tail = None;
        }
        self.bytes -= u64::from(frame.len);
        self.frames -= 1;
        Some(id)
    }

    #[inline]
    pub(crate) fn head(&self) -> Option<FrameId> {
        self.head
    }

    /// Moves all frames to another place, where they have the same order.
    pub(crate) fn carry(&mut self, from: &mut Store<'_>, to: &mut Store<'_>) {
        let mut queue = Queue::default();
        while let Some(id) = self.pop(from.frames) {
            let id = from.carry(id, to);
            queue.push(to.frames, id);
        }
        *self = queue;
    }

    /// The frames, first to last.
    pub(crate) fn iter<'a>(
        &self,
        slab: &'a FrameSlab,
    ) -> impl Iterator<Item = &'a Frame> + use<'a> {
        let mut next = self.head;
        core::iter::from_fn(move || {
            let frame = slab.get(next?);
            next = frame.next;
            Some(frame)
        })
    }
}

/// Bytes of frames, in slots of a few sizes: one for what is as short as an acknowledgement, one for full packets of each path
/// MTU. In slots for the longest frame, most memory of a large run would be what lies behind frames.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// Shortest slots first.
    sizes: Vec<Slots>,
}

/// Slots of one size.
#[derive(Debug)]
struct Slots {
    slot_len: usize,
    chunks: Vec<Box<[u8]>>,
    free: Vec<BodyId>,
}

/// Slots that are allocated at once.
const CHUNK_SLOTS: usize = 64;
/// Frames with nothing but headers, and full ones of path MTUs of 1024, 2048 and 4096 with the longest headers.
const SLOT_LENS: [usize; 4] = [128, 1216, 2240, 4288];
/// Bits of an id below those of the size.
const PLACE_BITS: u32 = 29;

impl BodyId {
    fn new(size: usize, place: usize) -> BodyId {
        assert!(place + 1 < 1 << PLACE_BITS, "fewer bodies than that");
        let number = NonZeroU32::new((size as u32) << PLACE_BITS | (place as u32 + 1));
        BodyId(number.expect("counted from 1"))
    }

    /// Which size of slots it is in.
    #[inline]
    pub(crate) fn size(self) -> usize {
        (self.0.get() >> PLACE_BITS) as usize
    }

    /// Which of these slots, counted from 0.
    #[inline]
    pub(crate) fn place(self) -> usize {
        (self.0.get() & ((1 << PLACE_BITS) - 1)) as usize - 1
    }
}

impl Bodies {
    /// For frames of at most so many bytes.
    pub(crate) fn new(len_max: usize) -> Bodies {
        let shorter = SLOT_LENS.into_iter().filter(|&len| len < len_max);
        let sizes = shorter.chain([len_max]).map(|slot_len| Slots {
            slot_len,
            chunks: Vec::new(),
            free: Vec::new(),
        });
        Bodies {
            sizes: sizes.collect(),
        }
    }

    /// Bytes of the longest frame.
    pub(crate) fn len_max(&self) -> usize {
        self.sizes.last().map_or(0, |slots| slots.slot_len)
    }

    /// Room for so many bytes.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> BodyId {
        let fits = |slots: &Slots| slots.slot_len >= len;
        let size = self.sizes.iter().position(fits);
        let size = size.expect("no frame is longer than the longest");
        match self.sizes[size].free.pop() {
            Some(id) => id,
            None => self.grow(size),
        }
    }

    /// Allocates a chunk, and takes the first slot of it.
    fn grow(&mut self, size: usize) -> BodyId {
        let slots = &mut self.sizes[size];
        let first = slots.chunks.len() * CHUNK_SLOTS;
        let bytes = vec![0; slots.slot_len * CHUNK_SLOTS];
        slots.chunks.push(bytes.into());
        slots.free.reserve((slots.chunks.len() + 1) * CHUNK_SLOTS);
        for place in (first + 1..first + CHUNK_SLOTS).rev() {
            slots.free.push(BodyId::new(size, place));
        }
        BodyId::new(size, first)
    }

    /// The same bytes once more.
    pub(crate) fn copy(&mut self, id: BodyId) -> BodyId {
        let bytes = self.get(id).to_vec();
        let copy = self.take(bytes.len());
        self.get_mut(copy).copy_from_slice(&bytes);
        copy
    }

    #[inline]
    pub(crate) fn release(&mut self, id: BodyId) {
        self.sizes[id.size()].free.push(id);
    }

    #[inline]
    pub(crate) fn get(&self, id: BodyId) -> &[u8] {
        let slots = &self.sizes[id.size()];
        let (place, len) = (id.place(), slots.slot_len);
        &slots.chunks[place / CHUNK_SLOTS][place % CHUNK_SLOTS * len..][..len]
    }

    /// The bytes that a frame has, as far as they mean anything; none if it is one of numbers.
    #[inline]
    pub(crate) fn of(&self, frame: &Frame) -> &[u8] {
        let Some(body) = frame.payload.body() else {
            return &[];
        };
        let bytes = self.get(body);
        &bytes[..bytes.len().min(frame.len as usize)]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: BodyId) -> &mut [u8] {
        let slots = &mut self.sizes[id.size()];
        let (place, len) = (id.place(), slots.slot_len);
        &mut slots.chunks[place / CHUNK_SLOTS][place % CHUNK_SLOTS * len..][..len]
    }
}
