//! Completion queues, as the program sees them.

use std::sync::Arc;

use urxe_core::cq::CqId;

use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::engine::{Armed, CqCore};
use crate::error::{Error, ErrorKind};
use crate::limits::LIMITS;
use crate::wc::Wc;

/// A completion queue. It is a handle: clones are the same queue, which lives until
/// the last of them and the last QP that uses it are gone.
///
/// A queue that is too small for what completes is an error that is reported: the
/// completion that found no room is lost, its QP fails, [`crate::AsyncEvent::CqErr`]
/// says so, and so does [`Cq::poll`] once the queue is empty.
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
#[derive(Clone, Debug)]
#[doc(alias = "ibv_cq")]
pub struct Cq {
    inner: Arc<CqInner>,
}

#[derive(Debug)]
pub(crate) struct CqInner {
    context: Context,
    core: Arc<CqCore>,
}

impl Cq {
    pub(crate) fn create(
        context: &Context,
        cqe: usize,
        channel: Option<&CompChannel>,
    ) -> Result<Cq, Error> {
        let max = LIMITS.max_cqe as usize;
        if !(1..=max).contains(&cqe) {
            return Err(ErrorKind::CqSize { cqe, max }.into());
        }
        if channel.is_some_and(|channel| !channel.context().is(context)) {
            return Err(ErrorKind::ForeignObject("completion channel").into());
        }
        let core = context
            .engine()
            .create_cq(cqe, channel.map(CompChannel::queue))?;
        let inner = Arc::new(CqInner {
            context: context.clone(),
            core,
        });
        if let Some(channel) = channel {
            channel.adopt(inner.core.id, &inner);
        }
        Ok(Cq { inner })
    }

    pub(crate) fn from_inner(inner: Arc<CqInner>) -> Cq {
        Cq { inner }
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
        let engine = self.inner.context.engine();
        engine.check_process()?;
        let count = engine.poll(&self.inner.core, wcs)?;
        if count == 0 && self.inner.core.is_overrun() {
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
            let (name, allowed) = ("the number of completion channels", "an event needs one");
            return Err(ErrorKind::Value {
                name,
                value: 0,
                allowed,
            }
            .into());
        }
        self.inner.core.arm(if solicited_only {
            Armed::Solicited
        } else {
            Armed::Next
        });
        Ok(())
    }

    /// Says that `count` events of this queue were handled.
    ///
    /// Verbs need it to destroy a queue safely. Here events hold the queue itself, so
    /// nothing depends on it; it is there for programs that are used to it.
    #[doc(alias = "ibv_ack_cq_events")]
    #[inline]
    pub fn ack_events(&self, count: u32) {
        let _ = count;
    }

    /// Its number, as [`crate::AsyncEvent::CqErr`] names it.
    pub fn id(&self) -> CqId {
        self.inner.core.id
    }

    /// Completions that it holds at most.
    pub fn capacity(&self) -> usize {
        self.inner.core.capacity
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
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
        self.context.engine().destroy_cq(&self.core);
    }
}
