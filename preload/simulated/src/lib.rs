//! A library for `LD_PRELOAD`, for programs in a simulation (`urxe sim exec`): their clock, their sleep, their streams and their number are the simulation's.
//!
//! The drop-in library has the channel to the simulation, and a function by which things are asked for there: a number for what it
//! is, three more numbers, bytes that go and bytes that come. `cli/src/sim/exec` answers. Outside of a simulation each call of the C library pays a look at one flag.
//!
//! - `hooks`: how the C library's own functions are reached;
//! - `clock`: time; `tsc`: the same by a counter of the processor; `sockets`: which descriptors are streams of the simulation; `streams`: what is done with them, for the functions in `stream_hooks`;
//! - `wait`: `poll` and `select`; `epoll`; `refused`: what a simulated program cannot do.

mod clock;
mod epoll;
mod hooks;
#[path = "../../src/next.rs"]
mod next;
mod refused;
mod sockets;
mod stream_hooks;
mod streams;
#[cfg(target_arch = "x86_64")]
mod tsc;
mod wait;

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What can be asked for. The first two are `urxe::network::remote`'s; `cli/src/sim/exec/calls.rs` has the same list.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Call {
    /// What time it is, in nanoseconds.
    Clock = 0,
    /// Sleeps so many nanoseconds.
    Sleep = 1,
    /// A number for the process.
    Pid = 16,
    /// A new stream.
    Socket = 17,
    /// Stream, port: the port that it has.
    Bind = 18,
    /// Stream, how many may wait.
    Listen = 19,
    /// Stream, whether it waits: a new stream.
    Accept = 20,
    /// Stream, IPv4 address, port.
    Connect = 21,
    /// Stream, flags; bytes: how many of them were taken.
    Send = 22,
    /// Stream, how many, flags: how many came.
    Receive = 23,
    /// Stream, what (`SHUT_RD` and so on).
    Shutdown = 24,
    /// Stream.
    Close = 25,
    /// Nanoseconds at most; streams and events, 16 bytes each: how many have events; their events, 8 bytes each.
    Wait = 26,
    /// Stream, 0 for its own and 1 for its peer's: IPv4 address (the upper 32 bits of 48) and port.
    Name = 27,
    /// A word to the user, once.
    Refused = 28,
}

/// `Send` and `Receive` do not wait.
pub(crate) const NO_WAIT: u64 = 1;
/// `Receive` leaves what it gives.
pub(crate) const PEEK: u64 = 2;

type Function =
    unsafe extern "C" fn(u32, *const u64, *const c_void, usize, *mut c_void, usize) -> i64;

/// Asks the drop-in library for the channel, which is this process's standard input.
const JOIN: u32 = u32::MAX;
const FUNCTION: &CStr = c"urxe_simulated_call";
const VARIABLE: &CStr = c"URXE_SIMULATED";

static IS_ON: AtomicBool = AtomicBool::new(false);
static CALL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The process is a program of a simulation.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Asks the simulation; what comes back is 0 or more, or an error number as `-errno`.
pub(crate) fn call(call: Call, args: [u64; 3], bytes: &[u8], out: &mut [u8]) -> i64 {
    ask(call as u32, args, bytes, out)
}

fn ask(number: u32, args: [u64; 3], bytes: &[u8], out: &mut [u8]) -> i64 {
    let function = CALL.load(Ordering::Relaxed);
    if function.is_null() {
        return -i64::from(libc::ENOSYS);
    }
    // SAFETY: the drop-in library's function of that name has these parameters.
    let function = unsafe { core::mem::transmute::<*mut c_void, Function>(function) };
    let (from, to) = (bytes.as_ptr().cast(), out.as_mut_ptr().cast());
    // SAFETY: three numbers, and slices with their lengths.
    unsafe { function(number, args.as_ptr(), from, bytes.len(), to, out.len()) }
}

/// As functions of the C library answer: -1, with the error in `errno`.
pub(crate) fn answer(result: i64) -> isize {
    if result >= 0 {
        return result as isize;
    }
    fail(-result as c_int)
}

/// -1, with this error in `errno`.
pub(crate) fn fail(error: c_int) -> isize {
    // SAFETY: the address of the calling thread's `errno`.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// The loader calls it before the program begins.
extern "C" fn begin() {
    // SAFETY: a string.
    if unsafe { libc::getenv(VARIABLE.as_ptr()) }.is_null() {
        return;
    }
    // Programs that this one starts are not in the simulation.
    // SAFETY: a number; strings; no other thread is there yet.
    let function = unsafe {
        // A program that makes no call would not see that the simulation is gone.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::unsetenv(VARIABLE.as_ptr());
        libc::dlsym(libc::RTLD_DEFAULT, FUNCTION.as_ptr())
    };
    CALL.store(function, Ordering::Relaxed);
    if ask(JOIN, [0; 3], &[], &mut []) < 0 {
        let text =
            b"urxe: this program cannot join the simulation: its standard input leads to none\n";
        // SAFETY: bytes; and a number.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(127);
        }
    }
    IS_ON.store(true, Ordering::Relaxed);
    #[cfg(target_arch = "x86_64")]
    tsc::trap();
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[cfg(test)]
#[test]
fn a_process_outside_of_simulations_is_left_alone() {
    begin();
    assert!(!is_on());
    assert_eq!(
        call(Call::Pid, [0; 3], &[], &mut []),
        -i64::from(libc::ENOSYS)
    );
}
