//! Error numbers, the ways in which C functions return them.

use core::ffi::c_int;
use core::ptr;

use crate::verbose::tell_error;

/// A number of `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const NO_ENTRY: Errno = Errno(libc::ENOENT);
    pub(crate) const BUSY: Errno = Errno(libc::EBUSY);
    pub(crate) const NO_DATA: Errno = Errno(libc::ENODATA);
    pub(crate) const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);

    /// The error of the last system call.
    pub(crate) fn last() -> Errno {
        std::io::Error::last_os_error().into()
    }

    /// Leaves it in `errno`.
    pub(crate) fn set(self) {
        // SAFETY: the C library returns the address of the calling thread's `errno`.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

impl From<urxe::Error> for Errno {
    fn from(error: urxe::Error) -> Errno {
        tell_error(&error);
        Errno(error.errno())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno(error.raw_os_error())
    }
}

/// As most verbs do: 0, or a positive number. `errno` has it too, as programs look there by mistake.
pub(crate) fn number(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            errno.0
        }
    }
}

/// 0, or -1 and `errno`.
pub(crate) fn minus_one(result: Result<(), Errno>) -> c_int {
    or_minus_one(result.map(|()| 0))
}

/// Puts what was found into the program's place for it.
///
/// # Safety
/// It is a place for such a value.
pub(crate) unsafe fn store<T>(place: *mut T, found: Result<T, Errno>) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    found.map(|found| unsafe { place.write(found) })
}

/// A number, or -1 and `errno`.
pub(crate) fn or_minus_one<N: From<i8>>(result: Result<N, Errno>) -> N {
    result.unwrap_or_else(|errno| {
        errno.set();
        N::from(-1)
    })
}

/// A new object, or null and `errno`.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        errno.set();
        ptr::null_mut()
    })
}
