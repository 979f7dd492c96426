//! Has memory at hand before it is needed.
//!
//! A network of a thousand hosts is in no cache, and an event waits for one line of memory after the other: the port, its frame,
//! the switch, the next port. So what the next events will want is read for all of them at once, step by step: then the processor
//! fetches many lines at a time. Nothing depends on what is read.

use core::hint::black_box;

use crate::fabric::{Event, Fabric};
use crate::frame::FrameId;
use crate::topology::{Node, PortId};

/// As many events are looked at together: what they want stays in the first cache.
const EVENTS: usize = 16;

/// Ports of a network that is too large for a cache. In smaller ones to look costs more than it saves.
const PORTS_MANY: usize = 2048;

/// What an event will want, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Want {
    event: Event,
    frame: Option<FrameId>,
    /// Where a frame goes on that comes to a switch, or came from that leaves it.
    other: Option<PortId>,
}

impl Fabric {
    /// Fetches what an event and those after it will want. Returns the number of those.
    pub(super) fn look_ahead(&self, event: Event) -> usize {
        if self.ports.len() < PORTS_MANY {
            return usize::MAX;
        }
        let mut wants = [Want {
            event,
            frame: None,
            other: None,
        }; EVENTS];
        let mut count = 1;
        for (want, &event) in wants[1..].iter_mut().zip(self.queue.upcoming()) {
            want.event = event;
            count += 1;
        }
        let wants = &mut wants[..count];
        let mut sum = 0;
        for want in &mut *wants {
            sum ^= self.fetch_port(want);
        }
        for want in &mut *wants {
            sum ^= self.fetch_frame(want);
        }
        for want in wants {
            sum ^= self.fetch_other(want);
        }
        black_box(sum);
        count - 1
    }

    /// The port where it happens, and a frame that comes.
    #[inline]
    fn fetch_port(&self, want: &mut Want) -> u64 {
        match want.event {
            Event::TxDone(id) => {
                let port = &self.ports[id.index()];
                want.frame = port.busy;
                port.fetch()
            }
            Event::Arrive(id, frame) => {
                want.frame = Some(frame);
                self.ports[id.index()].fetch() ^ self.frames.fetch(frame)
            }
            _ => 0,
        }
    }

    /// Where a frame that comes goes on, and the frame that has left.
    #[inline]
    fn fetch_frame(&self, want: &mut Want) -> u64 {
        let Some(frame) = want.frame else {
            return 0;
        };
        let f = self.frames.get(frame);
        match want.event {
            Event::Arrive(id, _) => {
                let port = &self.ports[id.index()];
                let Node::Switch(switch) = port.node else {
                    return 0;
                };
                let ports = self.routes.next_on(switch, f.dst, f.rail);
                want.other = self.choose_of(switch, ports, f.flow_hash);
                let mmu = &self.switches[switch.index()].mmu;
                mmu.fetch(usize::from(port.local), f.priority)
            }
            Event::TxDone(id) => {
                want.other = Some(f.ingress);
                let class = self.ports[id.index()].next_class();
                let local = self.ports[f.ingress.index()].local;
                class.queue.bytes ^ u64::from(local) ^ self.frames.fetch(frame)
            }
            _ => 0,
        }
    }

    /// The next port of a frame that comes; the frame that leaves next, and the books of the one that has left.
    #[inline]
    fn fetch_other(&self, want: &Want) -> u64 {
        let (Some(frame), Some(other)) = (want.frame, want.other) else {
            return 0;
        };
        let (f, other) = (self.frames.get(frame), &self.ports[other.index()]);
        match want.event {
            Event::Arrive(..) => other.fetch() ^ other.classes[usize::from(f.priority)].queue.bytes,
            Event::TxDone(id) => {
                let port = &self.ports[id.index()];
                let head = port.next_class().queue.head();
                let head = head.map_or(0, |head| self.frames.fetch(head));
                let Node::Switch(switch) = port.node else {
                    return head;
                };
                let mmu = &self.switches[switch.index()].mmu;
                mmu.fetch(usize::from(other.local), f.priority) ^ head
            }
            _ => 0,
        }
    }
}
