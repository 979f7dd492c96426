//! How a function of the C library is reached behind ours. `preload/simulated` has this file, too.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What a function returns that cannot do its work.
pub(crate) trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: c_int = -1;
}

/// Of `sleep`: nothing is left.
impl Failure for c_uint {
    const FAILURE: c_uint = 0;
}

impl Failure for isize {
    const FAILURE: isize = -1;
}

impl Failure for i64 {
    const FAILURE: i64 = -1;
}

impl<T> Failure for *mut T {
    const FAILURE: *mut T = ptr::null_mut();
}

/// The next function of that name behind ours: the C library's, or that of another library that stands before it.
pub(crate) fn next(known: &AtomicPtr<c_void>, name: *const c_char) -> *mut c_void {
    let mut function = known.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: a string.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        known.store(function, Ordering::Relaxed);
    }
    function
}
