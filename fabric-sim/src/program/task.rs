//! Tasks: simulated programs that are made of futures.
//!
//! [`block_on`] runs an async program on its host, in virtual time. Streams of completions and events, and connections by address, are
//! awaited as in a runtime of tokio (`urxe` with its feature `tokio`); for tasks, times and words there are the functions of this module.
//! Which of several tasks goes on is drawn from the seed.
//!
//! ```
//! use core::time::Duration;
//! use fabric_sim::program::{Simulation, now, task};
//! use fabric_sim::HostId;
//!
//! let mut sim = Simulation::new(3);
//! sim.host(HostId(0), || {
//!     task::block_on(async {
//!         let child = task::spawn(async {
//!             task::sleep(Duration::from_millis(5)).await;
//!             7
//!         });
//!         let never = core::future::pending::<()>();
//!         assert!(task::timeout(Duration::from_millis(2), never).await.is_err());
//!         assert_eq!(child.await, Ok(7));
//!         assert!(now() >= Duration::from_millis(5)); // of virtual time
//!     })
//! });
//! sim.run()?;
//! # Ok::<(), fabric_sim::program::Failure>(())
//! ```
//!
//! With this crate's feature `tokio` they do the same outside a simulation, by tokio.

use core::fmt;
use core::future::{Future, IntoFuture, poll_fn};
use core::panic::Location;
use core::pin::{Pin, pin};
use core::task::{Context, Poll};
use core::time::Duration;
use std::sync::{Arc, Weak};

use urxe::network::{Network, Pause, Ready, Tasks};

use crate::engine::Time;
use crate::program::executor::{Executor, Next};
use crate::program::here::{Here, here};
use crate::program::nic::Nic;
use crate::program::threads::Shared;

#[cfg(not(feature = "tokio"))]
#[path = "task/absent.rs"]
mod real;
#[cfg(feature = "tokio")]
#[path = "task/tokio.rs"]
mod real;

/// Runs a future, and the tasks that it spawns, until the future is ready; tasks that are left are dropped then.
///
/// # Panics
/// Inside itself.
#[track_caller]
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let Some(here) = here() else {
        return real::block_on(future.into_future());
    };
    let outer = here.nic.executor();
    assert!(outer.is_none(), "block_on inside block_on: await instead");
    let executor = Executor::new(Location::caller());
    let within = Within {
        nic: &here.nic,
        executor: &executor,
    };
    within.run(pin!(future.into_future()))
}

/// A program in its `block_on`.
struct Within<'a> {
    nic: &'a Nic,
    executor: &'a Arc<Executor>,
}

impl Within<'_> {
    fn run<F: Future>(&self, mut root: Pin<&mut F>) -> F::Output {
        loop {
            self.executor.wake_due(self.nic.now_ns());
            match self.executor.next(|count| self.nic.choose_task(count)) {
                Some(Next::Root(waker)) => {
                    let mut cx = Context::from_waker(&waker);
                    if let Poll::Ready(output) = self.going_on(|| root.as_mut().poll(&mut cx)) {
                        return output;
                    }
                }
                Some(Next::Task(number, mut body, waker)) => {
                    let mut cx = Context::from_waker(&waker);
                    let polled = self.going_on(|| body.as_mut().poll(&mut cx));
                    let over = match polled {
                        Poll::Ready(()) => Some(body),
                        Poll::Pending => self.executor.keep(number, body),
                    };
                    if let Some(body) = over {
                        self.going_on(|| drop(body));
                        self.executor.end(number);
                    }
                }
                None => {
                    let pause = Pause::Event {
                        event: self.executor.clone(),
                        deadline_ns: self.executor.deadline_ns(),
                    };
                    let paused = self.nic.pause(&pause);
                    paused.expect("a program that unwinds starts no tasks");
                    continue;
                }
            }
            self.nic.step();
        }
    }

    /// What happens meanwhile is the tasks'.
    fn going_on<T>(&self, work: impl FnOnce() -> T) -> T {
        self.nic.with_tasks(self.executor, work)
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        let left = self.executor.clear();
        self.going_on(|| drop(left));
    }
}

/// A task that [`spawn`] started. It goes on when this is dropped.
pub struct Handle<T>(Kind<T>);

enum Kind<T> {
    Simulated(Simulated<T>),
    Real(real::Handle<T>),
}

struct Simulated<T> {
    result: Arc<Outcome<T>>,
    event: Arc<dyn Ready>,
    executor: Weak<Executor>,
    number: u64,
}

struct Outcome<T> {
    value: Shared<Option<Result<T, Aborted>>>,
    at: &'static Location<'static>,
}

/// The task was aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the task was aborted")]
pub struct Aborted;

/// The time is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the time is up")]
pub struct Elapsed;

/// Starts a task beside the one that calls, in the same [`block_on`]. (For a thread of its own there is
/// [`spawn`](crate::program::spawn) of programs, with a `block_on` in it.)
///
/// A task that panics fails the run, and outside a simulation the task that awaits it.
///
/// # Panics
/// Outside of [`block_on`].
#[track_caller]
pub fn spawn<T, F>(task: F) -> Handle<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let Some(here) = here() else {
        return Handle(Kind::Real(real::spawn(task)));
    };
    let at = Location::caller();
    let result = Arc::new(Outcome {
        value: Shared::new(None),
        at,
    });
    let mine = result.clone();
    let body = async move {
        let value = task.await;
        mine.value.with(|place| *place = Some(Ok(value)));
    };
    let executor = here.nic.executor();
    let executor = executor.expect("a task is spawned inside fabric_sim::program::task::block_on");
    let number = executor.add(Some(Box::pin(body)), at);
    Handle(Kind::Simulated(Simulated {
        event: result.clone(),
        result,
        executor: Arc::downgrade(&executor),
        number,
    }))
}

impl<T> Handle<T> {
    /// Ends the task where it waits, and drops what it has. One that has ended stays so.
    pub fn abort(&self) {
        match &self.0 {
            Kind::Simulated(task) => task.abort(),
            Kind::Real(task) => task.abort(),
        }
    }

    /// True if it has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Simulated(task) => task.event.is_ready(),
            Kind::Real(task) => task.is_finished(),
        }
    }
}

impl<T> Simulated<T> {
    fn abort(&self) {
        let Some(executor) = self.executor.upgrade() else {
            return;
        };
        let body = executor.abort(self.number);
        drop(body);
        self.result.value.with(|value| {
            value.get_or_insert(Err(Aborted));
        });
    }
}

impl<T: Send + 'static> Future for Handle<T> {
    type Output = Result<T, Aborted>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Aborted>> {
        match &mut self.0 {
            Kind::Simulated(task) => match task.result.value.with(Option::take) {
                Some(value) => Poll::Ready(value),
                None => {
                    let here = here().expect("it began in a simulation");
                    here.nic.wake_when(&task.event, None, cx.waker());
                    Poll::Pending
                }
            },
            Kind::Real(task) => Pin::new(task).poll(cx).map(|value| value.ok_or(Aborted)),
        }
    }
}

impl<T: Send> Ready for Outcome<T> {
    fn is_ready(&self) -> bool {
        self.value.with(|value| value.is_some())
    }

    fn what(&self) -> String {
        format!(
            "the end of the task at {}:{}",
            self.at.file(),
            self.at.line()
        )
    }
}

/// Lets time pass, from now on.
pub fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
    let sleep = match here() {
        Some(here) => {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let end = here.nic.now_ns().saturating_add(ns);
            Ok(until(Arc::new(End(end)), Some(end)))
        }
        None => Err(real::sleep(time)),
    };
    async {
        match sleep {
            Ok(simulated) => simulated.await,
            Err(real) => real.await,
        }
    }
}

/// Runs a future for a time at most, from now on.
///
/// # Errors
/// [`Elapsed`] if the future was not ready by then; it is dropped.
pub fn timeout<F: IntoFuture>(
    time: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    let sleep = sleep(time);
    async {
        let (mut future, mut sleep) = (pin!(future.into_future()), pin!(sleep));
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
        })
        .await
    }
}

/// Lets other tasks go on.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The word that a program [tells](crate::program::tell) for `key`, once it does.
pub async fn ask(key: &str) -> String {
    let Some(here) = here() else {
        return real::ask(key.to_owned()).await;
    };
    let word = Arc::new(Word {
        here,
        key: key.to_owned(),
    });
    loop {
        if let Some(word) = word.look() {
            return word;
        }
        until(word.clone(), None).await;
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Outcome<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outcome({})", self.at)
    }
}

/// A time, in the network's nanoseconds: the end of a sleep.
#[derive(Debug)]
struct End(u64);

impl Ready for End {
    fn is_ready(&self) -> bool {
        false
    }

    fn what(&self) -> String {
        format!("the time {}", Time::from_core(urxe_core::Time(self.0)))
    }
}

/// A word on the board.
struct Word {
    here: Arc<Here>,
    key: String,
}

impl Word {
    fn look(&self) -> Option<String> {
        let board = &self.here.common.board;
        board.with(|board| board.get(&self.key).cloned())
    }
}

impl Ready for Word {
    fn is_ready(&self) -> bool {
        self.look().is_some()
    }

    fn what(&self) -> String {
        format!("the word \"{}\", which no program told", self.key)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word({})", self.key)
    }
}

/// Waits until an event is there or the time has come.
async fn until(event: Arc<dyn Ready>, deadline_ns: Option<u64>) {
    poll_fn(|cx| {
        let here = here().expect("it began in a simulation");
        let is_time = deadline_ns.is_some_and(|end| end <= here.nic.now_ns());
        if is_time || event.is_ready() {
            return Poll::Ready(());
        }
        here.nic.wake_when(&event, deadline_ns, cx.waker());
        Poll::Pending
    })
    .await;
}
