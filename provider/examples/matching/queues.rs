//! The two queues of a matching layer: receives that wait for a message, and messages that wait for a receive.
//!
//! The rule is MPI's: a message goes to the oldest posted receive that takes it, a receive takes the oldest message that fits.
//! Both searches walk a list, so their cost grows with its length.

use std::collections::VecDeque;

/// What a message is known by: 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Separates the parts of a program (MPI's communicator).
    pub context: u16,
    /// The rank that sent the message.
    pub sender: u16,
    /// The program's own label.
    pub tag: u32,
}

impl Envelope {
    /// As it is on the wire.
    pub fn bits(self) -> u64 {
        u64::from(self.context) << 48 | u64::from(self.sender) << 32 | u64::from(self.tag)
    }

    /// From the wire.
    pub fn from_bits(bits: u64) -> Envelope {
        Envelope {
            context: (bits >> 48) as u16,
            sender: (bits >> 32) as u16,
            tag: bits as u32,
        }
    }
}

/// Which messages a receive takes: those that agree with `bits` where `mask` has ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    pub bits: u64,
    pub mask: u64,
}

impl Pattern {
    /// One context; `None` is a wildcard.
    pub fn new(context: u16, sender: Option<u16>, tag: Option<u32>) -> Pattern {
        let wanted = Envelope {
            context,
            sender: sender.unwrap_or(0),
            tag: tag.unwrap_or(0),
        };
        let looks_at = Envelope {
            context: u16::MAX,
            sender: sender.map_or(0, |_| u16::MAX),
            tag: tag.map_or(0, |_| u32::MAX),
        };
        Pattern {
            bits: wanted.bits(),
            mask: looks_at.bits(),
        }
    }

    /// Whether such a receive takes such a message.
    pub fn takes(self, message: Envelope) -> bool {
        (message.bits() ^ self.bits) & self.mask == 0
    }
}

/// The two queues, of receives `R` and messages `M`.
#[derive(Debug)]
pub struct Queues<R, M> {
    posted: VecDeque<(Pattern, R)>,
    unexpected: VecDeque<(Envelope, M)>,
}

impl<R, M> Queues<R, M> {
    pub fn new() -> Queues<R, M> {
        Queues {
            posted: VecDeque::new(),
            unexpected: VecDeque::new(),
        }
    }

    /// A receive is posted: it gets the oldest message that it takes, or it waits.
    pub fn post(&mut self, pattern: Pattern, recv: R) -> Option<(R, Envelope, M)> {
        let place = self.find(pattern);
        if let Some((envelope, message)) = place.and_then(|at| self.unexpected.remove(at)) {
            return Some((recv, envelope, message));
        }
        self.posted.push_back((pattern, recv));
        None
    }

    /// A message arrives: the oldest receive that takes it leaves the queue. Without one, [`Queues::keep`] has the message wait.
    pub fn arrive(&mut self, envelope: Envelope) -> Option<R> {
        let mut posted = self.posted.iter();
        let place = posted.position(|(pattern, _)| pattern.takes(envelope))?;
        self.posted.remove(place).map(|(_, recv)| recv)
    }

    /// A message that no receive took waits for one.
    pub fn keep(&mut self, envelope: Envelope, message: M) {
        self.unexpected.push_back((envelope, message));
    }

    /// Takes a receive back that still waits.
    pub fn cancel(&mut self, is_it: impl Fn(&R) -> bool) -> Option<R> {
        let place = self.posted.iter().position(|(_, recv)| is_it(recv))?;
        self.posted.remove(place).map(|(_, recv)| recv)
    }

    /// The message that a receive would get now.
    pub fn probe(&self, pattern: Pattern) -> Option<&(Envelope, M)> {
        self.unexpected.get(self.find(pattern)?)
    }

    /// Receives and messages that wait.
    pub fn lens(&self) -> (usize, usize) {
        (self.posted.len(), self.unexpected.len())
    }

    fn find(&self, pattern: Pattern) -> Option<usize> {
        let mut waiting = self.unexpected.iter();
        waiting.position(|(envelope, _)| pattern.takes(*envelope))
    }
}
