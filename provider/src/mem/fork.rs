//! Finding out that this process is the child of a fork.
//!
//! A child has the parent's objects but not its threads, and its locks may be held by
//! threads that do not exist. Worse, its sockets are the parent's: what it sent would
//! look like the parent's packets. So everything that was opened before a fork is dead
//! in the child. Asking for the process id at every call would cost a system call;
//! a handler that the fork itself runs costs one load.
//!
//! A child made by the bare system call (not by libc's `fork`) is not noticed.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Once;

/// Forks between the start of the first process and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);
static INSTALL: Once = Once::new();

/// The process that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u32);

impl Generation {
    /// This process. Forks are noticed from now on.
    pub(crate) fn current() -> Generation {
        INSTALL.call_once(|| {
            // SAFETY: the handler is a function of this library, which is never unloaded
            // while its code runs, and does nothing but add to an atomic, which is
            // allowed between fork and exec. A failure (no memory) leaves forks unnoticed.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Generation(GENERATION.load(Ordering::Relaxed))
    }

    /// True if a fork happened since: this is a child of the process it was made in.
    #[inline]
    pub(crate) fn is_past(self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
