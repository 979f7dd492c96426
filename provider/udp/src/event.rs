//! A wake-up that can be waited on together with sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A counter of notifications behind a file descriptor, readable while it is not zero.
///
/// Any number of [`notify`](EventFd::notify) calls before a [`drain`](EventFd::drain)
/// are one wake-up.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
    /// The writing end, where the system has no eventfd and a socket pair stands in.
    #[cfg(not(target_os = "linux"))]
    notifier: std::os::unix::net::UnixStream,
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

#[cfg(target_os = "linux")]
impl EventFd {
    /// A counter at zero, non-blocking and close-on-exec.
    ///
    /// # Errors
    /// When the process or the system has no file descriptor left.
    pub fn new() -> io::Result<EventFd> {
        use rustix::event::{EventfdFlags, eventfd};
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(EventFd { fd })
    }

    /// Makes the descriptor readable.
    pub fn notify(&self) {
        // Fails only when the counter is at its limit: then it is readable already.
        let _ = rustix::io::write(self, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable; true if it was notified since the last time.
    pub fn drain(&self) -> bool {
        // Else EAGAIN: the counter is zero.
        rustix::io::read(self, &mut [0; 8]) == Ok(8)
    }

    /// [`drain`](EventFd::drain) of one that the program has, too: it may have read the counter, and made the descriptor
    /// one that waits. That takes a fifth longer.
    pub fn drain_shared(&self) -> bool {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let mut count = [0; 8];
        let mut places = [io::IoSliceMut::new(&mut count)];
        // Not from a place in the file.
        match preadv2(self, &mut places, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(len) => len == 8,
            Err(Errno::AGAIN) => false,
            // Before Linux 5.8, or not allowed.
            Err(_) => self.drain(),
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl EventFd {
    /// A counter at zero, non-blocking.
    ///
    /// # Errors
    /// When the process or the system has no file descriptor left.
    pub fn new() -> io::Result<EventFd> {
        let (notifier, waiter) = std::os::unix::net::UnixStream::pair()?;
        notifier.set_nonblocking(true)?;
        waiter.set_nonblocking(true)?;
        Ok(EventFd {
            fd: waiter.into(),
            notifier,
        })
    }

    /// Makes the descriptor readable.
    pub fn notify(&self) {
        use io::Write;
        // Fails only when the pipe is full: then it is readable already.
        let _ = (&self.notifier).write(&[1]);
    }

    /// Makes the descriptor unreadable; true if it was notified since the last time.
    pub fn drain(&self) -> bool {
        let mut notified = false;
        while rustix::io::read(self, &mut [0; 64]).is_ok_and(|count| count > 0) {
            notified = true;
        }
        notified
    }

    /// The same.
    pub fn drain_shared(&self) -> bool {
        self.drain()
    }
}

#[cfg(all(test, target_os = "linux"))]
#[test]
fn what_the_program_has_read_is_not_waited_for() {
    let event = EventFd::new().expect("a descriptor");
    rustix::fs::fcntl_setfl(&event, rustix::fs::OFlags::empty()).expect("it is open");
    event.notify();
    assert!(event.drain_shared());
    event.notify();
    assert_eq!(rustix::io::read(&event, &mut [0; 8]), Ok(8));
    assert!(!event.drain_shared());
}
