//! Threads as coroutines: the one place where the simulator has threads, locks and a real clock.
//!
//! A program is an ordinary function that calls and blocks wherever it likes, so it needs a stack of its
//! own, and without unsafe code that is a thread. But no two of them ever run at once: the turn is handed
//! from the simulation to one program and back, and the others sleep. What the operating
//! system's scheduler does so changes how long a run takes and nothing else.
//!
//! The clock serves one purpose: a program that keeps its turn for long sleeps in something that the
//! simulation does not know (a lock, a socket, an endless loop), and the run ends with a result that says so.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "one turn is handed round; nothing depends on which thread the system runs when"
)]

use core::any::Any;
use core::cell::RefCell;
use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::program::wait::Wait;

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
    /// The program does not give its turn back.
    Keeps,
}

/// The program's ends of the two channels that hand the turn round. Each holds one word at most.
#[derive(Clone, Debug)]
struct Seat {
    /// Gives the turn. It is closed when the program shall end.
    turns: Receiver<()>,
    /// Takes the turn back.
    words: Sender<Turn>,
}

impl Seat {
    /// Gives the turn back and waits for the next. False if the program shall end.
    fn yield_turn(&self, word: Turn) -> bool {
        self.say(word);
        self.await_turn()
    }

    fn await_turn(&self) -> bool {
        self.turns.recv().is_ok()
    }

    fn say(&self, word: Turn) {
        // An error means that the simulation has given the program up: then no turn follows either.
        let _ = self.words.send(word);
    }
}

/// A program that runs when it is given a turn.
#[derive(Debug)]
pub(crate) struct Coroutine {
    /// `None` when the program shall end.
    turns: Option<Sender<()>>,
    words: Receiver<Turn>,
    thread: Option<JoinHandle<()>>,
}

/// Unwinds a program that the simulation ends.
struct Killed;

/// What the calling thread is.
struct Current {
    seat: Seat,
    context: Arc<dyn Any + Send + Sync>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

impl Coroutine {
    /// Makes a program that has not begun. `context` is what [`context`] gives to whatever it calls.
    pub(crate) fn new(
        name: String,
        context: Arc<dyn Any + Send + Sync>,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Coroutine> {
        let (turns, its_turns) = bounded(1);
        let (its_words, words) = bounded(1);
        let seat = Seat {
            turns: its_turns,
            words: its_words,
        };
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || run(seat, context, body))?;
        Ok(Coroutine {
            turns: Some(turns),
            words,
            thread: Some(thread),
        })
    }

    /// Gives it a turn, and waits until it gives that back or the patience is over.
    pub(crate) fn resume(&mut self, kill: bool, patience: Duration) -> Turn {
        if kill {
            self.turns = None;
        }
        if let Some(turns) = &self.turns {
            // An error means that the thread has ended: no word follows.
            let _ = turns.send(());
        }
        let Ok(word) = self.words.recv_timeout(patience) else {
            // Should it ever come back, it ends.
            self.turns = None;
            self.thread = None;
            return Turn::Keeps;
        };
        if matches!(word, Turn::Ended(_))
            && let Some(thread) = self.thread.take()
        {
            // It said so itself: there is nothing left to run.
            let _ = thread.join();
        }
        word
    }
}

fn run(seat: Seat, context: Arc<dyn Any + Send + Sync>, body: impl FnOnce()) {
    let may_begin = seat.await_turn();
    let current = Current {
        seat: seat.clone(),
        context,
    };
    CURRENT.set(Some(current));
    let ending = if may_begin {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(()) => Ending::Returned,
            Err(payload) => ending_of(&*payload),
        }
    } else {
        Ending::Killed
    };
    CURRENT.set(None);
    seat.say(Turn::Ended(ending));
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
pub(crate) fn context() -> Option<Arc<dyn Any + Send + Sync>> {
    CURRENT.with_borrow(|current| Some(current.as_ref()?.context.clone()))
}

/// The calling program waits: it gives its turn back. False if it is being ended, and is unwinding already.
///
/// # Panics
/// Unwinds the program if it shall end; or if the thread is none of the simulation's.
pub(crate) fn wait(wait: Wait) -> bool {
    if thread::panicking() {
        return false;
    }
    let seat = CURRENT.with_borrow(|current| Some(current.as_ref()?.seat.clone()));
    let seat = seat.expect(
        "a thread that the simulation does not know calls into a simulated host: \
         start threads with fabric_sim::program::spawn",
    );
    if !seat.yield_turn(Turn::Waits(wait)) {
        resume_unwind(Box::new(Killed));
    }
    true
}

/// Calls `run` with one after another, on all processors, until one fails. What is returned is the failure of the first in order that fails, however
/// long each takes: all before it have been run by then.
pub(crate) fn first_failure<T: Send, E: Send>(
    items: impl Iterator<Item = T> + Send,
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
    let others = thread::available_parallelism().map_or(1, core::num::NonZero::get) - 1;
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
