//! Completion queues, as the program sees them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use urxe_core::cq::CqId;

use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::error::{Error, ErrorKind};
use crate::limits::LIMITS;
use crate::queues::{Armed, CqCore, CqInit, EACH_MAX, Each, Object, Taker, WouldLose};
use crate::wc::Wc;

const NO_CHANNEL: &str = "the completion queue has no channel, and raises no events: create it by Context::create_cq_with_channel, or wait by Cq::poll_timeout";

/// A completion queue. It is a handle: clones are the same queue, which lives until
/// the last of them and the last QP that uses it are gone.
///
/// A queue that is too small for what completes is an error that is reported: the
/// completion that found no room is lost, all QPs that use the queue fail,
/// [`crate::AsyncEvent::CqErr`] says so, and so does [`Cq::poll`] once everything that
/// arrived before the loss is taken. No completion is stored after the loss.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.9".parse().unwrap())?;
/// let cq = context.create_cq(64)?;
/// let mut wcs = [urxe::Wc::default(); 16];
/// assert_eq!(cq.poll(&mut wcs)?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "ibv_cq")]
pub struct Cq {
    inner: Arc<CqInner>,
}

struct CqInner {
    context: Context,
    core: Arc<CqCore>,
}

impl Cq {
    pub(crate) fn create(
        context: &Context,
        cqe: usize,
        channel: Option<&CompChannel>,
        timestamps: bool,
    ) -> Result<Cq, Error> {
        check_size(cqe)?;
        if channel.is_some_and(|channel| !channel.context().is(context)) {
            return Err(ErrorKind::ForeignObject("completion channel").into());
        }
        let core = context.shards().create_cq(CqInit {
            capacity: cqe,
            channel: channel.map(CompChannel::queue),
            timestamps,
        })?;
        let inner = Arc::new(CqInner {
            context: context.clone(),
            core,
        });
        let mine: Object = Arc::<CqInner>::downgrade(&inner);
        inner
            .core
            .handle
            .set(mine)
            .expect("a new queue has no object yet");
        Ok(Cq { inner })
    }

    /// The queue that raised an event, if it is still there.
    pub(crate) fn of_event(event: &Object) -> Option<Cq> {
        let inner = event.upgrade()?.downcast::<CqInner>().ok()?;
        inner.core.unacked.fetch_add(1, Ordering::Relaxed);
        Some(Cq { inner })
    }

    /// Makes the queue larger or smaller; what is in it stays.
    ///
    /// # Errors
    /// [`ErrorKind::CqSize`] if no queue can have this size, [`ErrorKind::CqResize`] if
    /// more completions are in it than would fit (both EINVAL), and
    /// [`ErrorKind::CqOverrun`] if it overran already: a resize does not mend that.
    /// Nothing has changed then.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, cqe: usize) -> Result<(), Error> {
        self.inner.context.engine().check_process()?;
        check_size(cqe)?;
        if self.inner.core.is_overrun() {
            return Err(ErrorKind::CqOverrun.into());
        }
        self.inner.context.engine().settle_completions()?;
        let resized = self.inner.core.resize(cqe);
        resized.map_err(|WouldLose { held }| ErrorKind::CqResize { cqe, held }.into())
    }

    /// Completion moderation: an event that was asked for is raised once `count`
    /// completions of that kind arrived, or `period_us` microseconds after the first of
    /// them, whichever is sooner. 0 means no limit of that kind; 0 and 0 raises every
    /// event at once, as a new queue does.
    ///
    /// With a `count` alone an event may never come if no more completions do. The time
    /// is kept as exactly as the engine is driven: to about a millisecond.
    ///
    /// # Errors
    /// After a fork, in the child.
    #[doc(alias = "ibv_modify_cq")]
    pub fn modify(&self, count: u16, period_us: u16) -> Result<(), Error> {
        self.inner.context.engine().check_process()?;
        self.inner.core.moderate(count, period_us);
        Ok(())
    }

    /// Takes completions, oldest first, as many as there are and fit into `wcs`; returns
    /// their number. When there is none, the calling thread drives the engine: a program
    /// that polls all the time needs no other thread for its packets.
    ///
    /// # Errors
    /// [`ErrorKind::CqOverrun`] if the queue is empty and a completion was lost.
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll(&self, wcs: &mut [Wc]) -> Result<usize, Error> {
        self.poll_into(wcs)
    }

    /// What [`Cq::poll_each`] takes at most.
    #[doc(hidden)]
    pub const EACH_MAX: usize = EACH_MAX;

    /// [`Cq::poll`] for a caller that keeps completions in a form of its own: `each` gets one
    /// after the other, at most `most` and [`Cq::EACH_MAX`] of them. It may not call the library:
    /// the queue is locked meanwhile.
    ///
    /// # Errors
    /// See [`Cq::poll`].
    #[doc(hidden)]
    #[inline]
    pub fn poll_each(&self, most: usize, each: impl FnMut(Wc)) -> Result<usize, Error> {
        self.poll_into(&mut Each::new(most, each))
    }

    #[inline]
    fn poll_into<T: Taker + ?Sized>(&self, out: &mut T) -> Result<usize, Error> {
        let context = &self.inner.context;
        context.engine().check_process()?;
        let count = context.shards().poll(&self.inner.core, out)?;
        // What arrived before the loss comes first, also when another thread stored it
        // just now.
        if count == 0 && self.inner.core.is_overrun() && self.inner.core.is_empty() {
            return Err(ErrorKind::CqOverrun.into());
        }
        Ok(count)
    }

    /// Polls until there is a completion, without ever sleeping.
    ///
    /// # Errors
    /// See [`Cq::poll`].
    pub fn poll_one(&self) -> Result<Wc, Error> {
        let mut wc = [Wc::default()];
        while self.poll(&mut wc)? == 0 {
            std::hint::spin_loop();
        }
        Ok(wc[0])
    }

    /// Asks for one event on the queue's channel when the next completion arrives; with
    /// `solicited_only`, the next one that a peer marked (or that is an error).
    ///
    /// A completion that arrived before raises no event: poll once more after asking.
    ///
    /// # Errors
    /// If the queue has no channel; or after a fork, in the child.
    #[doc(alias = "ibv_req_notify_cq")]
    #[inline]
    pub fn req_notify(&self, solicited_only: bool) -> Result<(), Error> {
        self.inner.context.engine().check_process()?;
        if self.inner.core.channel.is_none() {
            return Err(ErrorKind::Channel(NO_CHANNEL).into());
        }
        let engine = self.inner.context.engine();
        engine.begin_arming()?;
        self.inner.core.arm(if solicited_only {
            Armed::Solicited
        } else {
            Armed::Next
        });
        engine.end_call();
        Ok(())
    }

    /// Acknowledges `count` events of this queue. Counting more than there
    /// were has no effect.
    ///
    /// Verbs need it because `ibv_destroy_cq` waits until every event is acknowledged.
    /// Here an event that was taken holds the queue itself, so nothing waits: the count
    /// ([`Cq::unacked_events`]) is there for programs that keep it.
    #[doc(alias = "ibv_ack_cq_events")]
    #[inline]
    pub fn ack_events(&self, count: u32) {
        let unacked = &self.inner.core.unacked;
        let less = |now: u32| Some(now.saturating_sub(count));
        // The closure always returns a value, so this cannot fail.
        let _ = unacked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Events of this queue that the program took from its channel and did not
    /// acknowledge.
    pub fn unacked_events(&self) -> u32 {
        self.inner.core.unacked.load(Ordering::Relaxed)
    }

    /// True if a completion was lost because the queue was full. The queue takes no more
    /// then, and its QPs are in the error state.
    pub fn is_overrun(&self) -> bool {
        self.inner.core.is_overrun()
    }

    /// Its number, as [`crate::AsyncEvent::CqErr`] names it.
    pub fn id(&self) -> CqId {
        self.inner.core.id
    }

    /// The most completions that it can hold.
    pub fn capacity(&self) -> usize {
        self.inner.core.capacity()
    }

    pub(crate) fn core(&self) -> &Arc<CqCore> {
        &self.inner.core
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

fn check_size(cqe: usize) -> Result<(), Error> {
    let max = LIMITS.max_cqe as usize;
    if (1..=max).contains(&cqe) {
        return Ok(());
    }
    Err(ErrorKind::CqSize { cqe, max }.into())
}

impl PartialEq for Cq {
    /// True if both are the same queue.
    fn eq(&self, other: &Cq) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Cq {}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.context.shards().destroy_cq(&self.core);
    }
}
