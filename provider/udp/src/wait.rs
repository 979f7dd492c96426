//! Sleeping until one of several descriptors is ready.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use libc::{c_short, pollfd};

/// Descriptors that one call can wait for.
pub const WAIT_MAX: usize = 16;

/// A descriptor, and what it shall be ready for.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    fd: BorrowedFd<'a>,
    events: c_short,
}

impl<'a> Interest<'a> {
    /// Something to read.
    pub fn readable(fd: BorrowedFd<'a>) -> Interest<'a> {
        Interest {
            fd,
            events: libc::POLLIN,
        }
    }

    /// Room to write.
    pub fn writable(fd: BorrowedFd<'a>) -> Interest<'a> {
        Interest {
            fd,
            events: libc::POLLOUT,
        }
    }

    /// Either.
    pub fn both(fd: BorrowedFd<'a>) -> Interest<'a> {
        Interest {
            fd,
            events: libc::POLLIN | libc::POLLOUT,
        }
    }
}

/// Which of the descriptors are ready, by their place in the list.
///
/// A descriptor with an error or a hang-up counts as ready: the next call on it says more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    ready: u16,
    writable: u16,
}

impl Readiness {
    /// True if descriptor number `index` is ready for anything it was waited for.
    pub fn is_ready(self, index: usize) -> bool {
        self.ready >> index & 1 != 0
    }

    /// True if descriptor number `index` was waited for to be writable and is.
    pub fn is_writable(self, index: usize) -> bool {
        self.writable >> index & 1 != 0
    }

    /// True if none is ready: the time was up.
    pub fn is_timeout(self) -> bool {
        self.ready == 0
    }
}

/// Sleeps until one of `fds` is readable, for `timeout` at most (`None`: for ever).
///
/// # Errors
/// What the system says, never [`io::ErrorKind::Interrupted`].
///
/// # Panics
/// With more than [`WAIT_MAX`] descriptors.
pub fn wait(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Readiness> {
    wait_all(fds.iter().map(|&fd| Interest::readable(fd)), timeout)
}

/// Sleeps until one of the interests is met, for `timeout` at most (`None`: for ever).
///
/// # Errors
/// What the system says, never [`io::ErrorKind::Interrupted`].
///
/// # Panics
/// With more than [`WAIT_MAX`] descriptors.
pub fn wait_for(interests: &[Interest<'_>], timeout: Option<Duration>) -> io::Result<Readiness> {
    wait_all(interests.iter().copied(), timeout)
}

fn wait_all<'a>(
    interests: impl ExactSizeIterator<Item = Interest<'a>>,
    timeout: Option<Duration>,
) -> io::Result<Readiness> {
    let count = interests.len();
    assert!(
        count <= WAIT_MAX,
        "{count} descriptors to wait for, {WAIT_MAX} at most"
    );
    let mut polled = [pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    }; WAIT_MAX];
    for (slot, interest) in polled.iter_mut().zip(interests) {
        *slot = pollfd {
            fd: interest.fd.as_raw_fd(),
            events: interest.events,
            revents: 0,
        };
    }
    let polled = &mut polled[..count];
    // A time too far away to name is no limit.
    let deadline = timeout
        .filter(|t| !t.is_zero())
        .and_then(|t| Instant::now().checked_add(t));
    let mut left = timeout;
    loop {
        match poll(polled, left) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                left = deadline
                    .map(|deadline| deadline.saturating_duration_since(Instant::now()))
                    .or(timeout);
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok(readiness(polled)),
        }
    }
}

fn readiness(polled: &[pollfd]) -> Readiness {
    let mut readiness = Readiness::default();
    for (index, slot) in polled.iter().enumerate() {
        readiness.ready |= u16::from(slot.revents != 0) << index;
        readiness.writable |= u16::from(slot.revents & libc::POLLOUT != 0) << index;
    }
    readiness
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn poll(polled: &mut [pollfd], timeout: Option<Duration>) -> io::Result<()> {
    // The kernel writes the time left into it: hence a copy of our own.
    let mut time = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let no_mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the kernel reads and writes `polled.len()` entries at `polled` and one
    // timespec at `time`, if that is not null.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            polled.as_mut_ptr(),
            polled.len(),
            time,
            no_mask,
            0,
        )
    };
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn poll(polled: &mut [pollfd], timeout: Option<Duration>) -> io::Result<()> {
    // Whole milliseconds, rounded up: waking early would make callers spin.
    let millis = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the kernel reads and writes `polled.len()` entries at `polled`.
    let ret = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, millis) };
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
