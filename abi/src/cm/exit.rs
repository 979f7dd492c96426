//! Ends the connections of a program that exits without closing them, as a kernel does for adapters: the peers hear
//! of it. Without that a peer that only receives would wait for ever.

use core::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::thread;
use std::time::Duration;

use super::{devices, id};
use crate::lock::lock;
use crate::rsocket;

/// What a stream has not sent after that is lost, as it is with an adapter.
const LIMIT: Duration = Duration::from_secs(2);

/// How long peers are asked to acknowledge the end of their connections. One that is gone as well costs this time.
const DISCONNECT_LIMIT: Duration = Duration::from_millis(300);

/// The process that opened something.
static OPENER: AtomicI32 = AtomicI32::new(0);

/// Registers a handler that ends all connections when the process exits.
pub(crate) fn end_connections_at_exit() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        OPENER.store(process(), Ordering::Relaxed);
        // SAFETY: the function is of a library that is never unloaded. Without memory for it peers find out by themselves.
        unsafe { libc::atexit(end_connections) };
    });
}

fn process() -> i32 {
    std::process::id().cast_signed()
}

/// By a thread of its own: the program may have called `exit` where it, or another of its threads, had a lock.
extern "C" fn end_connections() {
    // A child of a fork has copies of its parent's.
    if OPENER.load(Ordering::Relaxed) != process() {
        return;
    }
    let finished = Arc::new((Mutex::new(false), Condvar::new()));
    let finishes = finished.clone();
    let started = thread::Builder::new().spawn(move || {
        rsocket::close_all();
        id::disconnect_all();
        // With those that the program has just ended itself. A peer that does not answer is left alone: the process ends.
        urxe::cm::finish_disconnects(&devices::opened(), DISCONNECT_LIMIT);
        *lock(&finishes.0) = true;
        finishes.1.notify_one();
    });
    if started.is_err() {
        return;
    }
    let done = lock(&finished.0);
    // Whatever came of it, the process ends now.
    drop(finished.1.wait_timeout_while(done, LIMIT, |done| !*done));
}
