//! The inlet of one queue: straight into the core if the engine is free, else into a
//! queue where its holder finds what was posted.
//!
//! Two locks guard it. `post` is held by the thread that posts, for the whole call: posts
//! have an order. `staged` is held for moments only, by that thread or by the holder of
//! the engine, who never waits for anything while holding it. So the order of locks is:
//! post, engine, staged.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use urxe_core::work::PostError;

use crate::engine::Engine;
use crate::engine::drive::doorbell::{Attempt, Bell, Guard, Poisoned};
use crate::engine::drive::shard_state::ShardState;
use crate::lock::lock;
use crate::strict::{Place, Queue as QueueName, Watched};

/// Most requests that wait for the holder of the engine. It comes within some
/// microseconds; if more arrive, waiting for it is the better way.
pub(in crate::engine) const STAGED_MAX: u32 = 256;

/// The way into one queue.
#[derive(Debug)]
pub(in crate::engine) struct Inlet<Q> {
    post: Mutex<Posted>,
    /// Made when it is needed first: most QPs never find the engine taken. It is elsewhere, so that what every post
    /// reads is close together.
    staged: Mutex<Option<Box<Q>>>,
    /// Requests that the core's queue takes; changed with `post` held.
    capacity: AtomicU32,
}

/// What the posting thread knows.
#[derive(Debug, Default)]
struct Posted {
    /// Requests that are outstanding, at most: exact when it was last set from the core's
    /// own count, and requests complete since.
    outstanding: u32,
    /// There may be something in `staged`.
    staged: bool,
}

/// A kind of queue that can be posted to.
pub(in crate::engine) trait Queue {
    /// Names one of the core's queues of this kind.
    type Place: Copy;
    type Wr<'a>: Copy + Watched;
    /// Posting starts nothing by itself: in most cases neither the time matters nor does another thread have to be told.
    const IS_QUIET: bool;

    /// The core's queue is posted to.
    fn post(state: &mut ShardState, at: Self::Place, wr: &Self::Wr<'_>) -> Result<(), PostError>;
    /// The core takes what is staged.
    fn drain(&mut self, state: &mut ShardState, at: Self::Place);
    /// Requests in the core's queue.
    fn outstanding(state: &ShardState, at: Self::Place) -> u32;
    fn stage(&mut self, wr: &Self::Wr<'_>) -> Result<(), PostError>;
}

/// What a queue belongs to.
pub(in crate::engine) trait Owner<Q: Queue> {
    fn place(&self) -> Q::Place;
    fn bell(&self) -> &Bell;
    /// How strict mode names the queue.
    fn name(&self) -> QueueName;
    /// Says no if the core would say no, as far as that is known without it.
    fn takes_posts(&self) -> Result<(), PostError>;
    /// An empty queue for what is staged.
    fn to_stage(&self) -> Q;
}

/// A list of which one was refused.
pub(crate) enum Refused {
    /// The request with this index, for this reason.
    Wr(usize, PostError),
    /// A thread panicked in the engine.
    Poisoned,
}

impl From<Poisoned> for Refused {
    fn from(_: Poisoned) -> Refused {
        Refused::Poisoned
    }
}

impl<Q: Queue> Inlet<Q> {
    pub(in crate::engine) fn new(capacity: u32) -> Inlet<Q> {
        Inlet {
            post: Mutex::default(),
            staged: Mutex::new(None),
            capacity: AtomicU32::new(capacity),
        }
    }

    /// Posts a list. `start` is called with the engine held, if it is. If something watches, `at` is where the call is.
    #[inline]
    pub(in crate::engine) fn post<'a>(
        &self,
        owner: &impl Owner<Q>,
        engine: &Engine,
        wrs: impl Iterator<Item = Q::Wr<'a>>,
        at: Option<Place>,
        start: impl FnOnce(&mut ShardState),
    ) -> Result<(), Refused> {
        let mut posted = lock(&self.post);
        let mut had_work = false;
        let attempt = match at {
            None => engine.combiner.try_lock()?,
            // What watches sees each request on its way into the core.
            Some(_) => Attempt::Held(engine.combiner.lock()?),
        };
        let mut held = match attempt {
            Attempt::Held(guard) => {
                had_work = guard.shard.has_work();
                Some(self.enter(owner, &mut posted, guard))
            }
            Attempt::Busy => None,
        };
        let mut result = Ok(());
        for (index, wr) in wrs.enumerate() {
            if held.is_none() {
                match self.stage(owner, &mut posted, &wr) {
                    Staged::Done => continue,
                    Staged::Refused(error) => {
                        result = Err(Refused::Wr(index, error));
                        break;
                    }
                    // Only the engine knows whether there is room.
                    Staged::Full => {
                        held = Some(self.enter(owner, &mut posted, engine.combiner.lock()?));
                    }
                }
            }
            let state = held.as_mut().expect("taken above");
            if let Err(error) = post(owner, state, &wr, at) {
                result = Err(Refused::Wr(index, error));
                break;
            }
        }
        match held {
            Some(mut state) => {
                posted.outstanding = Q::outstanding(&state, owner.place());
                start(&mut state);
                if Q::IS_QUIET {
                    state.nothing_new = state.is_quiet(had_work);
                }
            }
            None if posted.staged => {
                drop(posted);
                engine.combiner.ring(owner.bell())?;
            }
            None => {}
        }
        result
    }

    /// Posts a list as a whole, if `check` says that the core will take all of it. The engine is waited for: what is
    /// in the core's queue decides.
    pub(in crate::engine) fn post_all<'a>(
        &self,
        owner: &impl Owner<Q>,
        engine: &Engine,
        wrs: impl Iterator<Item = Q::Wr<'a>>,
        at: Option<Place>,
        check: impl FnOnce(&ShardState) -> Result<(), (usize, PostError)>,
        start: impl FnOnce(&mut ShardState),
    ) -> Result<(), Refused> {
        let mut posted = lock(&self.post);
        let mut state = self.enter(owner, &mut posted, engine.combiner.lock()?);
        let mut result = check(&state).map_err(|(index, error)| Refused::Wr(index, error));
        if result.is_ok() {
            for (index, wr) in wrs.enumerate() {
                if let Err(error) = post(owner, &mut state, &wr, at) {
                    debug_assert!(false, "it was checked");
                    result = Err(Refused::Wr(index, error));
                    break;
                }
            }
            start(&mut state);
        }
        posted.outstanding = Q::outstanding(&state, owner.place());
        result
    }

    /// The core takes over what was staged: called by the holder of the engine.
    pub(in crate::engine) fn serve(&self, state: &mut ShardState, at: Q::Place) {
        if let Some(staged) = &mut *lock(&self.staged) {
            staged.drain(state, at);
        }
    }

    /// Looks at what is staged: called by the holder of the engine in the midst of its work.
    pub(in crate::engine) fn take(&self, take: impl FnOnce(&mut Q)) {
        if let Some(staged) = &mut *lock(&self.staged) {
            take(staged);
        }
    }

    /// Changes the core's queue while no thread posts and nothing is staged; `change` returns
    /// the capacity that it then has.
    pub(in crate::engine) fn change<E: From<Poisoned>>(
        &self,
        owner: &impl Owner<Q>,
        engine: &Engine,
        change: impl FnOnce(&mut ShardState) -> Result<u32, E>,
    ) -> Result<(), E> {
        let mut posted = lock(&self.post);
        let state = engine.combiner.lock()?;
        let mut state = self.enter(owner, &mut posted, state);
        let capacity = change(&mut state)?;
        self.capacity.store(capacity, Ordering::Relaxed);
        posted.outstanding = Q::outstanding(&state, owner.place());
        Ok(())
    }

    /// The engine is ours: what was staged goes first.
    #[inline]
    fn enter<'e>(
        &self,
        owner: &impl Owner<Q>,
        posted: &mut Posted,
        mut state: Guard<'e, ShardState>,
    ) -> Guard<'e, ShardState> {
        if !Q::IS_QUIET || posted.staged || state.is_watched() {
            state.start_turn();
        }
        if posted.staged {
            self.serve(&mut state, owner.place());
            posted.staged = false;
        }
        state
    }

    #[cold]
    fn stage(&self, owner: &impl Owner<Q>, posted: &mut Posted, wr: &Q::Wr<'_>) -> Staged {
        if let Err(error) = owner.takes_posts() {
            return Staged::Refused(error);
        }
        if posted.outstanding >= self.capacity.load(Ordering::Relaxed) {
            return Staged::Full;
        }
        let mut staged = lock(&self.staged);
        let staged = staged.get_or_insert_with(|| Box::new(owner.to_stage()));
        match staged.stage(wr) {
            Ok(()) => {
                posted.outstanding += 1;
                posted.staged = true;
                Staged::Done
            }
            Err(PostError::QueueFull(_)) => Staged::Full,
            Err(error) => Staged::Refused(error),
        }
    }
}

/// Posts a request to the core's queue.
#[inline]
fn post<Q: Queue>(
    owner: &impl Owner<Q>,
    state: &mut ShardState,
    wr: &Q::Wr<'_>,
    at: Option<Place>,
) -> Result<(), PostError> {
    match at {
        None => Q::post(state, owner.place(), wr),
        Some(at) => state.post_watched(owner.name(), wr, at, |state| {
            Q::post(state, owner.place(), wr)
        }),
    }
}

enum Staged {
    Done,
    /// No room here, or perhaps none at all.
    Full,
    Refused(PostError),
}
