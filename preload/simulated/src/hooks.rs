//! How a function of the C library is passed on to the real one.

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
            return <$R as $crate::next::Failure>::FAILURE;
        }
        // SAFETY: the C library's function of that name has these parameters; the arguments are the caller's.
        unsafe { core::mem::transmute::<*mut c_void, Function>(function)($($arg),*) }
    }};
}
pub(crate) use pass_on;
