//! The one place where the simulator has coroutines, threads, locks and a real clock.
//!
//! A program is an ordinary function that calls and blocks wherever it likes, so it needs a stack of its
//! own: that of a coroutine. All programs of a run are coroutines of one thread; one of them has the turn, and gives it back where it would wait.
//! What the operating system's scheduler does changes how long a run takes and nothing else.
//!
//! The clock serves one purpose: a program that keeps its turn for long sleeps in something that the
//! simulation does not know (a lock, a socket, an endless loop). Then the thread of the run is left behind, and the run ends with a result that says so.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "one turn is handed round; nothing depends on which thread the system runs when"
)]

use core::any::Any;
use core::cell::RefCell;
use core::mem;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel as channel;
use generator::{Generator, Gn};

use crate::program::wait::Wait;

/// The stack of a program, in words: as large as that of a thread. What is not touched takes no memory.
const STACK_WORDS: usize = (2 << 20) / size_of::<usize>();

/// Something that the simulation and a program both use, each in its turn.
#[derive(Debug, Default)]
pub(crate) struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        Shared(Mutex::new(value))
    }

    /// Locks it for a moment.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // A program that panics leaves it whole: only this file's code runs in here.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Returned,
    /// The program panicked with this message.
    Panicked(String),
    /// The simulation ended it.
    Killed,
}

/// What came of a program's turn.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The program waits.
    Waits(Wait),
    Ended(Ending),
}

/// What a program is told when it gets a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Go {
    On,
    /// It shall end.
    Home,
}

/// A program that runs when it is given a turn.
pub(crate) struct Coroutine {
    /// `None` when it has ended.
    stack: Option<Generator<'static, Go, Turn>>,
    context: Context,
}

type Context = Arc<dyn Any + Send + Sync>;

/// Unwinds a program that the simulation ends.
struct Killed;

thread_local! {
    /// What the program that has the turn belongs to.
    static CURRENT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

impl Coroutine {
    /// Makes a program that has not begun. `context` is what [`context`] gives to whatever it calls.
    pub(crate) fn new(context: Context, body: impl FnOnce() + Send + 'static) -> Coroutine {
        let stack = Gn::<Go>::new_opt(STACK_WORDS, move || {
            if told() == Go::Home {
                return Turn::Ended(Ending::Killed);
            }
            Turn::Ended(match catch_unwind(AssertUnwindSafe(body)) {
                Ok(()) => Ending::Returned,
                Err(payload) => ending_of(&*payload),
            })
        });
        Coroutine {
            stack: Some(stack),
            context,
        }
    }

    /// Gives it a turn, until it gives that back.
    pub(crate) fn resume(&mut self, kill: bool) -> Turn {
        let Some(stack) = &mut self.stack else {
            return Turn::Ended(Ending::Returned);
        };
        let go = if kill { Go::Home } else { Go::On };
        let before = CURRENT.replace(Some(self.context.clone()));
        let turn = catch_unwind(AssertUnwindSafe(|| stack.raw_send(Some(go))));
        CURRENT.set(before);
        let turn = match turn {
            Ok(turn) => turn.expect("a program that has not ended gives its turn back"),
            // Panics of the program are caught on its stack.
            Err(_) => {
                let words = "its stack overflowed";
                Turn::Ended(Ending::Panicked(words.to_owned()))
            }
        };
        if matches!(turn, Turn::Ended(_)) {
            self.stack = None;
        }
        turn
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        if let Some(stack) = self.stack.take() {
            // It did not end when it was told to; its values stay where they are.
            mem::forget(stack);
        }
    }
}

/// What the calling program is told with its turn.
#[expect(
    deprecated,
    reason = "the scope that should replace it cannot be reached from inside a program's calls"
)]
fn told() -> Go {
    generator::get_yield().unwrap_or(Go::Home)
}

#[expect(deprecated, reason = "as above")]
fn yield_turn(turn: Turn) -> Go {
    generator::yield_(turn).unwrap_or(Go::Home)
}

fn ending_of(payload: &(dyn Any + Send)) -> Ending {
    if payload.is::<Killed>() {
        return Ending::Killed;
    }
    Ending::Panicked(words_of(payload))
}

/// What a panic said.
pub(crate) fn words_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without words").to_owned()
}

/// What the calling program belongs to; `None` if it is none of a simulation's.
pub(crate) fn context() -> Option<Context> {
    CURRENT.with_borrow(Clone::clone)
}

/// The calling program waits: it gives its turn back. False if it is being ended, and is unwinding already.
///
/// # Panics
/// Unwinds the program if it shall end; or if the thread is none of the simulation's.
pub(crate) fn wait(wait: Wait) -> bool {
    if thread::panicking() {
        return false;
    }
    assert!(
        CURRENT.with_borrow(Option::is_some),
        "a thread that the simulation does not know calls into a simulated host: \
         start threads with fabric_sim::program::spawn",
    );
    if yield_turn(Turn::Waits(wait)) == Go::Home {
        resume_unwind(Box::new(Killed));
    }
    true
}

/// Which program has the turn in a run, for the thread that waits for the run.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Turns that were given and given back: an odd number while a program has one.
    changes: AtomicU64,
    /// The host of that program, and since when in virtual time.
    host: AtomicU32,
    at_ps: AtomicU64,
}

/// A program that did not give its turn back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) host: u32,
    pub(crate) at_ps: u64,
}

impl Watch {
    /// A program of the host has the turn meanwhile.
    pub(crate) fn during<T>(&self, host: u32, at_ps: u64, turn: impl FnOnce() -> T) -> T {
        self.host.store(host, Ordering::Relaxed);
        self.at_ps.store(at_ps, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
        let result = turn();
        self.changes.fetch_add(1, Ordering::Relaxed);
        result
    }
}

/// Looks in a time of patience: one more is how much later than that it may be found out.
const LOOKS: u32 = 8;

/// Does the work of a run on a thread of its own.
///
/// # Errors
/// [`Kept`] if a program kept its turn for longer than `patience`. The thread is left behind.
///
/// # Panics
/// If `work` does.
pub(crate) fn with_patience<T: Send + 'static>(
    name: String,
    patience: Duration,
    watch: &Watch,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Kept> {
    let (says, result) = channel::bounded(1);
    let work = move || {
        // An error means that it took too long.
        let _ = says.send(catch_unwind(AssertUnwindSafe(work)));
    };
    let thread = thread::Builder::new().name(name).spawn(work);
    let thread = thread.expect("a run has a thread");
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        let look = (patience / LOOKS).max(Duration::from_millis(1));
        match result.recv_timeout(look) {
            Ok(result) => {
                let _ = thread.join();
                return Ok(result.unwrap_or_else(|payload| resume_unwind(payload)));
            }
            Err(channel::RecvTimeoutError::Disconnected) => {
                unreachable!("a thread that ends has sent its result")
            }
            Err(channel::RecvTimeoutError::Timeout) => {}
        }
        let changes = watch.changes.load(Ordering::Relaxed);
        if changes != seen || changes.is_multiple_of(2) {
            (seen, since) = (changes, Instant::now());
        } else if since.elapsed() >= patience {
            return Err(Kept {
                host: watch.host.load(Ordering::Relaxed),
                at_ps: watch.at_ps.load(Ordering::Relaxed),
            });
        }
    }
}

/// Processors of the machine that this process may use.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, core::num::NonZero::get)
}

/// Calls `run` with one after another, so many at a time (without a number: one a processor), until one fails. What is returned is the failure of the first in order that fails, however
/// long each takes: all before it have been run by then.
pub(crate) fn first_failure<T: Send, E: Send>(
    items: impl Iterator<Item = T> + Send,
    jobs: Option<usize>,
    run: impl Fn(T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let items = Shared::new(items.enumerate());
    let failure: Shared<Option<(usize, E)>> = Shared::new(None);
    let work = || {
        while failure.with(|failure| failure.is_none())
            && let Some((place, item)) = items.with(Iterator::next)
        {
            if let Err(error) = run(item) {
                failure.with(|first| {
                    if first.as_ref().is_none_or(|(known, _)| place < *known) {
                        *first = Some((place, error));
                    }
                });
            }
        }
    };
    let others = jobs.unwrap_or_else(processors).saturating_sub(1);
    thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(work);
        }
        work();
    });
    match failure
        .0
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Sleeps in real time, for programs outside a simulation.
pub(crate) fn really_sleep(time: Duration) {
    thread::sleep(time);
}

/// Real time since the first call, for programs outside a simulation.
pub(crate) fn real_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// A thread of a program outside a simulation.
#[derive(Debug)]
pub(crate) struct RealThread(JoinHandle<()>);

impl RealThread {
    pub(crate) fn start(body: impl FnOnce() + Send + 'static) -> RealThread {
        RealThread(thread::spawn(body))
    }

    /// Waits for its end, which passes a panic on.
    pub(crate) fn join(self) {
        if let Err(payload) = self.0.join() {
            resume_unwind(payload);
        }
    }
}

/// Words that programs outside a simulation leave for each other.
#[derive(Default)]
pub(crate) struct RealBoard {
    words: Mutex<std::collections::BTreeMap<String, String>>,
    changed: Condvar,
}

impl RealBoard {
    pub(crate) fn tell(&self, key: &str, word: &str) {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        words.insert(key.to_owned(), word.to_owned());
        self.changed.notify_all();
    }

    pub(crate) fn ask(&self, key: &str) -> String {
        let mut words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(word) = words.get(key) {
                return word.clone();
            }
            words = self
                .changed
                .wait(words)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
