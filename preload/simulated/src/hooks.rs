//! How a function of the C library is passed on to the real one.

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

/// The next function of that name behind ours.
pub(crate) fn next(known: &AtomicPtr<c_void>, name: *const c_char) -> *mut c_void {
    let mut function = known.load(Ordering::Relaxed);
    if function.is_null() {
        // SAFETY: a string.
        function = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        known.store(function, Ordering::Relaxed);
    }
    function
}

/// The function of that name behind ours, called; its failure where there is none.
macro_rules! pass_on {
    ($name:ident($($arg:ident: $A:ty),*) -> $R:ty) => {{
        type Function = unsafe extern "C" fn($($A),*) -> $R;
        static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        let name: *const core::ffi::c_char = concat!(stringify!($name), "\0").as_ptr().cast();
        let function = next(&NEXT, name);
        if function.is_null() {
            // SAFETY: the address of the calling thread's `errno`.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            return <$R as $crate::hooks::Failure>::FAILURE;
        }
        // SAFETY: the C library's function of that name has these parameters; the arguments are the caller's.
        unsafe { core::mem::transmute::<*mut c_void, Function>(function)($($arg),*) }
    }};
}
pub(crate) use pass_on;
