//! Posting work requests: straight into the core if the engine is free, else into a
//! queue where its holder finds them.
//!
//! Two locks guard a queue's way in. `post` is held by the thread that posts, for the
//! whole call: posts of one QP have an order. `staged` is held for moments only, by
//! that thread or by the holder of the engine, who never waits for anything while
//! holding it. So the order of locks is: post, engine, staged.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use urxe_core::AckMode;
use urxe_core::qp::attr::QpCap;
use urxe_core::qp::state::QpState;
use urxe_core::table::QpIndex;
use urxe_core::work::{PostError, RecvQueue, RecvWr, SendQueue, SendWr};
use urxe_wire::Qpn;

use super::Engine;
use super::doorbell::{Attempt, Bell, Guard, Poisoned};
use super::shard_state::{ShardState, with_env};

/// Most requests that wait for the holder of the engine. It comes within some
/// microseconds; if more arrive, waiting for it is the better way.
const STAGED_MAX: u32 = 256;

/// What threads that use a QP share beside the core's own state.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) index: QpIndex,
    pub(crate) qpn: Qpn,
    bell: Bell,
    cap: QpCap,
    /// The state that the program last asked for. The core may have failed the QP since,
    /// which changes nothing about which posts are taken.
    state: AtomicU8,
    sends: Inlet<SendQueue>,
    recvs: Inlet<RecvQueue>,
}

/// The way into one queue.
#[derive(Debug)]
struct Inlet<Q> {
    post: Mutex<Posted>,
    /// Made when it is needed first: most QPs never find the engine taken.
    staged: Mutex<Option<Q>>,
    capacity: u32,
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
trait Queue {
    type Wr<'a>: Copy;

    /// The core's queue is posted to.
    fn post(state: &mut ShardState, index: QpIndex, wr: &Self::Wr<'_>) -> Result<(), PostError>;
    /// The core takes what is staged.
    fn drain(&mut self, state: &mut ShardState, index: QpIndex);
    /// Requests in the core's queue.
    fn outstanding(state: &ShardState, index: QpIndex) -> u32;
    fn stage(&mut self, wr: &Self::Wr<'_>) -> Result<(), PostError>;
    /// An empty queue for what is staged.
    fn to_stage(cap: &QpCap) -> Self;
    fn is_taken_in(state: QpState) -> Result<(), PostError>;
}

impl Queue for SendQueue {
    type Wr<'a> = SendWr<'a>;

    #[inline]
    fn post(state: &mut ShardState, index: QpIndex, wr: &SendWr<'_>) -> Result<(), PostError> {
        with_env!(state, |shard, env| shard.post_send(index, wr, env))
    }

    fn drain(&mut self, state: &mut ShardState, index: QpIndex) {
        with_env!(state, |shard, env| shard.drain_send(index, self, env));
    }

    #[inline]
    fn outstanding(state: &ShardState, index: QpIndex) -> u32 {
        state.shard.sq_len(index)
    }

    fn stage(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.push(wr)
    }

    fn to_stage(cap: &QpCap) -> Self {
        SendQueue::new(
            cap.max_send_wr.min(STAGED_MAX),
            cap.max_send_sge as usize,
            cap.max_inline_data as usize,
        )
    }

    fn is_taken_in(state: QpState) -> Result<(), PostError> {
        if state.takes_post_send() {
            Ok(())
        } else {
            Err(PostError::State("send"))
        }
    }
}

impl Queue for RecvQueue {
    type Wr<'a> = RecvWr<'a>;

    #[inline]
    fn post(state: &mut ShardState, index: QpIndex, wr: &RecvWr<'_>) -> Result<(), PostError> {
        with_env!(state, |shard, env| shard.post_recv(index, wr, env))
    }

    fn drain(&mut self, state: &mut ShardState, index: QpIndex) {
        with_env!(state, |shard, env| shard.drain_recv(index, self, env));
    }

    #[inline]
    fn outstanding(state: &ShardState, index: QpIndex) -> u32 {
        state.shard.rq_len(index)
    }

    fn stage(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.push(wr)
    }

    fn to_stage(cap: &QpCap) -> Self {
        RecvQueue::new(cap.max_recv_wr.min(STAGED_MAX), cap.max_recv_sge as usize)
    }

    fn is_taken_in(state: QpState) -> Result<(), PostError> {
        if state.takes_post_recv() {
            Ok(())
        } else {
            Err(PostError::State("receive"))
        }
    }
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

impl QpShared {
    pub(crate) fn new(index: QpIndex, qpn: Qpn, cap: &QpCap) -> QpShared {
        QpShared {
            index,
            qpn,
            bell: Bell::new(index.0),
            cap: *cap,
            state: AtomicU8::new(QpState::Reset as u8),
            sends: Inlet::new(cap.max_send_wr),
            recvs: Inlet::new(cap.max_recv_wr),
        }
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Notes the state that the QP was brought into.
    pub(crate) fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    fn state(&self) -> QpState {
        let number = self.state.load(Ordering::Relaxed);
        QpState::ALL[usize::from(number)]
    }

    /// Takes over what was staged: called by the holder of the engine.
    pub(crate) fn serve(&self, state: &mut ShardState) {
        self.bell.silence();
        state.counters.bells_served += 1;
        self.sends.drain(state, self.index);
        self.recvs.drain(state, self.index);
    }

    /// Posts sends and starts them.
    #[inline]
    pub(crate) fn post_sends<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = SendWr<'a>>,
    ) -> Result<(), Refused> {
        self.sends.post(self, engine, wrs, |state| {
            // An ACK that is owed goes with the requests, if any leave; alone it waits
            // for the next poll. A full window so costs no system call.
            state.transmit(AckMode::Defer);
        })
    }

    /// Posts receives.
    #[inline]
    pub(crate) fn post_recvs<'a>(
        &self,
        engine: &Engine,
        wrs: impl Iterator<Item = RecvWr<'a>>,
    ) -> Result<(), Refused> {
        self.recvs.post(self, engine, wrs, |_| {})
    }
}

impl<Q: Queue> Inlet<Q> {
    fn new(capacity: u32) -> Inlet<Q> {
        Inlet {
            post: Mutex::default(),
            staged: Mutex::new(None),
            capacity,
        }
    }

    /// What was staged goes to the core.
    fn drain(&self, state: &mut ShardState, index: QpIndex) {
        if let Some(staged) = &mut *lock(&self.staged) {
            staged.drain(state, index);
        }
    }

    #[inline]
    fn post<'a>(
        &self,
        qp: &QpShared,
        engine: &Engine,
        wrs: impl Iterator<Item = Q::Wr<'a>>,
        start: impl FnOnce(&mut ShardState),
    ) -> Result<(), Refused> {
        let mut posted = lock(&self.post);
        let mut held = match engine.combiner.try_lock()? {
            Attempt::Held(guard) => Some(self.enter(qp, &mut posted, guard)),
            Attempt::Busy => None,
        };
        let mut result = Ok(());
        for (index, wr) in wrs.enumerate() {
            if held.is_none() {
                match self.stage(qp, &mut posted, &wr) {
                    Staged::Done => continue,
                    Staged::Refused(error) => {
                        result = Err(Refused::Wr(index, error));
                        break;
                    }
                    // Only the engine knows whether there is room.
                    Staged::Full => {
                        held = Some(self.enter(qp, &mut posted, engine.combiner.lock()?));
                    }
                }
            }
            let state = held.as_mut().expect("taken above");
            if let Err(error) = Q::post(state, qp.index, &wr) {
                result = Err(Refused::Wr(index, error));
                break;
            }
        }
        match held {
            Some(mut state) => {
                posted.outstanding = Q::outstanding(&state, qp.index);
                start(&mut state);
            }
            None if posted.staged => {
                drop(posted);
                engine.combiner.ring(&qp.bell)?;
            }
            None => {}
        }
        result
    }

    /// The engine is ours: what was staged goes first.
    #[inline]
    fn enter<'e>(
        &self,
        qp: &QpShared,
        posted: &mut Posted,
        mut state: Guard<'e, ShardState>,
    ) -> Guard<'e, ShardState> {
        state.start_turn();
        if posted.staged {
            self.drain(&mut state, qp.index);
            posted.staged = false;
        }
        state
    }

    #[cold]
    fn stage(&self, qp: &QpShared, posted: &mut Posted, wr: &Q::Wr<'_>) -> Staged {
        if let Err(error) = Q::is_taken_in(qp.state()) {
            return Staged::Refused(error);
        }
        if posted.outstanding >= self.capacity {
            return Staged::Full;
        }
        let mut staged = lock(&self.staged);
        let staged = staged.get_or_insert_with(|| Q::to_stage(&qp.cap));
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

enum Staged {
    Done,
    /// No room here, or perhaps none at all.
    Full,
    Refused(PostError),
}

/// Queues stay whole when a thread panics: their methods change nothing half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
