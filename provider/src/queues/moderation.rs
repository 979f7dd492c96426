//! Completion moderation: an event for several completions instead of one for each.

use std::sync::{Arc, Weak};

use urxe_core::Time;

use super::cq::{Armed, CqCore};

/// What a completion that an event was asked for leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The event, now.
    Now,
    /// Nothing yet.
    Later,
    /// Nothing yet, but the event at this time, unless it is raised before.
    At(Time),
}

/// The rule of one queue, and how far it got since its last event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moderation {
    count: u16,
    period_ns: u64,
    pending: u16,
    /// When the event is due, if something is pending.
    deadline: Option<Time>,
    /// The queue is in the clock's list.
    has_timer: bool,
}

impl Moderation {
    /// An event after `count` completions or `period_us` after the first of them; 0 is
    /// no limit of that kind, and 0 of both no moderation.
    pub(crate) fn set(&mut self, count: u16, period_us: u16) {
        self.count = count;
        self.period_ns = u64::from(period_us) * 1000;
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    #[inline]
    pub(crate) fn on_completion(&mut self, now: Time) -> Notice {
        let is_off = self.count == 0 && self.period_ns == 0;
        self.pending = self.pending.saturating_add(1);
        if is_off || (self.count > 0 && self.pending >= self.count) {
            return Notice::Now;
        }
        if self.pending > 1 || self.period_ns == 0 {
            return Notice::Later;
        }
        let at = now + self.period_ns;
        self.deadline = Some(at);
        // A timer of an earlier round looks at the deadline when it fires.
        if std::mem::replace(&mut self.has_timer, true) {
            Notice::Later
        } else {
            Notice::At(at)
        }
    }

    pub(crate) fn on_raised(&mut self) {
        self.pending = 0;
        self.deadline = None;
    }

    /// The queue's timer fired: is the event due, or when will it be?
    fn on_timer(&mut self, now: Time) -> Option<Time> {
        let later = self.deadline.filter(|&deadline| deadline > now);
        self.has_timer = later.is_some();
        later
    }
}

/// The engine's time as completion queues see it, and the queues that wait for it.
#[derive(Debug, Default)]
pub(crate) struct ModerationClock {
    /// When the present turn began.
    pub(crate) now: Time,
    /// One for each queue with an event that waits for a time.
    waiting: Vec<(Time, Weak<CqCore>)>,
    /// When [`ModerationClock::fire`] has something to do.
    pub(crate) due: Option<Time>,
    /// A completion came for a queue that is armed: the program waits for events.
    pub(crate) met_armed: bool,
}

impl ModerationClock {
    pub(crate) fn wait(&mut self, cq: &Arc<CqCore>, at: Time) {
        self.waiting.push((at, Arc::downgrade(cq)));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Raises the events that are due.
    #[cold]
    pub(crate) fn fire(&mut self) {
        let now = self.now;
        self.waiting.retain_mut(|(at, cq)| {
            if *at > now {
                return true;
            }
            let Some(cq) = cq.upgrade() else { return false };
            let mut inner = cq.lock();
            if let Some(later) = inner.moderation.on_timer(now) {
                *at = later;
                return true;
            }
            if inner.moderation.is_pending() && inner.armed != Armed::No {
                cq.raise(inner);
            }
            false
        });
        self.due = self.waiting.iter().map(|(at, _)| *at).min();
    }
}
