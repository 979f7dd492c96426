//! A queue of events that threads can sleep on, with or without a descriptor of their
//! own choice. Serves completion channels and asynchronous events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard};

use urxe_udp::EventFd;

use crate::lock::lock;

/// Places that the queue starts with; more are allocated if events are left lying.
const CAPACITY: usize = 64;
/// An empty queue with more than that gives them up.
const CAPACITY_KEPT: usize = 1024;

#[derive(Debug)]
pub(crate) struct Channel<T> {
    inner: Mutex<Inner<T>>,
    wake: EventFd,
}

#[derive(Debug)]
struct Inner<T> {
    events: VecDeque<T>,
    /// Threads that sleep on `wake`, or are about to.
    sleepers: u32,
    /// The program has the descriptor: it must be readable while there are events.
    exposed: bool,
    /// `wake` was notified and not drained.
    notified: bool,
}

/// What a thread that wants to sleep found.
pub(crate) enum Sleep<'a, T> {
    /// An event: do not sleep.
    Event(T),
    /// Nothing. The descriptor will become readable while the permission is held.
    Permitted(Permit<'a, T>),
}

/// While it lives, every event makes the channel's descriptor readable.
pub(crate) struct Permit<'a, T> {
    channel: &'a Channel<T>,
}

impl<T> Channel<T> {
    pub(crate) fn new() -> io::Result<Channel<T>> {
        let inner = Inner {
            events: VecDeque::with_capacity(CAPACITY),
            sleepers: 0,
            exposed: false,
            notified: false,
        };
        Ok(Channel {
            inner: Mutex::new(inner),
            wake: EventFd::new()?,
        })
    }

    /// Adds an event; wakes a sleeping thread. Without one it costs no system call:
    /// the thread that drives the engine is the one that waits, and looks itself.
    pub(crate) fn push(&self, event: T) {
        let mut inner = self.lock();
        inner.events.push_back(event);
        if (inner.sleepers > 0 || inner.exposed) && !inner.notified {
            inner.notified = true;
            self.wake.notify();
        }
    }

    /// Takes the oldest event.
    pub(crate) fn try_take(&self) -> Option<T> {
        self.take(&mut self.lock())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().events.is_empty()
    }

    /// Takes the oldest event, or permits to sleep.
    pub(crate) fn take_or_sleep(&self) -> Sleep<'_, T> {
        let mut inner = self.lock();
        if let Some(event) = self.take(&mut inner) {
            return Sleep::Event(event);
        }
        inner.sleepers += 1;
        Sleep::Permitted(Permit { channel: self })
    }

    /// The descriptor, for the program's own poll loop.
    pub(crate) fn expose(&self) -> BorrowedFd<'_> {
        let mut inner = self.lock();
        inner.exposed = true;
        if !inner.events.is_empty() && !inner.notified {
            inner.notified = true;
            self.wake.notify();
        }
        self.wake.as_fd()
    }

    /// Takes out those events that are chosen, oldest first.
    pub(crate) fn take_all(&self, mut chosen: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut inner = self.lock();
        let all = std::mem::take(&mut inner.events).into_iter();
        let (taken, kept): (Vec<T>, Vec<T>) = all.partition(|event| chosen(event));
        inner.events = kept.into();
        self.settle(&mut inner);
        taken
    }

    fn take(&self, inner: &mut Inner<T>) -> Option<T> {
        let event = inner.events.pop_front();
        self.settle(inner);
        event
    }

    /// Left readable while there is more, for other threads and exposed descriptors.
    fn settle(&self, inner: &mut Inner<T>) {
        if !inner.events.is_empty() {
            return;
        }
        if inner.notified {
            inner.notified = false;
            if inner.exposed {
                self.wake.drain_shared();
            } else {
                self.wake.drain();
            }
        }
        if inner.events.capacity() > CAPACITY_KEPT {
            inner.events.shrink_to(CAPACITY);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        lock(&self.inner)
    }
}

impl<T> Permit<'_, T> {
    /// What to sleep on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.wake.as_fd()
    }
}

impl<T> Drop for Permit<'_, T> {
    fn drop(&mut self) {
        self.channel.lock().sleepers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        urxe_udp::wait(&[fd], Some(Duration::ZERO))
            .expect("poll works")
            .is_ready(0)
    }

    #[test]
    fn notifies_only_those_who_need_it() {
        let channel = Channel::new().expect("a descriptor");
        channel.push(1);
        let Sleep::Event(1) = channel.take_or_sleep() else {
            panic!("there was an event")
        };
        let Sleep::Permitted(permit) = channel.take_or_sleep() else {
            panic!("empty")
        };
        assert!(
            !is_readable(permit.fd()),
            "nothing was notified without a sleeper"
        );
        channel.push(2);
        channel.push(3);
        assert!(is_readable(permit.fd()));
        drop(permit);
        assert_eq!((channel.try_take(), channel.try_take()), (Some(2), Some(3)));
        assert_eq!(channel.try_take(), None);
    }

    #[test]
    fn a_queue_that_was_long_is_short_again() {
        let channel = Channel::new().expect("a descriptor");
        for n in 0..5000 {
            channel.push(n);
        }
        assert!((0..5000).all(|n| channel.try_take() == Some(n)));
        assert!(channel.lock().events.capacity() < CAPACITY_KEPT);
    }

    #[test]
    fn an_exposed_descriptor_is_readable_while_there_are_events() {
        let channel = Channel::new().expect("a descriptor");
        channel.push(1);
        let fd = channel.expose();
        assert!(is_readable(fd));
        channel.push(2);
        assert_eq!(channel.try_take(), Some(1));
        assert!(is_readable(fd));
        assert_eq!(channel.try_take(), Some(2));
        assert!(!is_readable(fd));
    }
}
