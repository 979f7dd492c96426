//! Finding deadlocks: queues that wait for each other in a circle.
//!
//! A queue that is paused (or has no credits) waits for room at its neighbour: for the frames that
//! came through that cable to leave the neighbour's own queues. If those wait as well, and so on
//! round to the first, nothing will ever move again.

use crate::engine::Time;
use crate::fabric::Fabric;
use crate::fabric::port::bits;
use crate::qos::PRIORITIES;
use crate::topology::{Node, PortId, PortName, Topology};

/// A queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct StuckQueue {
    /// The port of the queue.
    pub port: PortId,
    /// The class of the queue.
    pub priority: u8,
}

/// Queues that wait for each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// Each waits for the next, and the last for the first.
    pub cycle: Vec<StuckQueue>,
}

impl Deadlock {
    /// The cycle in words: `s0>s1 waits for s1>s2 ...`.
    pub fn describe(&self, topology: &Topology) -> String {
        let round = self.cycle.iter().chain(self.cycle.first());
        let names = round.map(|queue| PortName(topology, queue.port).to_string());
        names.collect::<Vec<_>>().join(" waits for ")
    }
}

/// How far the search has come with a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    OnPath,
    Done,
}

impl Fabric {
    /// Looks for queues that wait for each other in a circle, now. Costs a look at every queued frame.
    pub fn find_deadlock(&self) -> Option<Deadlock> {
        let blocked: Vec<u8> = (0..self.ports.len()).map(|p| self.blocked(p)).collect();
        let mut marks = vec![[Mark::New; PRIORITIES]; self.ports.len()];
        for (place, &classes) in blocked.iter().enumerate() {
            for priority in bits(classes) {
                if marks[place][usize::from(priority)] == Mark::New {
                    let start = StuckQueue {
                        port: PortId(place as u32),
                        priority,
                    };
                    if let Some(cycle) = self.search(start, &blocked, &mut marks) {
                        return Some(Deadlock { cycle });
                    }
                }
            }
        }
        None
    }

    /// True if any queue holds frames and may not send: without, there is no deadlock.
    pub(crate) fn is_any_blocked(&self) -> bool {
        (0..self.ports.len()).any(|place| self.ports[place].queued > 0 && self.blocked(place) != 0)
    }

    /// When a queue last sent a frame, or began to hold some.
    pub(crate) fn last_sent(&self, queue: StuckQueue) -> Time {
        self.ports[queue.port.index()].classes[usize::from(queue.priority)].progress
    }

    /// Depth first, without recursion: rings can be long.
    fn search(
        &self,
        start: StuckQueue,
        blocked: &[u8],
        marks: &mut [[Mark; PRIORITIES]],
    ) -> Option<Vec<StuckQueue>> {
        let mut path = vec![(start, self.waits_for(start, blocked))];
        marks[start.port.index()][usize::from(start.priority)] = Mark::OnPath;
        while let Some((at, next)) = path.last_mut() {
            let Some(other) = next.pop() else {
                marks[at.port.index()][usize::from(at.priority)] = Mark::Done;
                path.pop();
                continue;
            };
            let mark = &mut marks[other.port.index()][usize::from(other.priority)];
            match *mark {
                Mark::Done => {}
                Mark::OnPath => {
                    let from = path.iter().position(|(queue, _)| *queue == other)?;
                    return Some(path[from..].iter().map(|(queue, _)| *queue).collect());
                }
                Mark::New => {
                    *mark = Mark::OnPath;
                    path.push((other, self.waits_for(other, blocked)));
                }
            }
        }
        None
    }

    /// Classes of a port that hold frames and may not send.
    fn blocked(&self, place: usize) -> u8 {
        let port = &self.ports[place];
        let mut blocked = 0;
        for priority in 0..PRIORITIES as u8 {
            let Some(head) = port.classes[usize::from(priority)].queue.head() else {
                continue;
            };
            let len = self.frames.get(head).len;
            let lacks = port
                .credit
                .as_ref()
                .is_some_and(|c| !c.allows(priority, len));
            if (port.is_paused(priority) && port.stormed & (1 << priority) == 0) || lacks {
                blocked |= 1 << priority;
            }
        }
        blocked
    }

    /// The neighbour's blocked queues that hold frames which came from this one.
    fn waits_for(&self, queue: StuckQueue, blocked: &[u8]) -> Vec<StuckQueue> {
        let entrance = queue.port.peer();
        let node = self.ports[entrance.index()].node;
        if let Node::Host(_) = node {
            return Vec::new();
        }
        let ports = (0..self.ports.len()).filter(|&p| self.ports[p].node == node);
        let holds = |&p: &usize| {
            blocked[p] & (1 << queue.priority) != 0
                && self.ports[p].classes[usize::from(queue.priority)]
                    .queue
                    .iter(&self.frames)
                    .any(|frame| frame.ingress == entrance)
        };
        ports
            .filter(holds)
            .map(|p| StuckQueue {
                port: PortId(p as u32),
                priority: queue.priority,
            })
            .collect()
    }
}
