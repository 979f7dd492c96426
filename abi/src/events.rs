//! Counting events that were delivered and acknowledged: an object cannot be destroyed in between.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The events of one kind of one object.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// Delivered, and not acknowledged.
    open: Mutex<i64>,
    changed: Condvar,
}

impl Acks {
    /// The program got an event.
    pub(crate) fn deliver(&self) {
        *self.lock() += 1;
    }

    /// The program acknowledges so many.
    pub(crate) fn ack(&self, count: u32) {
        *self.lock() -= i64::from(count);
        self.changed.notify_all();
    }

    /// Waits until all are acknowledged, for ever if need be (`man ibv_ack_cq_events`).
    pub(crate) fn wait(&self) {
        let mut open = self.lock();
        while *open > 0 {
            open = self
                .changed
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, i64> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn destroying_waits_for_the_last_acknowledgement() {
        let (acks, acked) = (Acks::default(), AtomicBool::new(false));
        acks.wait();
        acks.deliver();
        acks.deliver();
        acks.ack(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                acked.store(true, Ordering::SeqCst);
                acks.ack(1);
            });
            acks.wait();
            assert!(
                acked.load(Ordering::SeqCst),
                "one event is not acknowledged"
            );
        });
    }
}
