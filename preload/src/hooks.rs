//! Functions of the C library that take a path, in front of the real ones.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use crate::foreign;
use crate::next::{Failure, next};
use crate::redirect::Path;

/// `hook!(name(before...; path; after...) -> result)`: the function with its path redirected.
///
/// `open` and its like have a variable argument, the mode: it is passed on whether the caller gave one or not, as
/// it is in the same register either way, and the called function reads it only if its flags ask for one.
macro_rules! hook {
    ($name:ident($($before:ident: $B:ty),*; path; $($after:ident: $A:ty),*) -> $R:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $B,)* path: *const c_char, $($after: $A),*) -> $R {
            type Function = unsafe extern "C" fn($($B,)* *const c_char, $($A),*) -> $R;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let function = next(&NEXT, concat!(stringify!($name), "\0").as_ptr().cast());
            if function.is_null() {
                // SAFETY: the address of the calling thread's `errno`.
                unsafe { *libc::__errno_location() = libc::ENOSYS };
                return <$R as Failure>::FAILURE;
            }
            // SAFETY: a string or null, by the rules of the function.
            let redirected = unsafe {
                foreign::notice(path);
                Path::redirected(path)
            };
            let path = redirected.as_ref().map_or(path, Path::as_ptr);
            // SAFETY: the C library's function of that name has these parameters.
            let function = unsafe { core::mem::transmute::<*mut c_void, Function>(function) };
            // SAFETY: the caller's arguments, and a path that is valid until the call returns.
            unsafe { function($($before,)* path, $($after),*) }
        }
    };
}

hook!(open(; path; flags: c_int, mode: c_uint) -> c_int);
hook!(open64(; path; flags: c_int, mode: c_uint) -> c_int);
hook!(__open_2(; path; flags: c_int) -> c_int);
hook!(__open64_2(; path; flags: c_int) -> c_int);
hook!(openat(folder: c_int; path; flags: c_int, mode: c_uint) -> c_int);
hook!(openat64(folder: c_int; path; flags: c_int, mode: c_uint) -> c_int);
hook!(__openat_2(folder: c_int; path; flags: c_int) -> c_int);
hook!(__openat64_2(folder: c_int; path; flags: c_int) -> c_int);
hook!(fopen(; path; mode: *const c_char) -> *mut c_void);
hook!(fopen64(; path; mode: *const c_char) -> *mut c_void);

hook!(stat(; path; out: *mut c_void) -> c_int);
hook!(stat64(; path; out: *mut c_void) -> c_int);
hook!(lstat(; path; out: *mut c_void) -> c_int);
hook!(lstat64(; path; out: *mut c_void) -> c_int);
hook!(fstatat(folder: c_int; path; out: *mut c_void, flags: c_int) -> c_int);
hook!(fstatat64(folder: c_int; path; out: *mut c_void, flags: c_int) -> c_int);
// What programs call that were built before glibc 2.33.
hook!(__xstat(version: c_int; path; out: *mut c_void) -> c_int);
hook!(__xstat64(version: c_int; path; out: *mut c_void) -> c_int);
hook!(__lxstat(version: c_int; path; out: *mut c_void) -> c_int);
hook!(__lxstat64(version: c_int; path; out: *mut c_void) -> c_int);
hook!(__fxstatat(version: c_int, folder: c_int; path; out: *mut c_void, flags: c_int) -> c_int);
hook!(__fxstatat64(version: c_int, folder: c_int; path; out: *mut c_void, flags: c_int) -> c_int);
hook!(statx(folder: c_int; path; flags: c_int, mask: c_uint, out: *mut c_void) -> c_int);

hook!(access(; path; mode: c_int) -> c_int);
hook!(eaccess(; path; mode: c_int) -> c_int);
hook!(euidaccess(; path; mode: c_int) -> c_int);
hook!(faccessat(folder: c_int; path; mode: c_int, flags: c_int) -> c_int);

hook!(opendir(; path; ) -> *mut c_void);
hook!(scandir(; path; list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int);
hook!(scandir64(; path; list: *mut c_void, filter: *mut c_void, compare: *mut c_void) -> c_int);
hook!(glob(; path; flags: c_int, on_error: *mut c_void, out: *mut c_void) -> c_int);
hook!(glob64(; path; flags: c_int, on_error: *mut c_void, out: *mut c_void) -> c_int);

hook!(readlink(; path; out: *mut c_char, len: usize) -> isize);
hook!(readlinkat(folder: c_int; path; out: *mut c_char, len: usize) -> isize);
hook!(__readlink_chk(; path; out: *mut c_char, len: usize, room: usize) -> isize);
hook!(realpath(; path; out: *mut c_char) -> *mut c_char);
hook!(__realpath_chk(; path; out: *mut c_char, room: usize) -> *mut c_char);
hook!(canonicalize_file_name(; path; ) -> *mut c_char);
