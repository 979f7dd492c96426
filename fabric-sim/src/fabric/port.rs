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
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) node: Node,
    pub(crate) link: Link,
    /// Its place in its switch.
    pub(crate) local: u16,
    pub(crate) is_down: bool,
    /// Its cable leads to another part of the simulation.
    pub(crate) is_cut: bool,
    /// What frames take longer than the cable: in the adapter that sends them, and in the node that they come to.
    pub(crate) latency: Span,
    /// How what leaves here is marked, if not as in all of the network.
    pub(crate) marking: Option<Box<[Option<Marking>; PRIORITIES]>>,
    /// Bits per second that are set aside for flows.
    pub(crate) reserved_bps: u64,
    /// The frame that is being sent.
    pub(crate) busy: Option<FrameId>,
    pub(crate) queues: [Queue; PRIORITIES],
    /// Bytes in all of them.
    pub(crate) queued: u64,
    /// Bytes of the copies that were made of what came in here.
    pub(crate) copied_bytes: u64,
    /// What goes before everything: pause frames and credits.
    pub(crate) control: Queue,
    /// Bit n: queue n holds frames.
    ready: u8,
    /// Bit n: the neighbour paused class n.
    pub(crate) paused: u8,
    pub(crate) paused_until: [Time; PRIORITIES],
    pub(crate) paused_since: [Time; PRIORITIES],
    pub(crate) expiry_armed: bool,
    /// A refresh of our own pauses is scheduled.
    pub(crate) refresh_armed: bool,
    /// Bit n: the watchdog looks at queue n.
    pub(crate) watched: u8,
    /// Bit n: the watchdog acts on queue n.
    pub(crate) stormed: u8,
    /// When a queue last sent, or began to wait: what the watchdog counts from.
    pub(crate) progress: [Time; PRIORITIES],
    turn: u8,
    deficit: [u32; PRIORITIES],
    quantum: [u32; PRIORITIES],
    strict: u8,
    pub(crate) credit: Option<Box<CreditState>>,
    /// For bit errors on what arrives here.
    pub(crate) rng: Rng,
    /// Probability, among 2^64, that a bit is wrong.
    pub(crate) bit_odds: f64,
    pub(crate) stats: Box<PortStats>,
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
        let quantum = qos
            .weights
            .map(|w| u32::from(w.max(1)) * (link.frame_max() + qos.tag_len()));
        Port {
            node,
            link,
            local,
            is_down: false,
            is_cut: false,
            latency: Span::ZERO,
            marking: None,
            reserved_bps: 0,
            busy: None,
            queues: [Queue::default(); PRIORITIES],
            queued: 0,
            copied_bytes: 0,
            control: Queue::default(),
            ready: 0,
            paused: 0,
            paused_until: [Time::ZERO; PRIORITIES],
            paused_since: [Time::ZERO; PRIORITIES],
            expiry_armed: false,
            refresh_armed: false,
            watched: 0,
            stormed: 0,
            progress: [Time::ZERO; PRIORITIES],
            turn: 0,
            deficit: [0; PRIORITIES],
            quantum,
            strict: qos.strict,
            credit,
            rng,
            bit_odds: link.bit_error_rate,
            stats: Box::default(),
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
        for queue in &mut self.queues {
            queue.carry(from, to);
        }
    }

    /// Adds a frame to the queue of its class.
    #[inline]
    pub(crate) fn enqueue(&mut self, slab: &mut FrameSlab, id: FrameId, priority: u8, now: Time) {
        let queue = &mut self.queues[usize::from(priority)];
        if queue.frames == 0 {
            self.progress[usize::from(priority)] = now;
        }
        queue.push(slab, id);
        self.queued += u64::from(slab.get(id).len);
        self.ready |= 1 << priority;
        let most = &mut self.stats.queue_max[usize::from(priority)];
        *most = queue.bytes.max(*most);
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
        let place = usize::from(priority);
        let id = self.queues[place].pop(slab)?;
        self.queued -= u64::from(slab.get(id).len);
        if self.queues[place].frames == 0 {
            self.ready &= !(1 << priority);
            self.deficit[place] = 0;
        }
        self.progress[place] = now;
        Some(id)
    }

    /// Queues that hold frames and may send.
    #[inline]
    fn eligible(&self, slab: &FrameSlab) -> u8 {
        let mut eligible = self.ready & !(self.paused & !self.stormed);
        if let Some(credit) = &self.credit {
            for priority in bits(eligible) {
                let head = self.queues[usize::from(priority)].head();
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
            let place = usize::from(self.turn);
            if eligible & (1 << self.turn) != 0
                && let Some(head) = self.queues[place].head()
            {
                let len = slab.get(head).len;
                if self.deficit[place] >= len {
                    self.deficit[place] -= len;
                    return Some(self.turn);
                }
            }
            self.turn = (self.turn + 1) % PRIORITIES as u8;
            let place = usize::from(self.turn);
            if eligible & (1 << self.turn) != 0 {
                self.deficit[place] += self.quantum[place];
            }
        }
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
