//! The events of a fabric to come, and which entity of the network schedules each.

use core::ops::{Deref, DerefMut};

use crate::engine::{EventQueue, Time};
use crate::frame::FrameId;
use crate::topology::{HostId, PortId};

/// An event of the fabric.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// The port has sent its frame.
    TxDone(PortId),
    /// The last bit of a frame is here.
    Arrive(PortId, FrameId),
    /// The port acts on a pause frame that came a while ago.
    PauseActs(PortId, FrameId),
    /// A pause may have ended because it was not repeated.
    PauseExpires(PortId),
    /// A pause that goes on is told again.
    PauseRefresh(PortId),
    /// Is this queue stuck?
    Watchdog(PortId, u8),
    /// The watchdog's action may end.
    Restore(PortId, u8),
    /// The adapter has taken in a frame.
    RxDone(HostId),
    /// A timer that a host has set.
    Timer(HostId, u32),
    /// A fault begins, goes on or ends.
    Fault(u32, Step),
}

/// What a fault does when its time has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Step {
    Begin,
    /// Down becomes up, up becomes down; pauses are told again.
    Again,
    /// Switches know by now which cables are up.
    Reroute,
    End,
}

/// The queue of a fabric's events.
#[derive(Debug)]
pub(crate) struct Agenda {
    queue: EventQueue<Event>,
    ports: u32,
    /// How many of the next events need not wait for memory.
    pub(crate) fetched: usize,
}

impl Agenda {
    /// An empty one, of a network with so many ports.
    pub(crate) fn new(ports: usize) -> Agenda {
        Agenda {
            queue: EventQueue::new(),
            ports: ports as u32,
            fetched: 0,
        }
    }

    /// Schedules an event. One for the past happens now.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, event: Event) {
        let entity = self.entity(&event);
        self.queue.push(time, entity, event);
    }

    /// The rank of an event that will happen in another part, where this has it happen.
    #[inline]
    pub(crate) fn rank_of(&mut self, event: &Event) -> u64 {
        let entity = self.entity(event);
        self.queue.next_rank(entity)
    }

    /// An empty one with the same time and ranks.
    pub(crate) fn fork(&self) -> Agenda {
        Agenda {
            queue: self.queue.fork(),
            ports: self.ports,
            fetched: 0,
        }
    }

    /// What schedules an event, by number: faults as a whole, a port, or what is above the adapter of a host.
    /// Simultaneous events happen in this order.
    #[inline]
    fn entity(&self, event: &Event) -> u32 {
        match *event {
            Event::Fault(..) => 0,
            Event::Arrive(port, _) => 1 + port.peer().0,
            Event::TxDone(port)
            | Event::PauseActs(port, _)
            | Event::PauseExpires(port)
            | Event::PauseRefresh(port)
            | Event::Watchdog(port, _)
            | Event::Restore(port, _) => 1 + port.0,
            Event::RxDone(host) | Event::Timer(host, _) => 1 + self.ports + host.0,
        }
    }
}

impl Deref for Agenda {
    type Target = EventQueue<Event>;

    fn deref(&self) -> &EventQueue<Event> {
        &self.queue
    }
}

impl DerefMut for Agenda {
    fn deref_mut(&mut self) -> &mut EventQueue<Event> {
        &mut self.queue
    }
}
