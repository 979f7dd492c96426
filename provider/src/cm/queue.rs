//! Events on their way to the program.

use core::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use urxe_core::cm::{CmEvent, CommId, Incoming};
use urxe_core::table::QpIndex;
use urxe_wire::Qpn;

use super::event_kind::{EventKind, EventParam};
use crate::lock::lock;
use crate::queues::{Channel, CompletingQp, Object};

pub(crate) type Queue = Channel<Queued>;

/// An event that the program did not take so far. It holds no identifier: those that are
/// gone get no events.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) to: Object,
    pub(crate) what: What,
}

/// A queued event.
#[derive(Debug)]
pub(crate) enum What {
    /// Something that is as it is.
    Plain(EventKind, i32, EventParam),
    /// Something of the protocol.
    Agent(CmEvent),
    /// A request; with the number of the context that the listener has.
    Request(usize, CommId, Box<Incoming>),
}

impl What {
    /// The interface was removed, or has another address on its link.
    pub(crate) fn of_interface(is_removed: bool) -> What {
        let kind = if is_removed {
            EventKind::DeviceRemoval
        } else {
            EventKind::AddrChange
        };
        What::Plain(kind, 0, EventParam::None)
    }
}

/// A QP that follows a connection.
#[derive(Clone, Debug)]
pub(crate) struct FollowingQp {
    pub(crate) index: QpIndex,
    pub(crate) qpn: Qpn,
    /// Its engine, if that is not the one of the connection manager.
    pub(crate) elsewhere: Option<Weak<dyn FailQp>>,
}

/// Another shard's engine.
pub(crate) trait FailQp: Debug + Send + Sync {
    /// Fails a QP, if it is still there.
    fn fail_qp(&self, index: QpIndex, qpn: Qpn);
}

/// Where an identifier's events go.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<Arc<Queue>>,
    /// The identifier; set once it is made.
    to: OnceLock<Object>,
    /// The QP that follows its connection, if one does.
    qp: Mutex<Option<FollowingQp>>,
    /// The QP of the connection, if the program names one.
    completing: Mutex<Option<CompletingQp>>,
    /// Set when the connection ends: true if the peer ended it.
    ended_by_peer: OnceLock<bool>,
}

impl Mailbox {
    pub(crate) fn new(queue: Arc<Queue>) -> Arc<Mailbox> {
        Arc::new(Mailbox {
            queue: Mutex::new(queue),
            to: OnceLock::new(),
            qp: Mutex::new(None),
            completing: Mutex::new(None),
            ended_by_peer: OnceLock::new(),
        })
    }

    /// A QP fails when the connection ends, whether or not the program looks for events.
    pub(crate) fn follow(&self, qp: Option<FollowingQp>) {
        *lock(&self.qp) = qp;
    }

    /// The end of the connection is told after what has completed of this QP.
    pub(crate) fn end_after(&self, qp: Option<CompletingQp>) {
        *lock(&self.completing) = qp;
    }

    pub(crate) fn completing(&self) -> Option<CompletingQp> {
        lock(&self.completing).clone()
    }

    /// The connection ends; who ended it first stays.
    pub(crate) fn end(&self, by_peer: bool) {
        let _ = self.ended_by_peer.set(by_peer);
    }

    pub(crate) fn is_ended_by_peer(&self) -> bool {
        self.ended_by_peer.get() == Some(&true)
    }

    pub(crate) fn follower(&self) -> Option<FollowingQp> {
        lock(&self.qp).clone()
    }

    pub(crate) fn address(&self, to: Object) {
        // It is made once.
        let _ = self.to.set(to);
    }

    /// Of an identifier that is gone nothing is told: its channel's descriptor would be readable, and there would be no event.
    pub(crate) fn push(&self, what: What) {
        let is_there = |to: &&Object| to.strong_count() > 0;
        let Some(to) = self.to.get().filter(is_there).cloned() else {
            return;
        };
        lock(&self.queue).push(Queued { to, what });
    }

    pub(crate) fn queue(&self) -> Arc<Queue> {
        lock(&self.queue).clone()
    }

    /// Events go to another channel from now on, with those that wait.
    pub(crate) fn move_to(&self, queue: &Arc<Queue>) {
        let mut own = lock(&self.queue);
        let old = std::mem::replace(&mut *own, queue.clone());
        for queued in self.take_waiting(&old) {
            own.push(queued);
        }
    }

    /// Removes the events that will not be taken.
    pub(crate) fn clear(&self) {
        drop(self.take_waiting(&self.queue()));
    }

    fn take_waiting(&self, queue: &Queue) -> Vec<Queued> {
        let Some(to) = self.to.get() else {
            return Vec::new();
        };
        queue.take_all(|queued| queued.to.ptr_eq(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_that_is_gone_makes_no_channel_readable() {
        let queue = Arc::new(Channel::new().expect("a descriptor"));
        let mailbox = Mailbox::new(queue.clone());
        let id = Arc::new(());
        mailbox.address(Arc::downgrade(&id) as Object);
        mailbox.push(What::of_interface(true));
        assert!(queue.try_take().is_some());
        drop(id);
        mailbox.push(What::of_interface(true));
        assert!(queue.is_empty());
    }
}
