//! Functions for simulated programs: time, words for each other, more threads. Each works
//! outside a simulation too, in real time and within the process, so that one source runs both ways.

use core::time::Duration;
use std::sync::{Arc, LazyLock};

use crate::engine::Span;
use crate::program::TaskId;
use crate::program::nic::Nic;
use crate::program::threads::{self, RealBoard, RealThread, Shared};
use crate::program::wait::Reason;
use crate::program::world::Common;
use crate::topology::HostId;

/// Where a program is.
pub(crate) struct Here {
    pub(crate) nic: Arc<Nic>,
    pub(crate) common: Arc<Common>,
}

static REAL_BOARD: LazyLock<RealBoard> = LazyLock::new(RealBoard::default);

/// The place of the program that has the turn; `None` outside a simulation.
pub(crate) fn here() -> Option<Arc<Here>> {
    threads::context()?.downcast().ok()
}

/// The simulated host that the calling program runs on; `None` outside a simulation.
pub fn host() -> Option<HostId> {
    Some(here()?.nic.host())
}

/// What time it is: since the simulation began, or outside of one since this was called first.
pub fn now() -> Duration {
    match here() {
        Some(here) => Duration::from_nanos(here.nic.now().to_core().0),
        None => threads::real_time(),
    }
}

/// Lets time pass.
pub fn sleep(time: Duration) {
    match here() {
        Some(here) => {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let span = Span::from_ns(ns.min(u64::MAX / 2_000));
            let until = here.nic.now() + span;
            // Being ended is no matter of a sleep: the next call says so.
            let _ = here.nic.wait(Reason::Until(until));
        }
        None => threads::really_sleep(time),
    }
}

/// Leaves a word for programs that ask for `key`, now or later; one that was there is replaced. It is how programs exchange their
/// [`Endpoint`](urxe::Endpoint)s before they can talk: a network of its own that loses nothing.
pub fn tell(key: &str, word: impl ToString) {
    match here() {
        Some(here) => here.common.board.with(|board| {
            board.insert(key.to_owned(), word.to_string());
        }),
        None => REAL_BOARD.tell(key, &word.to_string()),
    }
}

/// The word for `key`; waits until a program told it.
pub fn ask(key: &str) -> String {
    let Some(here) = here() else {
        return REAL_BOARD.ask(key);
    };
    loop {
        if let Some(word) = here.common.board.with(|board| board.get(key).cloned()) {
            return word;
        }
        if here.nic.wait(Reason::Word(key.to_owned())).is_err() {
            return String::new();
        }
    }
}

/// A thread of a program that [`spawn`] started.
#[derive(Debug)]
pub struct Task<T> {
    result: Arc<Shared<Option<T>>>,
    end: End,
}

#[derive(Debug)]
enum End {
    Simulated(TaskId),
    Real(RealThread),
}

/// Starts another thread of the calling program, on the same host. (Threads that are started otherwise are not the
/// simulation's: they run in real time, and cannot use simulated contexts.)
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    let result = Arc::new(Shared::new(None));
    let mine = result.clone();
    let body = move || {
        let value = body();
        mine.with(|result| *result = Some(value));
    };
    let end = match here() {
        Some(here) => {
            let id = here.common.task_id();
            let (host, body) = (here.nic.host(), Box::new(body));
            here.common
                .spawned
                .with(|spawned| spawned.push((id, host, body)));
            End::Simulated(id)
        }
        None => End::Real(RealThread::start(body)),
    };
    Task { result, end }
}

impl<T> Task<T> {
    /// Waits for its end, and returns what it returned.
    ///
    /// # Panics
    /// If the thread panicked, which in a simulation ends the run anyway.
    pub fn join(self) -> T {
        match self.end {
            End::Simulated(id) => {
                let here = here().expect("a task is joined where it was spawned");
                while self.result.with(|result| result.is_none()) {
                    let joined = here.nic.wait(Reason::End(id));
                    joined.expect("nobody joins while unwinding");
                }
            }
            End::Real(thread) => thread.join(),
        }
        let value = self.result.with(Option::take);
        value.expect("a thread that ended left its value")
    }
}
