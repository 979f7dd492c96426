//! One end of a cable: queues, which of them is next, and what the neighbour allows.

use crate::engine::{Rng, Span, Time};
use crate::fabric::credit::CreditState;
use crate::fabric::stats::PortStats;
use crate::frame::{FrameId, FrameSlab, Queue, Store};
use crate::link::Link;
use crate::qos::{FlowControl, PRIORITIES, Qos};
use crate::switch::Marking;
use crate::topology::Node;

/// A port, of a switch or of an adapter.
///
/// A large network is in no cache as a whole, so time goes by lines of memory. What each frame touches is in front, in two of
/// 64 bytes, and in one for its class.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    pub(crate) node: Node,
    pub(crate) link: Link,
    /// What frames take longer than the cable: in the adapter that sends them, and in the node that they come to.
    pub(crate) latency: Span,
    /// Bytes in all queues.
    pub(crate) queued: u64,
    /// The frame that is being sent.
    pub(crate) busy: Option<FrameId>,
    /// Its place in its switch.
    pub(crate) local: u16,
    /// Bit n: queue n holds frames.
    ready: u8,
    /// Bit n: the neighbour paused class n.
    pub(crate) paused: u8,

    /// What goes before everything: pause frames and credits.
    pub(crate) control: Queue,
    pub(crate) received_frames: u64,
    pub(crate) received_bytes: u64,
    /// How what leaves here is marked, if not as in all of the network.
    pub(crate) marking: Option<Box<[Option<Marking>; PRIORITIES]>>,
    pub(crate) credit: Option<Box<CreditState>>,
    pub(crate) is_down: bool,
    /// Its cable leads to another part of the simulation.
    pub(crate) is_cut: bool,
    /// Bit n: the watchdog looks at queue n.
    pub(crate) watched: u8,
    /// Bit n: the watchdog acts on queue n.
    pub(crate) stormed: u8,
    turn: u8,
    strict: u8,
    pub(crate) expiry_armed: bool,
    /// A refresh of our own pauses is scheduled.
    pub(crate) refresh_armed: bool,

    pub(crate) classes: [Class; PRIORITIES],

    pub(crate) paused_until: [Time; PRIORITIES],
    pub(crate) paused_since: [Time; PRIORITIES],
    /// Bits per second that are set aside for flows.
    pub(crate) reserved_bps: u64,
    /// Bytes of the copies that were made of what came in here.
    pub(crate) copied_bytes: u64,
    /// For bit errors on what leaves here.
    pub(crate) rng: Rng,
    /// What is counted rarely: [`Port::stats`] has all.
    pub(crate) rare: Box<PortStats>,
}

/// What a port has for a class.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Class {
    pub(crate) queue: Queue,
    /// When the queue last sent, or began to wait: what the watchdog counts from.
    pub(crate) progress: Time,
    deficit: u32,
    quantum: u32,
    pub(crate) sent_frames: u64,
    pub(crate) sent_bytes: u64,
    /// Most bytes that were in the queue.
    queue_max: u64,
}

impl Port {
    pub(crate) fn new(node: Node, link: Link, local: u16, rng: Rng, qos: &Qos) -> Port {
        let credit = match qos.flow_control {
            FlowControl::Credits { buffer, .. } => {
                Some(Box::new(CreditState::new(buffer, qos.lossless)))
            }
            _ => None,
        };
        // At least a frame each turn, so that a turn is never in vain.
        let classes = qos.weights.map(|weight| Class {
            queue: Queue::default(),
            progress: Time::ZERO,
            deficit: 0,
            quantum: u32::from(weight.max(1)) * (link.frame_max() + qos.tag_len()),
            sent_frames: 0,
            sent_bytes: 0,
            queue_max: 0,
        });
        Port {
            node,
            link,
            latency: Span::ZERO,
            queued: 0,
            busy: None,
            local,
            ready: 0,
            paused: 0,
            control: Queue::default(),
            received_frames: 0,
            received_bytes: 0,
            marking: None,
            credit,
            is_down: false,
            is_cut: false,
            watched: 0,
            stormed: 0,
            turn: 0,
            strict: qos.strict,
            expiry_armed: false,
            refresh_armed: false,
            classes,
            paused_until: [Time::ZERO; PRIORITIES],
            paused_since: [Time::ZERO; PRIORITIES],
            reserved_bps: 0,
            copied_bytes: 0,
            rng,
            rare: Box::default(),
        }
    }

    /// All counters.
    pub(crate) fn stats(&self) -> PortStats {
        let classes = &self.classes;
        PortStats {
            sent_frames: core::array::from_fn(|class| classes[class].sent_frames),
            sent_bytes: core::array::from_fn(|class| classes[class].sent_bytes),
            received_frames: self.received_frames,
            received_bytes: self.received_bytes,
            queue_max: core::array::from_fn(|class| classes[class].queue_max),
            ..*self.rare
        }
    }

    /// What is known of a port in the parts that do not have it.
    pub(crate) fn outside(&self) -> Port {
        Port {
            is_down: self.is_down,
            latency: self.latency,
            ..Port::new(
                self.node,
                self.link,
                self.local,
                self.rng.clone(),
                &Qos::default(),
            )
        }
    }

    /// Moves all frames that it has to another place.
    pub(crate) fn carry_frames(&mut self, from: &mut Store<'_>, to: &mut Store<'_>) {
        self.busy = self.busy.map(|id| from.carry(id, to));
        self.control.carry(from, to);
        for class in &mut self.classes {
            class.queue.carry(from, to);
        }
    }

    /// Adds a frame to the queue of its class.
    #[inline]
    pub(crate) fn enqueue(&mut self, slab: &mut FrameSlab, id: FrameId, priority: u8, now: Time) {
        let class = &mut self.classes[usize::from(priority)];
        if class.queue.frames == 0 {
            class.progress = now;
        }
        class.queue.push(slab, id);
        class.queue_max = class.queue.bytes.max(class.queue_max);
        self.queued += u64::from(slab.get(id).len);
        self.ready |= 1 << priority;
    }

    /// Takes the next frame out that may be sent now.
    #[inline]
    pub(crate) fn dequeue(&mut self, slab: &FrameSlab, now: Time) -> Option<FrameId> {
        if self.control.frames > 0 {
            return self.control.pop(slab);
        }
        let priority = self.next_priority(slab)?;
        let id = self.take_from(slab, priority, now)?;
        if let Some(credit) = &mut self.credit {
            credit.spend(priority, slab.get(id).len);
        }
        Some(id)
    }

    /// Takes the first frame of one queue.
    #[inline]
    pub(crate) fn take_from(
        &mut self,
        slab: &FrameSlab,
        priority: u8,
        now: Time,
    ) -> Option<FrameId> {
        let class = &mut self.classes[usize::from(priority)];
        let id = class.queue.pop(slab)?;
        self.queued -= u64::from(slab.get(id).len);
        if class.queue.frames == 0 {
            self.ready &= !(1 << priority);
            class.deficit = 0;
        }
        class.progress = now;
        Some(id)
    }

    /// Queues that hold frames and may send.
    #[inline]
    fn eligible(&self, slab: &FrameSlab) -> u8 {
        let mut eligible = self.ready & !(self.paused & !self.stormed);
        if let Some(credit) = &self.credit {
            for priority in bits(eligible) {
                let head = self.classes[usize::from(priority)].queue.head();
                if !head.is_some_and(|id| credit.allows(priority, slab.get(id).len)) {
                    eligible &= !(1 << priority);
                }
            }
        }
        eligible
    }

    /// The class that sends next.
    #[inline]
    fn next_priority(&mut self, slab: &FrameSlab) -> Option<u8> {
        let eligible = self.eligible(slab);
        let strict = eligible & self.strict;
        if strict != 0 {
            return Some(7 - strict.leading_zeros() as u8);
        }
        if eligible == 0 {
            return None;
        }
        if eligible.is_power_of_two() {
            // It shares with no other class: no class is owed anything.
            return Some(eligible.trailing_zeros() as u8);
        }
        loop {
            let class = &mut self.classes[usize::from(self.turn)];
            if eligible & (1 << self.turn) != 0
                && let Some(head) = class.queue.head()
            {
                let len = slab.get(head).len;
                if class.deficit >= len {
                    class.deficit -= len;
                    return Some(self.turn);
                }
            }
            self.turn = (self.turn + 1) % PRIORITIES as u8;
            let class = &mut self.classes[usize::from(self.turn)];
            if eligible & (1 << self.turn) != 0 {
                class.deficit += class.quantum;
            }
        }
    }

    /// Reads of the two lines that each frame touches.
    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        self.queued ^ self.received_bytes
    }

    /// The class that sends next, most probably.
    #[inline]
    pub(crate) fn next_class(&self) -> &Class {
        &self.classes[(self.ready & !self.paused).trailing_zeros() as usize % PRIORITIES]
    }

    /// How long it takes until all is sent that it holds; for ever without a carrier.
    #[inline]
    pub(crate) fn backlog(&self, slab: &FrameSlab) -> Span {
        if self.is_down {
            return Span::from_ps(u64::MAX);
        }
        let sending = self.busy.map_or(0, |id| slab.get(id).len);
        self.link.rate.time_of(self.queued + u64::from(sending))
    }

    /// Bits per second that are not set aside.
    pub(crate) fn unreserved(&self) -> u64 {
        self.link.rate.as_bps().saturating_sub(self.reserved_bps)
    }

    /// True if a class may not send although it could.
    #[inline]
    pub(crate) fn is_paused(&self, priority: u8) -> bool {
        self.paused & (1 << priority) != 0
    }
}

/// The numbers of the bits that are set, lowest first.
#[inline]
pub(crate) fn bits(mut mask: u8) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as u8;
        mask &= mask.checked_sub(1)?;
        Some(bit)
    })
}

// A class has a line of its own, and what is before the classes has two.
const _: () = assert!(size_of::<Class>() == 64 && core::mem::offset_of!(Port, classes) == 128);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Rate;
    use crate::frame::{Frame, Payload};
    use crate::topology::{HostId, PortId};

    fn frame(priority: u8, len: u32) -> Frame {
        Frame {
            next: None,
            len,
            src: HostId(0),
            dst: HostId(1),
            flow_hash: 0,
            ingress: PortId(0),
            priority,
            tos: 0,
            ttl: 64,
            rail: 0,
            is_behind: false,
            born: Time::ZERO,
            digest: 0,
            payload: Payload::Flow {
                flow: 0,
                packet: 0,
                payload: len,
            },
        }
    }

    fn served(qos: &Qos, lens: &[(u8, u32)], turns: usize) -> [u64; 8] {
        let node = Node::Host(HostId(0));
        let mut port = Port::new(node, Link::new(Rate::gbps(100)), 0, Rng::new(0), qos);
        let mut slab = FrameSlab::default();
        let mut bytes = [0; 8];
        for &(priority, len) in lens {
            for _ in 0..4 {
                let id = slab.insert(frame(priority, len));
                port.enqueue(&mut slab, id, priority, Time::ZERO);
            }
        }
        for _ in 0..turns {
            let id = port.dequeue(&slab, Time::ZERO).expect("never empty");
            let Frame { priority, len, .. } = slab.remove(id);
            bytes[usize::from(priority)] += u64::from(len);
            let id = slab.insert(frame(priority, len));
            port.enqueue(&mut slab, id, priority, Time::ZERO);
        }
        bytes
    }

    #[test]
    fn shares_are_of_bytes_and_follow_the_weights() {
        let mut qos = Qos::default();
        qos.weights[1] = 3;
        let bytes = served(&qos, &[(0, 1500), (1, 200), (5, 64)], 100_000);
        let share = |p: usize| bytes[p] as f64 / bytes[5] as f64;
        assert!(
            (share(0) - 1.0).abs() < 0.02 && (share(1) - 3.0).abs() < 0.06,
            "{bytes:?}"
        );
    }

    #[test]
    fn strict_goes_first_and_the_highest_of_them() {
        let qos = Qos {
            strict: 1 << 6 | 1 << 2,
            ..Qos::default()
        };
        assert_eq!(
            served(&qos, &[(0, 100), (2, 100), (6, 100), (7, 100)], 50)[6],
            5_000
        );
        assert_eq!(served(&qos, &[(0, 100), (2, 100), (7, 100)], 50)[2], 5_000);
    }

    #[test]
    fn a_paused_class_waits_alone() {
        let qos = Qos::default();
        let node = Node::Host(HostId(0));
        let mut port = Port::new(node, Link::new(Rate::gbps(100)), 0, Rng::new(0), &qos);
        let mut slab = FrameSlab::default();
        for priority in [3, 0] {
            let id = slab.insert(frame(priority, 100));
            port.enqueue(&mut slab, id, priority, Time::ZERO);
        }
        port.paused = 1 << 3;
        let id = port.dequeue(&slab, Time::ZERO).expect("the other class");
        assert_eq!(slab.get(id).priority, 0);
        assert!(port.dequeue(&slab, Time::ZERO).is_none());
        port.paused = 0;
        assert!(port.dequeue(&slab, Time::ZERO).is_some());
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
    }
}
