//! Whether a descriptor that the program has waits.

use std::os::fd::RawFd;

use crate::errno::Errno;

/// A program expects a blocking descriptor, and makes it a non-blocking one if it likes; then the functions that
/// wait do not wait either. The engine reads it only when there is something to read.
pub(crate) fn make_blocking(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: takes numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) } < 0 {
        return Err(Errno::last());
    }
    Ok(())
}

/// True if the program made the descriptor a non-blocking one.
pub(crate) fn is_non_blocking(fd: RawFd) -> bool {
    // SAFETY: takes numbers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}
