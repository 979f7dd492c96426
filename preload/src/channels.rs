//! Descriptors of completion channels and contexts of the drop-in library. A program that reads one gets the next event,
//! as from the kernel.
//!
//! The drop-in library says which they are, and by which function of its own an event is read. All other descriptors pay a
//! look at one number.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU16, Ordering};

/// How the drop-in library reads (`abi/src/read.rs`, which has the same): the length of what was read, an error number as
/// `-errno`, or [`NOT_OURS`].
type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;

/// The descriptor is none that it has events for.
const NOT_OURS: isize = isize::MIN;

/// A signal that is put down with an open file. Nothing says when a program closes a descriptor, as children of a fork do,
/// and another file that has its number then has no such signal. It is never sent: these files do not know of `O_ASYNC`.
const MARK: c_int = libc::SIGURG;
/// `fcntl.h`
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// Numbers that are so far apart have one place: the mark tells them apart.
const PLACES: usize = 1 << 14;

/// How many channels have a number of that place.
static CHANNELS: [AtomicU16; PLACES] = [const { AtomicU16::new(0) }; PLACES];
/// The first one stays: several copies of the drop-in library would not know of each other's channels.
static READ: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

#[inline]
fn place(fd: c_int) -> &'static AtomicU16 {
    &CHANNELS[fd as usize % PLACES]
}

/// For the drop-in library: from now on the descriptor is read by this function, or, without one, no longer. Returns 0, or
/// -1 if that cannot be.
#[unsafe(no_mangle)]
extern "C" fn urxe_read_by(fd: c_int, read: Option<Read>) -> c_int {
    let Some(read) = read else {
        place(fd).fetch_sub(1, Ordering::Release);
        return 0;
    };
    let (read, none) = (read as *mut c_void, ptr::null_mut());
    let (order, not) = (Ordering::AcqRel, Ordering::Acquire);
    let is_other = |first| first != read;
    if (READ.compare_exchange(none, read, order, not)).is_err_and(is_other) {
        return -1;
    }
    // SAFETY: takes numbers.
    if unsafe { libc::fcntl(fd, F_SETSIG, MARK) } != 0 {
        return -1;
    }
    place(fd).fetch_add(1, Ordering::Release);
    0
}

/// What `read` returns of a channel's descriptor; `None`: it is another, and nothing has changed.
///
/// # Safety
/// A place for so many bytes.
#[inline]
pub(crate) unsafe fn read(fd: c_int, out: *mut c_void, len: usize) -> Option<isize> {
    if place(fd).load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { read_marked(fd, out, len) }
}

/// # Safety
/// As for [`read`].
#[cold]
unsafe fn read_marked(fd: c_int, out: *mut c_void, len: usize) -> Option<isize> {
    // SAFETY: the address of the calling thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: takes numbers.
    let read = if unsafe { libc::fcntl(fd, F_GETSIG) } == MARK {
        // SAFETY: there is a channel, so there is the drop-in library's function; and the caller's promise.
        unsafe {
            let function = READ.load(Ordering::Acquire);
            core::mem::transmute::<*mut c_void, Read>(function)(fd, out, len)
        }
    } else {
        NOT_OURS
    };
    let (result, after) = match read {
        NOT_OURS => (None, before),
        0.. => (Some(read), before),
        _ => (Some(-1), -read as c_int),
    };
    // SAFETY: as above.
    unsafe { *errno = after };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn answer(_: c_int, _: *mut c_void, len: usize) -> isize {
        match len {
            0 => -libc::EINVAL as isize,
            1 => NOT_OURS,
            _ => 8,
        }
    }

    unsafe extern "C" fn other(_: c_int, _: *mut c_void, _: usize) -> isize {
        8
    }

    fn errno() -> &'static mut c_int {
        // SAFETY: the address of the calling thread's `errno`, which this test alone uses.
        unsafe { &mut *libc::__errno_location() }
    }

    fn read_it(fd: c_int, len: usize) -> Option<isize> {
        // SAFETY: the functions above write nothing.
        unsafe { read(fd, ptr::null_mut(), len) }
    }

    #[test]
    fn a_channel_is_read_until_its_number_is_that_of_another_file() {
        // SAFETY: takes numbers.
        let (channel, file) = unsafe { (libc::eventfd(0, 0), libc::eventfd(0, 0)) };
        assert_eq!(read_it(channel, 8), None);
        assert_eq!(urxe_read_by(channel, Some(answer)), 0);
        assert_eq!(urxe_read_by(channel, Some(other)), -1);
        *errno() = 77;
        assert_eq!((read_it(channel, 8), *errno()), (Some(8), 77));
        assert_eq!((read_it(channel, 1), *errno()), (None, 77));
        assert_eq!((read_it(channel, 0), *errno()), (Some(-1), libc::EINVAL));
        *errno() = 77;
        // What has the same place has no mark, if it is open at all.
        assert_eq!(read_it(file, 8), None);
        assert_eq!(read_it(channel + PLACES as c_int, 8), None);
        assert_eq!(read_it(-1, 8), None);
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::dup2(file, channel) }, channel);
        assert_eq!((read_it(channel, 8), *errno()), (None, 77));
        assert_eq!(urxe_read_by(channel, None), 0);
        assert_eq!(place(channel).load(Ordering::Relaxed), 0);
        assert_eq!(urxe_read_by(-1, Some(answer)), -1);
        for fd in [channel, file] {
            // SAFETY: opened above.
            unsafe { libc::close(fd) };
        }
    }
}
