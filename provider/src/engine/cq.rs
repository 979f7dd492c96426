//! Completion queues: rings that the engine fills and the application empties.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use urxe_core::cq::{CqId, CqOverrun, CqSink, Cqe};

use super::channel::Channel;
use crate::wc::Wc;

/// Which completion raises the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    No,
    Solicited,
    Next,
}

/// One completion queue.
#[derive(Debug)]
pub(crate) struct CqCore {
    pub(crate) id: CqId,
    pub(crate) capacity: usize,
    pub(crate) channel: Option<Arc<Channel<CqId>>>,
    inner: Mutex<Inner>,
    /// Completions in the ring: so that a poll of an empty queue takes no lock.
    len: AtomicUsize,
    /// A completion was lost: what is in the queue is not all there was.
    overrun: AtomicBool,
    /// Polls in a row that found something.
    polls: AtomicUsize,
}

#[derive(Debug)]
struct Inner {
    ring: VecDeque<Cqe>,
    armed: Armed,
}

/// A program that always finds completions must look at the network now and then too,
/// or the socket's buffer overflows. Sixteen polls of a few completions each are a few
/// microseconds; the buffer holds a millisecond.
const POLLS_PER_DRIVE: usize = 16;

impl CqCore {
    pub(crate) fn new(id: CqId, capacity: usize, channel: Option<Arc<Channel<CqId>>>) -> CqCore {
        let inner = Inner {
            ring: VecDeque::with_capacity(capacity),
            armed: Armed::No,
        };
        CqCore {
            id,
            capacity,
            channel,
            inner: Mutex::new(inner),
            len: AtomicUsize::new(0),
            overrun: AtomicBool::new(false),
            polls: AtomicUsize::new(0),
        }
    }

    /// True if there is nothing to take.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// Takes up to `out.len()` completions.
    #[inline]
    pub(crate) fn take(&self, out: &mut [Wc]) -> usize {
        if self.is_empty() || out.is_empty() {
            return 0;
        }
        let mut inner = self.lock();
        let count = out.len().min(inner.ring.len());
        for (wc, cqe) in out.iter_mut().zip(inner.ring.drain(..count)) {
            *wc = Wc::from(cqe);
        }
        self.len.store(inner.ring.len(), Ordering::Release);
        count
    }

    /// Asks for an event at the next completion (or the next solicited one).
    pub(crate) fn arm(&self, armed: Armed) {
        // Under the lock: a completion is either in the ring before this, so that the
        // poll which the program does now finds it, or it sees the arming.
        let mut inner = self.lock();
        if inner.armed != Armed::Next {
            inner.armed = armed;
        }
    }

    /// True once every so many calls: a poll that found completions shall drive too.
    #[inline]
    pub(crate) fn is_turn_to_drive(&self) -> bool {
        // Racing pollers may lose a count: harmless.
        let polls = self.polls.load(Ordering::Relaxed) + 1;
        self.polls.store(polls, Ordering::Relaxed);
        polls.is_multiple_of(POLLS_PER_DRIVE)
    }

    /// True if a completion was lost.
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    fn push(&self, cqe: Cqe) -> Result<(), CqOverrun> {
        let mut inner = self.lock();
        if inner.ring.len() >= self.capacity {
            self.overrun.store(true, Ordering::Relaxed);
            return Err(CqOverrun);
        }
        let raises = match inner.armed {
            Armed::No => false,
            Armed::Solicited => cqe.solicited,
            Armed::Next => true,
        };
        inner.ring.push_back(cqe);
        self.len.store(inner.ring.len(), Ordering::Release);
        if raises && let Some(channel) = &self.channel {
            inner.armed = Armed::No;
            drop(inner);
            channel.push(self.id);
        }
        Ok(())
    }

    /// Nothing in here panics half way, so a poisoned ring is a whole ring.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All completion queues of a context, by number: where the core puts completions.
#[derive(Debug, Default)]
pub(crate) struct CqTable {
    cqs: Vec<Option<Arc<CqCore>>>,
}

impl CqTable {
    /// A free number; [`CqTable::insert`] uses it.
    pub(crate) fn free_id(&self) -> CqId {
        let free = self.cqs.iter().position(Option::is_none);
        CqId(free.unwrap_or(self.cqs.len()) as u32)
    }

    pub(crate) fn insert(&mut self, cq: Arc<CqCore>) {
        let index = cq.id.0 as usize;
        if self.cqs.len() <= index {
            self.cqs.resize(index + 1, None);
        }
        self.cqs[index] = Some(cq);
    }

    pub(crate) fn remove(&mut self, id: CqId) {
        self.cqs[id.0 as usize] = None;
    }
}

impl CqSink for CqTable {
    #[inline]
    fn push(&mut self, id: CqId, cqe: Cqe) -> Result<(), CqOverrun> {
        match self.cqs.get(id.0 as usize) {
            Some(Some(cq)) => cq.push(cqe),
            // A QP keeps its queues alive, so this is not reached.
            _ => Err(CqOverrun),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use urxe_core::cq::WcOpcode;
    use urxe_core::error::{Fault, WcStatus};
    use urxe_wire::Qpn;

    fn cqe(wr_id: u64, solicited: bool) -> Cqe {
        Cqe {
            wr_id,
            status: WcStatus::Success,
            fault: Fault::None,
            opcode: WcOpcode::Send,
            byte_len: 0,
            imm: None,
            invalidated: None,
            qpn: Qpn::new(2),
            src_qp: Qpn::new(3),
            solicited,
        }
    }

    #[test]
    fn holds_what_it_was_made_for_and_reports_the_rest() {
        let cq = CqCore::new(CqId(0), 3, None);
        for n in 0..3 {
            assert_eq!(cq.push(cqe(n, false)), Ok(()));
        }
        assert_eq!(cq.push(cqe(3, false)), Err(CqOverrun));
        assert!(cq.is_overrun());
        let mut out = [Wc::default(); 2];
        assert_eq!(cq.take(&mut out), 2);
        assert_eq!((out[0].wr_id, out[1].wr_id), (0, 1));
        assert_eq!(cq.take(&mut out), 1);
        assert!(cq.is_empty());
    }

    #[test]
    fn raises_one_event_per_arming() {
        let channel = Arc::new(Channel::new().expect("a descriptor"));
        let cq = CqCore::new(CqId(7), 100, Some(channel.clone()));
        let events = |pushes: &[bool]| {
            for &solicited in pushes {
                cq.push(cqe(0, solicited)).expect("room");
            }
            std::iter::from_fn(|| channel.try_take()).count()
        };
        assert_eq!(events(&[true]), 0, "not armed");
        cq.arm(Armed::Next);
        assert_eq!(events(&[false, false]), 1);
        cq.arm(Armed::Solicited);
        assert_eq!(events(&[false, false]), 0);
        assert_eq!(events(&[true, true]), 1);
        cq.arm(Armed::Next);
        cq.arm(Armed::Solicited);
        assert_eq!(events(&[false]), 1, "the stronger arming stays");
    }
}
