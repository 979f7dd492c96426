//! Completion queues with options: channel, timestamps, overrun.

use crate::comp_channel::CompChannel;
use crate::context::Context;
use crate::cq::Cq;
use crate::error::{Error, ErrorKind};

/// A completion queue that is to be created; see [`Context::cq`].
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.30".parse().unwrap())?;
/// let channel = context.create_comp_channel()?;
/// let cq = context.cq(256).channel(&channel).timestamps().create()?;
/// assert_eq!(cq.capacity(), 256);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_cq_init_attr_ex")]
pub struct CqBuilder<'a> {
    context: &'a Context,
    cqe: usize,
    channel: Option<&'a CompChannel>,
    comp_vector: u32,
    timestamps: bool,
    ignore_overrun: bool,
}

impl<'a> CqBuilder<'a> {
    pub(crate) fn new(context: &'a Context, cqe: usize) -> CqBuilder<'a> {
        CqBuilder {
            context,
            cqe,
            channel: None,
            comp_vector: 0,
            timestamps: false,
            ignore_overrun: false,
        }
    }

    /// The channel that it raises events on.
    #[must_use]
    pub fn channel(mut self, channel: &'a CompChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// The completion vector: 0 is the only one, as there are no interrupts to spread.
    #[must_use]
    pub fn comp_vector(mut self, vector: u32) -> Self {
        self.comp_vector = vector;
        self
    }

    /// Keeps the time of every completion, for [`crate::CqPoll::completion_ts`].
    #[must_use]
    #[doc(alias = "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP")]
    #[doc(alias = "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK")]
    pub fn timestamps(mut self) -> Self {
        self.timestamps = true;
        self
    }

    /// Promises that one thread at a time uses the queue. Accepted, and without effect:
    /// other threads may drive the engine that fills it, so its lock is needed anyway.
    #[must_use]
    #[doc(alias = "IBV_CREATE_CQ_ATTR_SINGLE_THREADED")]
    pub fn single_threaded(self) -> Self {
        self
    }

    /// Asks that an overrun goes unnoticed. [`CqBuilder::create`] refuses it.
    #[must_use]
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub fn ignore_overrun(mut self) -> Self {
        self.ignore_overrun = true;
        self
    }

    /// Creates it.
    ///
    /// # Errors
    /// [`ErrorKind::CqSize`] if the size is not possible, [`ErrorKind::Value`] for a
    /// completion vector that is not there (both EINVAL), [`ErrorKind::Unsupported`] for
    /// an ignored overrun, [`ErrorKind::ForeignObject`] if the channel is of another
    /// context, [`ErrorKind::TooManyCqs`] when there are no more.
    pub fn create(self) -> Result<Cq, Error> {
        if self.comp_vector != 0 {
            let (name, allowed) = ("comp_vector", "0 is the only completion vector");
            return Err(Error::value(name, self.comp_vector.into(), allowed));
        }
        if self.ignore_overrun {
            let text = "a completion queue cannot ignore overruns: one that loses completions \
                        always says so";
            return Err(ErrorKind::Unsupported(text).into());
        }
        Cq::create(self.context, self.cqe, self.channel, self.timestamps)
    }
}
