//! Runs the parts of a simulation at the same time, each on a thread of its own, with the result of a run on one.
//!
//! What happens in a part reaches another part not before a certain time has passed: that of the shortest cable between them. So time
//! goes on in windows of that length. In a window each part runs alone, and what concerns another lies in a letter; at its end the letters are
//! handed over, and the next window begins where anything is left to happen. Nothing depends on which thread the system runs when: a part
//! sees the letters of all windows before, always at the same place in its own order of events.
//!
//! The clock is for measurements, and decides nothing.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "threads meet at the end of each window; the clock measures how long they wait there"
)]

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Span, Time};

/// A part of a simulation.
pub(crate) trait Part {
    /// What it has for another part.
    type Letter: Default + Send;

    /// When it goes on by itself.
    fn next_time(&mut self) -> Option<Time>;

    /// Runs until that time, with all that happens then.
    fn run(&mut self, until: Time);

    /// What it has for a part, and when the first of it happens. The letter is taken, and an empty one put in its place.
    fn outgoing(&mut self, to: usize) -> (&mut Self::Letter, Option<Time>);

    /// Takes what another part had for it, and leaves an empty letter.
    fn take_in(&mut self, letter: &mut Self::Letter);
}

/// What the threads of runs in parts did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Windows of virtual time.
    pub windows: u64,
    /// Real time that each part ran, the first part's first.
    pub ran: Vec<Duration>,
    /// Real time that each part waited for the others.
    pub waited: Vec<Duration>,
}

impl Work {
    /// Adds what was done in another run.
    pub(crate) fn join(&mut self, other: &Work) {
        self.windows += other.windows;
        for (all, more) in [
            (&mut self.ran, &other.ran),
            (&mut self.waited, &other.waited),
        ] {
            all.resize(all.len().max(more.len()), Duration::ZERO);
            for (sum, time) in all.iter_mut().zip(more) {
                *sum += *time;
            }
        }
    }
}

/// How often a thread looks before it lets others have the processor: some microseconds.
const SPINS: u32 = 100;

/// Where threads meet, and what they hand over there.
struct Exchange<L> {
    parts: usize,
    /// By window, even or odd, and part: when it goes on, or something of it does elsewhere.
    next: Vec<AtomicU64>,
    /// By window, even or odd, sender and receiver.
    letters: Vec<Mutex<L>>,
    arrived: AtomicUsize,
    round: AtomicUsize,
    has_failed: AtomicBool,
}

impl<L: Default> Exchange<L> {
    fn new(parts: usize) -> Exchange<L> {
        Exchange {
            parts,
            next: (0..2 * parts).map(|_| AtomicU64::new(u64::MAX)).collect(),
            letters: (0..2 * parts * parts).map(|_| Mutex::default()).collect(),
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Swaps a letter with the one that lies there. No two threads want one at a time.
    fn with_letter(&self, window: usize, from: usize, to: usize, f: impl FnOnce(&mut L)) {
        let place = (window * self.parts + from) * self.parts + to;
        let mut letter = self.letters[place]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        f(&mut letter);
    }

    /// Waits until all threads are here.
    fn meet(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.parts {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.round.load(Ordering::Acquire) == round {
            assert!(
                !self.has_failed.load(Ordering::Relaxed),
                "another part of the simulation has failed"
            );
            if spins < SPINS {
                spins += 1;
                spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// Tells the others if its thread panics: they would wait for ever.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs `first` on this thread, and a part of each of `others` on a thread of its own, until that time. What is in the network then is
/// in its part: no letter is left.
///
/// `begin` makes the part of what can go to another thread, `end` the reverse. `span` is less than the time after which parts reach each other.
pub(crate) fn in_windows<P: Part, Q: Send>(
    first: &mut P,
    others: Vec<Q>,
    (span, until): (Span, Time),
    begin: impl Fn(Q) -> P + Sync,
    end: impl Fn(P) -> Q + Sync,
) -> (Vec<Q>, Work) {
    let exchange = Exchange::new(others.len() + 1);
    thread::scope(|scope| {
        let (exchange, begin, end) = (&exchange, &begin, &end);
        let spawn = |(number, piece): (usize, Q)| {
            scope.spawn(move || {
                let _alarm = Alarm(&exchange.has_failed);
                let mut part = begin(piece);
                let work = run_part(&mut part, number, exchange, (span, until));
                (end(part), work)
            })
        };
        let threads: Vec<_> = (1..).zip(others).map(spawn).collect();
        let _alarm = Alarm(&exchange.has_failed);
        let mut work = run_part(first, 0, exchange, (span, until));
        let results = threads.into_iter().map(|thread| {
            let joined = thread.join();
            let (piece, of_it) = joined.unwrap_or_else(|panic| resume_unwind(panic));
            work.ran.extend(of_it.ran);
            work.waited.extend(of_it.waited);
            piece
        });
        (results.collect(), work)
    })
}

fn run_part<P: Part>(
    part: &mut P,
    number: usize,
    exchange: &Exchange<P::Letter>,
    (span, until): (Span, Time),
) -> Work {
    let others = || (0..exchange.parts).filter(move |&other| other != number);
    let (mut ran, mut waited) = (Duration::ZERO, Duration::ZERO);
    let mut since = Instant::now();
    let mut lap = |sum: &mut Duration| {
        let now = Instant::now();
        *sum += now.duration_since(core::mem::replace(&mut since, now));
    };
    let mut windows = 0;
    loop {
        // A thread is a window ahead of another at most, so two places for each letter are enough.
        let window = (windows % 2) as usize;
        let mut next = part.next_time();
        for to in others() {
            let (letter, earliest) = part.outgoing(to);
            next = next.into_iter().chain(earliest).min();
            exchange.with_letter(window, number, to, |place| core::mem::swap(place, letter));
        }
        let next = next.unwrap_or(Time::NEVER).ps();
        exchange.next[window * exchange.parts + number].store(next, Ordering::Relaxed);
        lap(&mut ran);
        exchange.meet();
        lap(&mut waited);
        for from in others() {
            exchange.with_letter(window, from, number, |letter| part.take_in(letter));
        }
        let all = exchange.next[window * exchange.parts..][..exchange.parts].iter();
        let start = all.map(|next| next.load(Ordering::Relaxed)).min();
        let start = Time::from_ps(start.unwrap_or(u64::MAX));
        if start > until || start == Time::NEVER {
            break;
        }
        windows += 1;
        part.run((start + span).min(until));
    }
    lap(&mut ran);
    Work {
        windows,
        ran: vec![ran],
        waited: vec![waited],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Tokens that go to and fro between two parts, each by steps of its own.
    #[derive(Debug, Default)]
    struct Pair {
        number: usize,
        here: Vec<(u64, u64)>,
        seen: Vec<(u64, u64)>,
        out: Vec<(u64, u64)>,
        fails_at: Option<u64>,
    }

    const STEP: u64 = 10;

    impl Part for Pair {
        type Letter = Vec<(u64, u64)>;

        fn next_time(&mut self) -> Option<Time> {
            self.here.iter().map(|&(at, _)| Time::from_ps(at)).min()
        }

        fn run(&mut self, until: Time) {
            self.here.sort_unstable();
            let due = self.here.partition_point(|&(at, _)| at <= until.ps());
            for (at, token) in self.here.drain(..due) {
                assert!(self.fails_at != Some(at), "as planned");
                assert!(self.seen.last().is_none_or(|&last| last <= (at, token)));
                self.seen.push((at, token));
                self.out.push((at + STEP + token, token));
            }
        }

        fn outgoing(&mut self, to: usize) -> (&mut Self::Letter, Option<Time>) {
            assert_eq!(to, 1 - self.number, "there are two");
            let next = self.out.iter().map(|&(at, _)| Time::from_ps(at)).min();
            (&mut self.out, next)
        }

        fn take_in(&mut self, letter: &mut Self::Letter) {
            self.here.append(letter);
        }
    }

    fn go_to_and_fro(fails_at: Option<u64>) -> (Vec<(u64, u64)>, u64) {
        let part = |number| Pair {
            number,
            fails_at: fails_at.filter(|_| number == 1),
            ..Pair::default()
        };
        let mut first = part(0);
        first.here = vec![(0, 3), (5, 0)];
        let others = vec![part(1)];
        let times = (Span::from_ps(STEP - 1), Time::from_ps(1000));
        let (others, work) = in_windows(&mut first, others, times, |part| part, |part| part);
        let mut seen = first.seen;
        seen.extend(others.into_iter().flat_map(|part| part.seen));
        seen.sort_unstable();
        assert_eq!((work.ran.len(), work.waited.len()), (2, 2));
        (seen, work.windows)
    }

    #[test]
    fn letters_come_in_time() {
        let (two, windows) = go_to_and_fro(None);
        assert!(two.len() > 150 && windows > 50);
        assert_eq!((two, windows), go_to_and_fro(None));
    }

    #[test]
    fn a_part_that_fails_ends_all() {
        let failed = catch_unwind(AssertUnwindSafe(|| go_to_and_fro(Some(13))));
        assert!(failed.is_err());
    }
}
