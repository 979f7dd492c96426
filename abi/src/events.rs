//! Counts delivered and acknowledged events: an object cannot be destroyed in between.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::lock::{lock, whole};

/// The events of one kind of one object. A clone counts the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acks(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    /// Delivered, and not acknowledged.
    open: Mutex<i64>,
    changed: Condvar,
}

impl Acks {
    /// The program got an event.
    pub(crate) fn deliver(&self) {
        *self.lock() += 1;
    }

    /// The program acknowledges so many. Takes a clone: with the last acknowledgement the object may go in another
    /// thread, before this one has told that thread.
    pub(crate) fn ack(self, count: u32) {
        *self.lock() -= i64::from(count);
        self.0.changed.notify_all();
    }

    /// Waits until all are acknowledged, for ever if need be (`man ibv_ack_cq_events`).
    pub(crate) fn wait(&self) {
        let mut open = self.lock();
        while *open > 0 {
            open = whole(self.0.changed.wait(open));
        }
    }

    fn lock(&self) -> MutexGuard<'_, i64> {
        lock(&self.0.open)
    }
}

/// Adds to the count of acknowledged events that an object of C shows (`comp_events_completed`, which UCX's tests read).
/// With the last acknowledgement the object may go: this comes before.
///
/// # Safety
/// The object lives, and the library writes the field here alone.
pub(crate) unsafe fn show_completed(field: *mut u32, count: u32) {
    // SAFETY: the caller's promise; threads may acknowledge at the same time.
    unsafe { AtomicU32::from_ptr(field) }.fetch_add(count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Shared;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn destroying_waits_for_the_last_acknowledgement() {
        let (acks, acked) = (Acks::default(), AtomicBool::new(false));
        acks.wait();
        acks.deliver();
        acks.deliver();
        acks.clone().ack(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                acked.store(true, Ordering::SeqCst);
                acks.clone().ack(1);
            });
            acks.wait();
            assert!(
                acked.load(Ordering::SeqCst),
                "one event is not acknowledged"
            );
        });
    }

    /// What `ibv_ack_cq_events` in one thread beside `ibv_destroy_cq` in another one does.
    #[test]
    fn an_object_may_go_as_soon_as_its_last_event_is_acknowledged() {
        struct Object {
            events: Acks,
        }
        let objects: Vec<*mut Object> = (0..16)
            .map(|_| {
                let events = Acks::default();
                events.deliver();
                Box::into_raw(Box::new(Object { events }))
            })
            .collect();
        let shared: Vec<_> = objects.iter().map(|&object| Shared(object)).collect();
        let acking = std::thread::spawn(move || {
            for object in shared {
                // SAFETY: its event is not acknowledged, so it is there.
                unsafe { &*object.0 }.events.clone().ack(1);
            }
        });
        for object in objects {
            // SAFETY: made above, and freed once: nothing but its event holds it.
            unsafe {
                (*object).events.wait();
                drop(Box::from_raw(object));
            }
        }
        acking.join().expect("no panic");
    }
}
