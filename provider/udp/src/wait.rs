//! Sleeping until one of several descriptors is ready.

use std::array;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::CWD;
use rustix::io::Errno;

/// Descriptors that one call can wait for.
pub const WAIT_MAX: usize = 16;

/// A descriptor, and what it shall be ready for.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    fd: BorrowedFd<'a>,
    events: PollFlags,
}

impl<'a> Interest<'a> {
    /// Something to read.
    pub fn readable(fd: BorrowedFd<'a>) -> Interest<'a> {
        let events = PollFlags::IN;
        Interest { fd, events }
    }

    /// Room to write.
    pub fn writable(fd: BorrowedFd<'a>) -> Interest<'a> {
        let events = PollFlags::OUT;
        Interest { fd, events }
    }

    /// Either.
    pub fn both(fd: BorrowedFd<'a>) -> Interest<'a> {
        let events = PollFlags::IN | PollFlags::OUT;
        Interest { fd, events }
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
    // The places behind the last one are not looked at.
    let mut polled: [_; WAIT_MAX] =
        array::from_fn(|_| PollFd::from_borrowed_fd(CWD, PollFlags::empty()));
    for (slot, interest) in polled.iter_mut().zip(interests) {
        *slot = PollFd::from_borrowed_fd(interest.fd, interest.events);
    }
    let polled = &mut polled[..count];
    // A time too far away to name is no limit.
    let deadline = timeout
        .filter(|t| !t.is_zero())
        .and_then(|t| Instant::now().checked_add(t));
    let mut left = timeout;
    loop {
        let time = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(polled, time.as_ref()) {
            Err(Errno::INTR) => {
                left = deadline
                    .map(|deadline| deadline.saturating_duration_since(Instant::now()))
                    .or(timeout);
            }
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(readiness(polled)),
        }
    }
}

fn readiness(polled: &[PollFd<'_>]) -> Readiness {
    let mut readiness = Readiness::default();
    for (index, slot) in polled.iter().enumerate() {
        let found = slot.revents();
        readiness.ready |= u16::from(!found.is_empty()) << index;
        readiness.writable |= u16::from(found.contains(PollFlags::OUT)) << index;
    }
    readiness
}
