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
        use std::os::fd::FromRawFd;
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::syscall(libc::SYS_eventfd2, 0, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(EventFd { fd })
    }

    /// Makes the descriptor readable.
    pub fn notify(&self) {
        let one = 1u64.to_ne_bytes();
        // Fails only when the counter is at its limit: then it is readable already.
        // SAFETY: the kernel reads 8 bytes at `one`.
        unsafe { libc::syscall(libc::SYS_write, self.as_raw_fd(), one.as_ptr(), one.len()) };
    }

    /// Makes the descriptor unreadable; true if it was notified since the last time.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: the kernel writes at most 8 bytes to `count`.
        let ret = unsafe {
            libc::syscall(
                libc::SYS_read,
                self.as_raw_fd(),
                count.as_mut_ptr(),
                count.len(),
            )
        };
        // Else EAGAIN: the counter is zero.
        ret == 8
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
        let mut bytes = [0u8; 64];
        let mut notified = false;
        loop {
            // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`.
            let ret =
                unsafe { libc::read(self.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
            if ret <= 0 {
                return notified;
            }
            notified = true;
        }
    }
}
