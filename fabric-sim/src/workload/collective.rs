//! Collective operations as libraries of MPI and NCCL do them: in steps, in each of which a rank sends a message and waits for one.
//!
//! | operation | algorithms |
//! |---|---|
//! | all-reduce | `ring`, `tree` (binomial: reduced to rank 0, then broadcast), `halving-doubling` (Rabenseifner), `recursive-doubling` |
//! | all-gather | `ring`, `recursive-doubling` |
//! | reduce-scatter | `ring`, `halving` |
//! | all-to-all | `pairwise`: in step *k*, rank *r* sends to *r + k* |
//! | broadcast | `tree` (binomial) |
//!
//! Only communication takes time: adding numbers up does not, but for [`Collective::compute`].

use core::any::Any;
use std::sync::Arc;

use crate::engine::Span;
use crate::topology::HostId;
use crate::workload::{Divisible, Event, MESSAGE_MAX, Todo, Workload};

/// The operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CollectiveKind {
    /// Each rank has the sum of all.
    AllReduce(Algorithm),
    /// Each rank has the parts of all.
    AllGather(Algorithm),
    /// Each rank has a part of the sum.
    ReduceScatter(Algorithm),
    /// Each rank has a part from each.
    AllToAll,
    /// That, with a length of its own for each pair: `lengths[from][to]`.
    AllToAllV(Vec<Vec<u32>>),
    /// Each rank has what the root had: the first host.
    Broadcast,
}

/// How it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Algorithm {
    /// Each rank sends to the next.
    #[default]
    Ring,
    /// A binomial tree.
    Tree,
    /// Halves are exchanged, then quarters, and the way back.
    HalvingDoubling,
    /// The first half of that.
    Halving,
    /// Everything is exchanged, with a partner that is twice as far each time.
    RecursiveDoubling,
}

/// Why there is no such collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CollectiveError {
    /// Alone.
    #[error("a collective needs two hosts")]
    Alone,
    /// A host twice.
    #[error("a host is named twice")]
    Twice,
    /// Partners by powers of two.
    #[error("{0} hosts: this algorithm needs a power of two")]
    PowerOfTwo(usize),
    /// Does not exist.
    #[error("there is no such algorithm of this operation")]
    Algorithm,
    /// Messages.
    #[error("a message would have more than 2 GiB")]
    Long,
    /// The matrix.
    #[error(
        "a length for each pair is needed: a list of as many lists as hosts, each of as many numbers"
    )]
    Lengths,
}

/// A collective operation, once or again and again.
#[derive(Clone, Debug)]
pub struct Collective {
    kind: Arc<CollectiveKind>,
    hosts: Arc<[HostId]>,
    bytes: u64,
    repeat: u32,
    compute: Span,
    ranks: Vec<Rank>,
    /// Ranks that are done.
    done: usize,
}

/// How far a rank is.
#[derive(Clone, Debug, Default)]
struct Rank {
    /// The step that it is at, of all repetitions together.
    step: u32,
    is_sending: bool,
    /// It computes, between two repetitions.
    is_busy: bool,
    /// Steps of which the message came before its time.
    early: Vec<u32>,
}

/// What a rank does in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Step {
    send: Option<(usize, u64)>,
    receives: bool,
    /// The next step begins when the message has come, not when it has been posted.
    is_sent_first: bool,
}

/// Ranks that a tag has room for.
const RANK_BITS: u32 = 16;

impl Collective {
    /// Of so many bytes: those that each rank has in the end, or in the beginning if that is more.
    ///
    /// # Errors
    /// [`CollectiveError`].
    pub fn new(
        kind: CollectiveKind,
        hosts: Vec<HostId>,
        bytes: u64,
    ) -> Result<Collective, CollectiveError> {
        let count = hosts.len();
        if count < 2 {
            return Err(CollectiveError::Alone);
        }
        let mut sorted = hosts.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != count {
            return Err(CollectiveError::Twice);
        }
        use Algorithm::{Halving, HalvingDoubling, RecursiveDoubling, Ring, Tree};
        let powers = match &kind {
            CollectiveKind::AllReduce(Ring | Tree)
            | CollectiveKind::AllGather(Ring)
            | CollectiveKind::ReduceScatter(Ring)
            | CollectiveKind::AllToAll
            | CollectiveKind::Broadcast => false,
            CollectiveKind::AllReduce(HalvingDoubling | RecursiveDoubling)
            | CollectiveKind::AllGather(RecursiveDoubling)
            | CollectiveKind::ReduceScatter(Halving) => true,
            CollectiveKind::AllToAllV(lengths) => {
                if lengths.len() != count || lengths.iter().any(|row| row.len() != count) {
                    return Err(CollectiveError::Lengths);
                }
                false
            }
            _ => return Err(CollectiveError::Algorithm),
        };
        if powers && !count.is_power_of_two() {
            return Err(CollectiveError::PowerOfTwo(count));
        }
        if bytes > MESSAGE_MAX {
            return Err(CollectiveError::Long);
        }
        Ok(Collective {
            kind: Arc::new(kind),
            ranks: vec![Rank::default(); count],
            hosts: hosts.into(),
            bytes,
            repeat: 1,
            compute: Span::ZERO,
            done: 0,
        })
    }

    /// This operation, so many times: a rank begins again when its part is done.
    pub fn repeat(self, times: u32) -> Collective {
        Collective {
            repeat: times.max(1),
            ..self
        }
    }

    /// With so much time of computing at each rank before each operation.
    pub fn compute(self, span: Span) -> Collective {
        Collective {
            compute: span,
            ..self
        }
    }

    fn log2(&self) -> u32 {
        self.hosts.len().next_power_of_two().trailing_zeros()
    }

    /// Steps of one operation.
    fn steps(&self) -> u32 {
        let count = self.hosts.len() as u32;
        match &*self.kind {
            CollectiveKind::AllReduce(Algorithm::Ring) => 2 * (count - 1),
            CollectiveKind::AllReduce(Algorithm::RecursiveDoubling) => self.log2(),
            CollectiveKind::AllReduce(_) => 2 * self.log2(),
            CollectiveKind::AllGather(Algorithm::Ring)
            | CollectiveKind::ReduceScatter(Algorithm::Ring)
            | CollectiveKind::AllToAll
            | CollectiveKind::AllToAllV(_) => count - 1,
            _ => self.log2(),
        }
    }

    /// Bytes of a part: all parts together are everything.
    fn part(&self, number: u64) -> u64 {
        let count = self.hosts.len() as u64;
        self.bytes / count + u64::from(number % count < self.bytes % count)
    }

    fn step(&self, rank: usize, step: u32) -> Step {
        let count = self.hosts.len();
        match &*self.kind {
            CollectiveKind::AllReduce(Algorithm::Ring)
            | CollectiveKind::AllGather(Algorithm::Ring)
            | CollectiveKind::ReduceScatter(Algorithm::Ring) => {
                // The part that came in the step before.
                let part = (rank + 2 * count - step as usize % count) % count;
                Step::exchange((rank + 1) % count, self.part(part as u64))
            }
            CollectiveKind::AllReduce(Algorithm::RecursiveDoubling) => {
                Step::exchange(rank ^ (1 << step), self.bytes)
            }
            CollectiveKind::AllGather(_) => {
                Step::exchange(rank ^ (1 << step), (self.bytes << step) / count as u64)
            }
            CollectiveKind::ReduceScatter(_) => self.halve(rank, step),
            CollectiveKind::AllReduce(Algorithm::Tree) => {
                let half = self.log2();
                if step < half {
                    self.reduce(rank, step)
                } else {
                    self.broadcast(rank, step - half)
                }
            }
            CollectiveKind::AllReduce(_) => {
                let half = self.log2();
                self.halve(rank, step.min(2 * half - 1 - step))
            }
            CollectiveKind::AllToAll => {
                let to = (rank + step as usize + 1) % count;
                Step::exchange(to, self.part(to as u64))
            }
            CollectiveKind::AllToAllV(lengths) => {
                let to = (rank + step as usize + 1) % count;
                Step::exchange(to, lengths[rank][to].into())
            }
            CollectiveKind::Broadcast => self.broadcast(rank, step),
        }
    }

    fn halve(&self, rank: usize, step: u32) -> Step {
        let distance = self.hosts.len() >> (step + 1);
        Step::exchange(rank ^ distance, self.bytes >> (step + 1))
    }

    /// In step *k*, those below 2^*k* send to those so much above.
    fn broadcast(&self, rank: usize, step: u32) -> Step {
        let distance = 1 << step;
        let to = rank + distance;
        Step {
            send: (rank < distance && to < self.hosts.len()).then_some((to, self.bytes)),
            receives: (distance..2 * distance).contains(&rank),
            is_sent_first: true,
        }
    }

    /// The other way round.
    fn reduce(&self, rank: usize, step: u32) -> Step {
        let distance = 1 << (self.log2() - 1 - step);
        let is_sender = (distance..2 * distance).contains(&rank);
        Step {
            send: is_sender.then(|| (rank - distance, self.bytes)),
            receives: rank < distance && rank + distance < self.hosts.len(),
            is_sent_first: true,
        }
    }

    fn total(&self) -> u32 {
        self.steps() * self.repeat
    }

    /// A rank goes through its steps as far as it can.
    fn go_on(&mut self, rank: usize, todo: &mut Todo) {
        let (steps, total) = (self.steps(), self.total());
        loop {
            let at = &self.ranks[rank];
            let number = at.step;
            if number == total || at.is_busy {
                return;
            }
            let step = self.step(rank, number % steps);
            let place = self.ranks[rank].early.iter().position(|&e| e == number);
            let is_waiting = self.ranks[rank].is_sending && step.is_sent_first;
            if is_waiting || (step.receives && place.is_none()) {
                return;
            }
            let at = &mut self.ranks[rank];
            if let Some(place) = place {
                at.early.swap_remove(place);
            }
            at.step += 1;
            if at.step == total {
                self.done += 1;
            } else {
                self.enter(rank, todo);
            }
        }
    }

    /// A rank is at a new step: its message goes.
    fn enter(&mut self, rank: usize, todo: &mut Todo) {
        let (steps, number) = (self.steps(), self.ranks[rank].step);
        if number.is_multiple_of(steps)
            && self.compute > Span::ZERO
            && !core::mem::replace(&mut self.ranks[rank].is_busy, true)
        {
            todo.wait(self.hosts[rank], self.compute, rank as u64);
            return;
        }
        self.ranks[rank].is_busy = false;
        let step = self.step(rank, number % steps);
        let Some((to, bytes)) = step.send else {
            return;
        };
        self.ranks[rank].is_sending = step.is_sent_first;
        let ranks = (rank as u64) << RANK_BITS | to as u64;
        let tag = u64::from(number) << (2 * RANK_BITS) | ranks;
        todo.send(self.hosts[rank], self.hosts[to], bytes as u32, tag);
    }
}

impl Step {
    /// Sends to one, receives from another or the same.
    fn exchange(to: usize, bytes: u64) -> Step {
        Step {
            send: Some((to, bytes)),
            receives: true,
            is_sent_first: false,
        }
    }
}

impl Workload for Collective {
    fn start(&mut self, todo: &mut Todo) {
        for rank in 0..self.ranks.len() {
            self.enter(rank, todo);
            self.go_on(rank, todo);
        }
    }

    fn on_event(&mut self, event: Event, todo: &mut Todo) {
        let mask = (1 << RANK_BITS) - 1;
        match event {
            Event::Arrived(tag) => {
                let rank = (tag & mask) as usize;
                self.ranks[rank].early.push((tag >> (2 * RANK_BITS)) as u32);
                self.go_on(rank, todo);
            }
            Event::Sent(tag) => {
                let rank = (tag >> RANK_BITS & mask) as usize;
                if core::mem::take(&mut self.ranks[rank].is_sending) {
                    self.go_on(rank, todo);
                }
            }
            Event::Due(rank) => {
                let rank = rank as usize;
                self.enter(rank, todo);
                self.go_on(rank, todo);
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.done == self.ranks.len()
    }

    fn waits_for(&self) -> String {
        let least = self.ranks.iter().enumerate().min_by_key(|(_, r)| r.step);
        let (rank, step) = least.map_or((0, 0), |(rank, at)| (rank, at.step));
        format!("rank {rank} is at step {step} of {}", self.total())
    }

    /// As nccl-tests count it: 2 (n - 1) / n of the bytes for an all-reduce, (n - 1) / n for what is half of it.
    fn bus_bytes(&self) -> u64 {
        let count = self.hosts.len() as u64;
        let scattered = self.bytes / count * (count - 1);
        let once = match &*self.kind {
            CollectiveKind::AllReduce(_) => 2 * scattered,
            CollectiveKind::Broadcast => self.bytes,
            CollectiveKind::AllToAllV(lengths) => {
                let sums = lengths
                    .iter()
                    .map(|row| row.iter().map(|&n| u64::from(n)).sum());
                sums.max().unwrap_or(0)
            }
            _ => scattered,
        };
        once * u64::from(self.repeat)
    }

    fn divisible(&mut self) -> Option<&mut dyn Divisible> {
        Some(self)
    }
}

impl Divisible for Collective {
    fn hosts(&self) -> Vec<HostId> {
        self.hosts.to_vec()
    }

    fn fork(&self) -> Box<dyn Workload> {
        Box::new(Collective {
            kind: self.kind.clone(),
            hosts: self.hosts.clone(),
            bytes: self.bytes,
            repeat: self.repeat,
            compute: self.compute,
            ranks: vec![Rank::default(); self.ranks.len()],
            done: 0,
        })
    }

    fn exchange(&mut self, other: &mut dyn Workload, is_theirs: &dyn Fn(HostId) -> bool) {
        let other: &mut dyn Any = other;
        let Some(other) = other.downcast_mut::<Collective>() else {
            return;
        };
        let ranks = self.ranks.iter_mut().zip(&mut other.ranks);
        for (&host, (mine, its)) in self.hosts.iter().zip(ranks) {
            if is_theirs(host) {
                core::mem::swap(mine, its);
            }
        }
        self.done += core::mem::take(&mut other.done);
    }

    fn done(&self) -> u64 {
        self.done as u64
    }
}
