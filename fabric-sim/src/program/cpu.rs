//! The virtual time that a program's own work takes.

use urxe::network::Pause;

use crate::engine::{Entity, Rng, Span};
use crate::topology::HostId;

/// What the processors of all hosts are like.
///
/// A call that takes no time could be repeated without end before anything else happens; and programs on real
/// machines are interrupted at the worst moments. So calls take time, and now and then a thread
/// is not scheduled for a while, by draws of the host's own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CpuModel {
    /// Looking for a completion.
    pub poll: Span,
    /// Posting a work request, or a list of them; asking for an event; a step of a task.
    pub post: Span,
    /// Reading or writing registered memory by a call.
    pub memory: Span,
    /// The time from an event to the thread that waits for it.
    pub wake_up: Span,
    /// Probability that a call takes up to [`CpuModel::stall`] longer, at its beginning; and the same at its end.
    pub stall_probability: f64,
    /// The longest interruption.
    pub stall: Span,
}

impl Default for CpuModel {
    /// 100 ns a poll, 50 ns a post, 20 ns a look, 2 us to wake up; one call in 64 takes up to 20 us longer.
    fn default() -> Self {
        CpuModel {
            poll: Span::from_ns(100),
            post: Span::from_ns(50),
            memory: Span::from_ns(20),
            wake_up: Span::from_us(2),
            stall_probability: 1.0 / 64.0,
            stall: Span::from_us(20),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cpu {
    model: CpuModel,
    odds: u64,
    rng: Rng,
}

impl Cpu {
    pub(crate) fn new(model: CpuModel, host: HostId, seed: u64) -> Cpu {
        Cpu {
            model,
            odds: Rng::odds(model.stall_probability),
            rng: Rng::stream(seed, Entity::Host(host.0), "processor"),
        }
    }

    /// What a call takes, or what keeps its thread from going on when it returns. A call never takes nothing.
    pub(crate) fn cost_of(&mut self, why: &Pause) -> Span {
        let usual = match why {
            Pause::Poll | Pause::Look | Pause::Event { .. } => self.model.poll,
            Pause::Post | Pause::Arm => self.model.post,
            Pause::Memory => self.model.memory,
            _ => return self.stall(),
        };
        usual.max(Span::from_ns(1)) + self.stall()
    }

    /// A step of a task, until it waits.
    pub(crate) fn step(&mut self) -> Span {
        self.cost_of(&Pause::Post)
    }

    pub(crate) fn wake_up(&mut self) -> Span {
        self.model.wake_up + self.stall()
    }

    fn stall(&mut self) -> Span {
        if self.rng.hits(self.odds) {
            Span::from_ps(self.rng.below(self.model.stall.ps()))
        } else {
            Span::ZERO
        }
    }
}
