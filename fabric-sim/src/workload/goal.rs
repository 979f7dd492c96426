//! Schedules in the GOAL language, as LogGOPSim and ATLAHS have them: for each rank what it sends, receives and computes, and
//! what waits for what.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//! l1: calc 1000 cpu 0
//! l2: send 4096b to 1 tag 7
//! l2 requires l1
//! }
//! rank 1 {
//! l1: recv 4096b from 0 tag 7
//! }
//! ```
//!
//! A `calc` takes so many nanoseconds, one after the other on each `cpu` of a rank. A `send` has ended when its sender knows that
//! it has come; a `recv` when a message of that rank and tag is there (-1: any). `requires` waits for the end of an operation,
//! `irequires` for its beginning. `nic` is read and not used: a host has one adapter.

mod parse;

use crate::engine::{Span, Time};
use crate::topology::HostId;
use crate::workload::{Event, Todo, Workload};

pub use parse::GoalError;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send {
        to: u32,
        bytes: u32,
        tag: u32,
    },
    /// `None`: any.
    Recv {
        from: Option<u32>,
        tag: Option<u32>,
    },
    Calc {
        span: Span,
        cpu: u32,
    },
}

#[derive(Clone, Debug)]
struct Operation {
    rank: u32,
    kind: Kind,
    /// Operations that it waits for.
    waits: u32,
    /// Those that wait for its beginning, and for its end.
    after_start: Vec<u32>,
    after_end: Vec<u32>,
}

/// What a rank has posted, and what has come for it.
#[derive(Clone, Debug, Default)]
struct Rank {
    posted: Vec<u32>,
    /// Sender and tag of messages that no receive has taken.
    unexpected: Vec<(u32, u32)>,
    /// When each of its processors is free.
    cpus: Vec<(u32, Time)>,
}

/// A schedule, and how far it has come.
#[derive(Clone, Debug)]
pub struct Goal {
    operations: Vec<Operation>,
    ranks: Vec<Rank>,
    hosts: Vec<HostId>,
    ended: usize,
}

impl Goal {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`GoalError`] says which line, and what was expected there.
    pub fn parse(text: &str) -> Result<Goal, GoalError> {
        parse::parse(text)
    }

    /// Ranks that it is for.
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// Sends, receives and computations.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// Gives each rank a host: as many as there are ranks, in their order.
    pub fn on(self, hosts: Vec<HostId>) -> Goal {
        Goal { hosts, ..self }
    }

    /// Begins operations, and all that follows from it at once.
    fn begin(&mut self, mut ready: Vec<u32>, todo: &mut Todo) {
        while let Some(number) = ready.pop() {
            let operation = &self.operations[number as usize];
            let rank = operation.rank;
            let has_ended = match operation.kind {
                Kind::Calc { span, cpu } => {
                    let start = self.ranks[rank as usize].take_cpu(cpu, todo.now(), span);
                    let wait = start.since(todo.now()) + span;
                    todo.wait(self.hosts[rank as usize], wait, number.into());
                    false
                }
                Kind::Send { to, tag, .. } if to == rank => {
                    ready.extend(self.deliver(rank, rank, tag));
                    true
                }
                Kind::Send { to, bytes, .. } => {
                    let [from, to] = [rank, to].map(|rank| self.hosts[rank as usize]);
                    todo.send(from, to, bytes, number.into());
                    false
                }
                Kind::Recv { from, tag } => self.ranks[rank as usize].receive(number, from, tag),
            };
            ready.extend(self.release(number, false));
            if has_ended {
                ready.extend(self.end(number));
            }
        }
    }

    /// A message has come: a receive that was posted for it ends. Returns what is ready then.
    fn deliver(&mut self, rank: u32, from: u32, tag: u32) -> Vec<u32> {
        let posted = &self.ranks[rank as usize].posted;
        let takes = |number: &u32| match self.operations[*number as usize].kind {
            Kind::Recv { from: f, tag: t } => {
                f.is_none_or(|f| f == from) && t.is_none_or(|t| t == tag)
            }
            _ => false,
        };
        match posted.iter().position(takes) {
            Some(place) => {
                let number = self.ranks[rank as usize].posted.remove(place);
                self.end(number)
            }
            None => {
                self.ranks[rank as usize].unexpected.push((from, tag));
                Vec::new()
            }
        }
    }

    fn end(&mut self, number: u32) -> Vec<u32> {
        self.ended += 1;
        self.release(number, true)
    }

    /// An operation has begun or ended: returns those that waited for nothing else.
    fn release(&mut self, number: u32, is_end: bool) -> Vec<u32> {
        let operation = &mut self.operations[number as usize];
        let waiting = core::mem::take(match is_end {
            true => &mut operation.after_end,
            false => &mut operation.after_start,
        });
        let mut ready = waiting;
        ready.retain(|&next| {
            let waits = &mut self.operations[next as usize].waits;
            *waits -= 1;
            *waits == 0
        });
        ready
    }
}

impl Rank {
    /// Keeps a processor busy; returns from when.
    fn take_cpu(&mut self, cpu: u32, now: Time, span: Span) -> Time {
        let place = match self.cpus.iter().position(|&(number, _)| number == cpu) {
            Some(place) => place,
            None => {
                self.cpus.push((cpu, now));
                self.cpus.len() - 1
            }
        };
        let free = &mut self.cpus[place].1;
        let start = (*free).max(now);
        *free = start + span;
        start
    }

    /// Posts a receive; true if its message is there.
    fn receive(&mut self, number: u32, from: Option<u32>, tag: Option<u32>) -> bool {
        let fits = |&(f, t): &(u32, u32)| {
            from.is_none_or(|from| from == f) && tag.is_none_or(|tag| tag == t)
        };
        match self.unexpected.iter().position(fits) {
            Some(place) => {
                self.unexpected.remove(place);
                true
            }
            None => {
                self.posted.push(number);
                false
            }
        }
    }
}

impl Workload for Goal {
    fn start(&mut self, todo: &mut Todo) {
        let ready = (0u32..).zip(&self.operations).filter(|(_, o)| o.waits == 0);
        // From the last to the first: the first begins first.
        let mut ready: Vec<u32> = ready.map(|(number, _)| number).collect();
        ready.reverse();
        self.begin(ready, todo);
    }

    fn on_event(&mut self, event: Event, todo: &mut Todo) {
        let ready = match event {
            Event::Due(tag) | Event::Sent(tag) => self.end(tag as u32),
            Event::Arrived(number) => {
                let operation = &self.operations[number as usize];
                let Kind::Send { to, tag, .. } = operation.kind else {
                    return;
                };
                let from = operation.rank;
                self.deliver(to, from, tag)
            }
        };
        self.begin(ready, todo);
    }

    fn is_complete(&self) -> bool {
        self.ended == self.operations.len()
    }

    fn waits_for(&self) -> String {
        let (ended, all) = (self.ended, self.operations.len());
        let waiting = self.ranks.iter().enumerate().find_map(|(rank, r)| {
            let number = *r.posted.first()?;
            match self.operations[number as usize].kind {
                Kind::Recv { from, tag } => Some((rank, from, tag)),
                _ => None,
            }
        });
        let any = |n: Option<u32>| n.map_or("any".to_owned(), |n| n.to_string());
        let detail = waiting.map(|(rank, from, tag)| {
            let (from, tag) = (any(from), any(tag));
            format!("; rank {rank} receives from {from} with tag {tag}")
        });
        format!(
            "{ended} of {all} operations have ended{}",
            detail.unwrap_or_default()
        )
    }
}
