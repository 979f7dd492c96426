//! What a simulated program cannot do: its simulation has one thread of one process on each host. A call that would make more fails, and the user is told.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use libc::pid_t;

use crate::hooks::pass_on;
use crate::next::next;
use crate::{Call, call, fail, is_on};

/// The user is told; the error, which `errno` has.
pub(crate) fn refuse(what: &str, error: c_int) -> c_int {
    call(Call::Refused, [0; 3], what.as_bytes(), &mut []);
    fail(error);
    error
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: *mut c_void,
    argument: *mut c_void,
) -> c_int {
    if is_on() {
        return refuse("starts a thread", libc::EAGAIN);
    }
    pass_on!(pthread_create(
        thread: *mut c_void, attributes: *const c_void, start: *mut c_void, argument: *mut c_void
    ) -> c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fork() -> pid_t {
    if is_on() {
        refuse("forks", libc::ENOSYS);
        return -1;
    }
    pass_on!(fork() -> pid_t)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    if is_on() {
        refuse("runs a command (system)", libc::ENOSYS);
        return -1;
    }
    pass_on!(system(command: *const c_char) -> c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    if is_on() {
        refuse("runs a command (popen)", libc::ENOSYS);
        return ptr::null_mut();
    }
    pass_on!(popen(command: *const c_char, mode: *const c_char) -> *mut c_void)
}

/// `spawn!(posix_spawn)`: functions that start another program.
macro_rules! spawn {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            pid: *mut pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: *const c_void,
            environment: *const c_void,
        ) -> c_int {
            if is_on() {
                return refuse("starts another program", libc::ENOSYS);
            }
            pass_on!($name(
                pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
                arguments: *const c_void, environment: *const c_void
            ) -> c_int)
        }
    };
}

spawn!(posix_spawn);
spawn!(posix_spawnp);

/// `exec!(execv(arguments))`: functions by which a process becomes another program.
macro_rules! exec {
    ($name:ident($($arg:ident),*)) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char $(, $arg: *const c_void)*) -> c_int {
            if is_on() {
                refuse("becomes another program (exec)", libc::ENOSYS);
                return -1;
            }
            pass_on!($name(path: *const c_char, $($arg: *const c_void),*) -> c_int)
        }
    };
}

exec!(execv(arguments));
exec!(execvp(arguments));
exec!(execve(arguments, environment));
exec!(execvpe(arguments, environment));
