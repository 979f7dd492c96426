//! What timers of hosts are for. The fabric keeps a token with each; this is what the simulation puts into it.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimerFor {
    /// The next frame of a plain flow.
    Flow(u32),
    /// The host's transport.
    Transport,
    /// The first messages of a stream.
    Stream(u32),
    /// A receive of a stream.
    Receive(u32),
    /// A job: its start, or a time that it waits for.
    Job(u32),
    /// Credit that a host gives its senders.
    Grant,
    /// A task of a program.
    Task(u32),
    /// The contexts of a host's programs.
    Contexts,
}

/// Bits of the number in a token; those above say what it is a number of.
const NUMBER_BITS: u32 = 29;

impl TimerFor {
    /// As the fabric keeps it.
    pub(crate) fn token(self) -> u32 {
        let (kind, number) = match self {
            TimerFor::Flow(number) => (0, number),
            TimerFor::Transport => (1, 0),
            TimerFor::Stream(number) => (2, number),
            TimerFor::Receive(number) => (3, number),
            TimerFor::Task(number) => (4, number),
            TimerFor::Contexts => (5, 0),
            TimerFor::Grant => (6, 0),
            TimerFor::Job(number) => (7, number),
        };
        debug_assert!(number >> NUMBER_BITS == 0, "{self:?}");
        kind << NUMBER_BITS | number
    }

    /// From what the fabric kept.
    #[inline]
    pub(crate) fn of(token: u32) -> TimerFor {
        let number = token & ((1 << NUMBER_BITS) - 1);
        match token >> NUMBER_BITS {
            0 => TimerFor::Flow(number),
            1 => TimerFor::Transport,
            2 => TimerFor::Stream(number),
            3 => TimerFor::Receive(number),
            4 => TimerFor::Task(number),
            6 => TimerFor::Grant,
            7 => TimerFor::Job(number),
            _ => TimerFor::Contexts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_timers_have_one_token() {
        let last = (1 << NUMBER_BITS) - 1;
        let timers = [0, 1, last].map(|n| {
            [
                TimerFor::Flow(n),
                TimerFor::Stream(n),
                TimerFor::Receive(n),
                TimerFor::Task(n),
                TimerFor::Job(n),
            ]
        });
        let others = [TimerFor::Transport, TimerFor::Contexts, TimerFor::Grant];
        for timer in timers.concat().into_iter().chain(others) {
            assert_eq!(TimerFor::of(timer.token()), timer);
        }
    }
}
