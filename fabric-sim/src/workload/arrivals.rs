//! An open loop: messages begin at random times, whether or not earlier ones have ended.

use core::any::Any;
use std::sync::Arc;

use crate::engine::{Entity, Rate, Rng, Span, Time};
use crate::topology::HostId;
use crate::workload::{Divisible, Event, Sizes, Todo, Workload};

/// Messages from each host to hosts that are drawn: Poisson arrivals, at a load.
#[derive(Clone, Debug)]
pub struct Arriving {
    sizes: Arc<Sizes>,
    /// Between two messages of a host, in the mean.
    interval: Span,
    stop: Time,
    to: Arc<[HostId]>,
    senders: Vec<Sender>,
    started: u64,
    ended: u64,
    /// Senders that send no more.
    done: usize,
}

#[derive(Clone, Debug)]
struct Sender {
    host: HostId,
    rng: Rng,
}

impl Arriving {
    /// Each of `from` sends to one of `to` at a time, until then. At a load of 1 the payload alone would fill a link of that rate.
    ///
    /// `job` is its number among the simulation's: each sender of each job has random numbers of its own.
    pub fn new(
        (seed, job): (u64, u32),
        sizes: Sizes,
        (rate, load): (Rate, f64),
        stop: Time,
        (from, to): (&[HostId], Vec<HostId>),
    ) -> Arriving {
        let busy = rate.time_of(sizes.mean().max(1)).ps() as f64;
        let purpose = format!("arrivals of job {job}");
        let sender = |&host: &HostId| Sender {
            host,
            rng: Rng::stream(seed, Entity::Host(host.0), &purpose),
        };
        Arriving {
            interval: Span::from_ps((busy / load) as u64),
            sizes: Arc::new(sizes),
            stop,
            to: to.into(),
            senders: from.iter().map(sender).collect(),
            started: 0,
            ended: 0,
            done: 0,
        }
    }

    /// Lets the time until the next message of a sender pass.
    fn wait(&mut self, place: usize, todo: &mut Todo) {
        let sender = &mut self.senders[place];
        let draw = u128::from(sender.rng.exponential_q32());
        let wait = Span::from_ps(((u128::from(self.interval.ps()) * draw) >> 32) as u64);
        if todo.now() + wait < self.stop {
            todo.wait(sender.host, wait, place as u64);
        } else {
            self.done += 1;
        }
    }

    fn send(&mut self, place: usize, todo: &mut Todo) {
        let sender = &mut self.senders[place];
        let others = self.to.iter().filter(|&&to| to != sender.host).count() as u64;
        let mut chosen = sender.rng.below(others) as usize;
        // The draw passes over the sender itself.
        if let Some(own) = self.to.iter().position(|&to| to == sender.host)
            && chosen >= own
        {
            chosen += 1;
        }
        let bytes = self.sizes.draw(&mut sender.rng);
        todo.send(sender.host, self.to[chosen], bytes, place as u64);
        self.started += 1;
    }
}

impl Workload for Arriving {
    fn start(&mut self, todo: &mut Todo) {
        for place in 0..self.senders.len() {
            self.wait(place, todo);
        }
    }

    fn on_event(&mut self, event: Event, todo: &mut Todo) {
        match event {
            Event::Due(place) => {
                self.send(place as usize, todo);
                self.wait(place as usize, todo);
            }
            Event::Sent(_) => self.ended += 1,
            Event::Arrived(_) => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.ended == self.started && self.done == self.senders.len()
    }

    fn waits_for(&self) -> String {
        format!("{} of {} messages have ended", self.ended, self.started)
    }

    fn keeps_messages(&self) -> bool {
        true
    }

    fn divisible(&mut self) -> Option<&mut dyn Divisible> {
        Some(self)
    }
}

impl Divisible for Arriving {
    fn hosts(&self) -> Vec<HostId> {
        let senders = self.senders.iter().map(|sender| sender.host);
        senders.chain(self.to.iter().copied()).collect()
    }

    fn fork(&self) -> Box<dyn Workload> {
        Box::new(Arriving {
            started: 0,
            ended: 0,
            done: 0,
            ..self.clone()
        })
    }

    fn exchange(&mut self, other: &mut dyn Workload, is_theirs: &dyn Fn(HostId) -> bool) {
        let other: &mut dyn Any = other;
        let Some(other) = other.downcast_mut::<Arriving>() else {
            return;
        };
        for (mine, its) in self.senders.iter_mut().zip(&mut other.senders) {
            if is_theirs(mine.host) {
                core::mem::swap(mine, its);
            }
        }
        self.started += core::mem::take(&mut other.started);
        self.ended += core::mem::take(&mut other.ended);
        self.done += core::mem::take(&mut other.done);
    }

    fn done(&self) -> u64 {
        self.ended + self.done as u64
    }
}
