//! The tasks of a simulated program: what [`block_on`](crate::program::task::block_on) runs, one at a time.

use core::fmt;
use core::future::Future;
use core::panic::Location;
use core::pin::Pin;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use urxe::network::Ready;

use crate::program::threads::Shared;

/// The future that `block_on` was given, among the tasks.
pub(crate) const ROOT: u64 = 0;
/// Tasks that a failure names.
const NAMED_MAX: usize = 16;

pub(crate) type Body = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Which tasks there are, which of them go on, and what the others wait for.
#[derive(Default)]
pub(crate) struct Executor(Shared<State>);

#[derive(Default)]
struct State {
    tasks: BTreeMap<u64, Task>,
    next: u64,
    /// Tasks that were woken and have not gone on, each once.
    ready: Vec<u64>,
    /// What was asked for by [`Executor::wake_when`].
    waits: Vec<Wait>,
    /// The task that goes on now.
    current: u64,
    /// The time at which events were looked for.
    looked_ns: Option<u64>,
    /// Polls for completions that found none, since the task goes on.
    vain: u32,
}

struct Task {
    /// `None` while it goes on, and for the root.
    body: Option<Body>,
    waker: Waker,
    /// Where it began.
    at: &'static Location<'static>,
    is_ready: bool,
    /// How often it went on.
    turns: u64,
    is_aborted: bool,
}

struct Wait {
    event: Weak<dyn Ready>,
    deadline_ns: Option<u64>,
    waker: Waker,
    task: u64,
    /// The turn of the task that asked.
    turn: u64,
}

/// Wakes a task.
struct Alarm {
    executor: Weak<Executor>,
    task: u64,
}

/// What goes on next.
pub(crate) enum Next {
    Root(Waker),
    Task(u64, Body, Waker),
}

impl Executor {
    /// One with a root that began there.
    pub(crate) fn new(at: &'static Location<'static>) -> Arc<Executor> {
        let executor = Arc::<Executor>::default();
        executor.add(None, at);
        executor
    }

    /// Adds a task, which goes on some time.
    pub(crate) fn add(self: &Arc<Self>, body: Option<Body>, at: &'static Location<'static>) -> u64 {
        self.0.with(|state| {
            let number = state.next;
            state.next += 1;
            let alarm = Alarm {
                executor: Arc::downgrade(self),
                task: number,
            };
            let task = Task {
                body,
                waker: Arc::new(alarm).into(),
                at,
                is_ready: true,
                turns: 0,
                is_aborted: false,
            };
            state.tasks.insert(number, task);
            state.ready.push(number);
            number
        })
    }

    /// Chooses among the tasks that can go on: `choose` names one of so many.
    pub(crate) fn next(&self, choose: impl FnOnce(usize) -> usize) -> Option<Next> {
        self.0.with(|state| {
            let place = match state.ready.len() {
                0 => return None,
                1 => 0,
                several => choose(several),
            };
            let number = state.ready.remove(place);
            let task = state
                .tasks
                .get_mut(&number)
                .expect("what is ready is there");
            task.is_ready = false;
            task.turns += 1;
            (state.current, state.vain) = (number, 0);
            let waker = task.waker.clone();
            Some(match task.body.take() {
                Some(body) => Next::Task(number, body, waker),
                None => Next::Root(waker),
            })
        })
    }

    /// The task went on, and waits again. Returned is what is to be dropped.
    pub(crate) fn keep(&self, number: u64, body: Body) -> Option<Body> {
        self.0.with(|state| match state.tasks.get_mut(&number) {
            Some(task) if !task.is_aborted => {
                task.body = Some(body);
                None
            }
            _ => {
                state.forget(number);
                Some(body)
            }
        })
    }

    /// The task has ended.
    pub(crate) fn end(&self, number: u64) {
        self.0.with(|state| {
            state.forget(number);
            // Others may wait for it.
            state.looked_ns = None;
        });
    }

    /// Ends a task where it is. Returned is what is to be dropped: nothing, if it goes on just now.
    pub(crate) fn abort(&self, number: u64) -> Option<Body> {
        self.0.with(|state| {
            state.looked_ns = None;
            let task = state.tasks.get_mut(&number)?;
            task.is_aborted = true;
            let body = task.body.take()?;
            state.forget(number);
            Some(body)
        })
    }

    /// Takes all tasks, to be dropped.
    pub(crate) fn clear(&self) -> Vec<Body> {
        self.0.with(|state| {
            state.ready.clear();
            let tasks = core::mem::take(&mut state.tasks);
            tasks.into_values().filter_map(|task| task.body).collect()
        })
    }

    /// The task that goes on now waits for an event, or for a time.
    pub(crate) fn wake_when(
        &self,
        event: &Arc<dyn Ready>,
        deadline_ns: Option<u64>,
        waker: &Waker,
    ) {
        let old = self.0.with(|state| {
            let task = state.current;
            let wait = Wait {
                event: Arc::downgrade(event),
                deadline_ns,
                waker: waker.clone(),
                task,
                turn: state.tasks.get(&task).map_or(0, |task| task.turns),
            };
            let is_same = |old: &&mut Wait| Weak::ptr_eq(&old.event, &wait.event);
            match state.waits.iter_mut().find(is_same) {
                Some(old) => Some(core::mem::replace(old, wait)),
                None => {
                    state.waits.push(wait);
                    None
                }
            }
        });
        // Wakers may be anything: they are dropped without the lock.
        drop(old);
    }

    /// Wakes tasks for which an event is there or a time has come. While others can go on, events that come at no new time may
    /// be found later.
    pub(crate) fn wake_due(&self, now_ns: u64) {
        let due: Vec<Wait> = self.0.with(|state| {
            if !state.ready.is_empty() && state.looked_ns == Some(now_ns) {
                return Vec::new();
            }
            state.looked_ns = Some(now_ns);
            let is_due = |wait: &mut Wait| {
                let is_time = wait.deadline_ns.is_some_and(|end| end <= now_ns);
                is_time || wait.is_over() || wait.is_ready()
            };
            state.waits.extract_if(.., is_due).collect()
        });
        for wait in due {
            if !wait.is_over() {
                wait.waker.wake();
            }
        }
    }

    /// The next time that a task waits for.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.0.with(|state| {
            let waits = state.waits.iter().filter(|wait| !wait.is_over());
            waits.filter_map(|wait| wait.deadline_ns).min()
        })
    }

    /// A task polls for completions in vain. True if it should be short, because others can go on; a task that does nothing else
    /// keeps them from it, though.
    pub(crate) fn polls_in_vain(&self) -> bool {
        const SHORT: u32 = 16;
        self.0.with(|state| {
            state.vain += 1;
            state.vain <= SHORT && !state.ready.is_empty()
        })
    }
}

impl State {
    fn forget(&mut self, number: u64) {
        self.tasks.remove(&number);
        self.ready.retain(|ready| *ready != number);
    }

    /// What a task waits for, in words.
    fn describe(&self, number: u64, task: &Task) -> String {
        let of_task = |wait: &&Wait| wait.task == number;
        let newest = |wait: &&Wait| wait.turn == task.turns;
        let what = |wait: &Wait| wait.event.upgrade().map(|event| event.what());
        let waits = || self.waits.iter().filter(of_task);
        let mut events: Vec<String> = waits().filter(newest).filter_map(what).collect();
        if events.is_empty() {
            // It woke and asked for nothing new: what it asked for before.
            events = waits().filter_map(what).collect();
        }
        let events = if events.is_empty() {
            "to be woken by the program itself".to_owned()
        } else {
            events.join(" or ")
        };
        let kind = if number == ROOT { "block_on" } else { "task" };
        format!("{events} ({kind} at {}:{})", task.at.file(), task.at.line())
    }
}

impl Wait {
    fn is_over(&self) -> bool {
        self.event.strong_count() == 0
    }

    fn is_ready(&self) -> bool {
        let event = self.event.upgrade();
        event.is_some_and(|event| event.is_ready())
    }
}

impl Ready for Executor {
    fn is_ready(&self) -> bool {
        self.0
            .with(|state| !state.ready.is_empty() || state.waits.iter().any(Wait::is_ready))
    }

    fn what(&self) -> String {
        self.0.with(|state| {
            let each = state.tasks.iter().take(NAMED_MAX);
            let each = each.map(|(number, task)| state.describe(*number, task));
            let mut all = each.collect::<Vec<_>>().join(", ");
            if let Some(more) = state.tasks.len().checked_sub(NAMED_MAX + 1) {
                all += &format!(", and {} tasks more", more + 1);
            }
            all
        })
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Executor")
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(executor) = self.executor.upgrade() else {
            return;
        };
        executor.0.with(|state| {
            if let Some(task) = state.tasks.get_mut(&self.task)
                && !task.is_ready
            {
                task.is_ready = true;
                state.ready.push(self.task);
            }
        });
    }
}
