//! Polling completions one by one, with their times.

use urxe_core::Time;

use crate::cq::Cq;
use crate::error::Error;
use crate::wc::Wc;

/// One completion after the other, as `ibv_start_poll`, `ibv_next_poll` and
/// `ibv_end_poll` give them. It holds no lock: other threads may poll meanwhile, and the
/// program may post.
///
/// ```
/// # fn main() -> Result<(), urxe::Error> {
/// # let context = urxe::Context::open("127.81.0.31".parse().unwrap())?;
/// let cq = context.cq(16).timestamps().create()?;
/// if let Some(mut poll) = cq.start_poll()? {
///     loop {
///         println!("{} at {:?}", poll.wc(), poll.completion_ts());
///         if !poll.next_poll()? {
///             break;
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_cq_ex")]
#[doc(alias = "ibv_end_poll")]
pub struct CqPoll<'a> {
    cq: &'a Cq,
    wc: Wc,
    stamp: Option<Time>,
}

/// What [`crate::Context::query_rt_values`] returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[doc(alias = "ibv_values_ex")]
pub struct RtValues {
    /// The clock that completions are stamped with: nanoseconds since the context was
    /// opened. It never goes back.
    pub raw_clock_ns: u64,
}

impl Cq {
    /// Takes the oldest completion to look at; `None` when there is none, after having
    /// driven the engine once, as [`Cq::poll`] does.
    ///
    /// # Errors
    /// See [`Cq::poll`].
    #[doc(alias = "ibv_start_poll")]
    pub fn start_poll(&self) -> Result<Option<CqPoll<'_>>, Error> {
        if self.core().is_empty() {
            // A poll for nothing: drives, and reports what is to be reported.
            self.poll(&mut [])?;
        }
        Ok(self.take_stamped())
    }

    /// [`Cq::start_poll`] among the completions that are there: it does not drive the
    /// engine.
    ///
    /// # Errors
    /// In the child of a fork.
    #[doc(alias = "ibv_next_poll")]
    pub fn continue_poll(&self) -> Result<Option<CqPoll<'_>>, Error> {
        self.context().engine().check_process()?;
        Ok(self.take_stamped())
    }

    fn take_stamped(&self) -> Option<CqPoll<'_>> {
        let (wc, stamp) = self.core().take_stamped()?;
        self.context().engine().note_polled(&wc);
        Some(CqPoll {
            cq: self,
            wc,
            stamp,
        })
    }
}

impl CqPoll<'_> {
    /// Goes on to the next of the completions that are there; false if there is none, and
    /// then this one stays.
    ///
    /// It does not drive the engine. On an armed queue a completion that arrived in this
    /// call would raise an event, and the same call would take it: the program would wake
    /// for an empty queue, which `ibv_rc_pingpong --events --ts` takes for an error.
    ///
    /// # Errors
    /// In the child of a fork.
    #[doc(alias = "ibv_next_poll")]
    pub fn next_poll(&mut self) -> Result<bool, Error> {
        let Some(next) = self.cq.continue_poll()? else {
            return Ok(false);
        };
        *self = next;
        Ok(true)
    }

    /// The completion.
    #[doc(alias = "ibv_wc_read_opcode")]
    #[doc(alias = "ibv_wc_read_byte_len")]
    #[doc(alias = "ibv_wc_read_imm_data")]
    #[doc(alias = "ibv_wc_read_qp_num")]
    #[doc(alias = "ibv_wc_read_src_qp")]
    #[doc(alias = "ibv_wc_read_wc_flags")]
    #[doc(alias = "ibv_wc_read_vendor_err")]
    pub fn wc(&self) -> &Wc {
        &self.wc
    }

    /// When it completed, on the clock of [`crate::Context::query_rt_values`], in
    /// nanoseconds; `None` if the queue was created without timestamps. That is the
    /// beginning of the engine's turn in which it completed: some microseconds before it
    /// at most.
    #[doc(alias = "ibv_wc_read_completion_ts")]
    pub fn completion_ts(&self) -> Option<u64> {
        self.stamp.map(|stamp| stamp.0)
    }

    /// The time of the completion on the system's clock, as nanoseconds since 1970
    /// ([`crate::Context::wallclock_ns`]).
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    pub fn completion_wallclock_ns(&self) -> Option<u64> {
        let engine = self.cq.context().engine();
        self.stamp.map(|stamp| engine.clock.wall_ns(stamp))
    }
}
