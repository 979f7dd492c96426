//! Time, and the number of the process.

use core::ffi::{c_int, c_long, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::{clockid_t, pid_t, time_t, timespec, timeval};

use crate::hooks::pass_on;
use crate::next::next;
use crate::{Call, call, is_on};

const NS: u64 = 1_000_000_000;
/// What time it is in the world when a simulation begins: 2001-09-09 01:46:40 UTC.
const EPOCH_S: u64 = 1_000_000_000;

/// Nanoseconds since the simulation began.
pub(crate) fn now_ns() -> u64 {
    call(Call::Clock, [0; 3], &[], &mut []).max(0) as u64
}

pub(crate) fn sleep_ns(ns: u64) {
    call(Call::Sleep, [ns, 0, 0], &[], &mut []);
}

fn timespec_of(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / NS) as time_t,
        tv_nsec: (ns % NS) as c_long,
    }
}

/// The time of a clock: that of the world, or one that begins with the simulation.
fn read(clock: clockid_t) -> u64 {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => {
            EPOCH_S * NS + now_ns()
        }
        // No program sees the simulation's first moment: 0 is often "none".
        _ => NS + now_ns(),
    }
}

/// What a program gives for a time to sleep.
///
/// # Safety
/// A place to read, or null.
unsafe fn ns_of(time: *const timespec) -> Option<u64> {
    // SAFETY: the caller's promise.
    let time = unsafe { time.as_ref() }?;
    let ns = u64::try_from(time.tv_nsec).ok().filter(|ns| *ns < NS)?;
    let s = u64::try_from(time.tv_sec).ok()?;
    Some(s.saturating_mul(NS).saturating_add(ns))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, out: *mut timespec) -> c_int {
    if !is_on() || out.is_null() {
        return pass_on!(clock_gettime(clock: clockid_t, out: *mut timespec) -> c_int);
    }
    // SAFETY: a place for a time, by the rules of the function.
    unsafe { out.write(timespec_of(read(clock))) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(out: *mut timeval, zone: *mut c_void) -> c_int {
    if !is_on() || out.is_null() {
        return pass_on!(gettimeofday(out: *mut timeval, zone: *mut c_void) -> c_int);
    }
    let now = timespec_of(read(libc::CLOCK_REALTIME));
    let now = timeval {
        tv_sec: now.tv_sec,
        tv_usec: now.tv_nsec / 1000,
    };
    // SAFETY: a place for a time, by the rules of the function.
    unsafe { out.write(now) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn time(out: *mut time_t) -> time_t {
    if !is_on() {
        return pass_on!(time(out: *mut time_t) -> time_t);
    }
    let now = timespec_of(read(libc::CLOCK_REALTIME)).tv_sec;
    if !out.is_null() {
        // SAFETY: a place for a time, by the rules of the function.
        unsafe { out.write(now) };
    }
    now
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    if !is_on() {
        return pass_on!(nanosleep(time: *const timespec, left: *mut timespec) -> c_int);
    }
    // SAFETY: by the rules of the function.
    let Some(ns) = (unsafe { ns_of(time) }) else {
        return crate::fail(libc::EINVAL) as c_int;
    };
    sleep_ns(ns);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    if !is_on() {
        return pass_on!(clock_nanosleep(
            clock: clockid_t, flags: c_int, time: *const timespec, left: *mut timespec
        ) -> c_int);
    }
    // SAFETY: by the rules of the function.
    let Some(ns) = (unsafe { ns_of(time) }) else {
        return libc::EINVAL;
    };
    let is_absolute = flags & libc::TIMER_ABSTIME != 0;
    let before = if is_absolute { read(clock) } else { 0 };
    sleep_ns(ns.saturating_sub(before));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn usleep(us: c_uint) -> c_int {
    if !is_on() {
        return pass_on!(usleep(us: c_uint) -> c_int);
    }
    sleep_ns(u64::from(us) * 1000);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sleep(s: c_uint) -> c_uint {
    if !is_on() {
        return pass_on!(sleep(s: c_uint) -> c_uint);
    }
    sleep_ns(u64::from(s) * NS);
    0
}

/// Programs make random numbers of it. It is larger than any that the system gives: a signal to it reaches no process.
#[unsafe(no_mangle)]
unsafe extern "C" fn getpid() -> pid_t {
    static PID: AtomicI32 = AtomicI32::new(0);
    if !is_on() {
        return pass_on!(getpid() -> pid_t);
    }
    let known = PID.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let pid = call(Call::Pid, [0; 3], &[], &mut []) as pid_t;
    PID.store(pid, Ordering::Relaxed);
    pid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_to_sleep_are_nanoseconds() {
        let of = |tv_sec, tv_nsec| {
            let time = timespec { tv_sec, tv_nsec };
            // SAFETY: a time.
            unsafe { ns_of(&raw const time) }
        };
        assert_eq!(of(2, 5), Some(2_000_000_005));
        assert_eq!(of(i64::MAX, 5), Some(u64::MAX));
        assert_eq!(of(0, 1_000_000_000), None);
        assert_eq!(of(0, -1), None);
        assert_eq!(of(-1, 0), None);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { ns_of(ptr::null()) }, None);
    }

    #[test]
    fn outside_of_a_simulation_time_is_the_systems() {
        let mut now = timespec_of(0);
        // SAFETY: places for times.
        unsafe {
            assert_eq!(clock_gettime(libc::CLOCK_REALTIME, &raw mut now), 0);
            assert!(time(ptr::null_mut()) >= now.tv_sec);
        }
        assert!(now.tv_sec as u64 > EPOCH_S);
        // SAFETY: takes nothing.
        assert_eq!(unsafe { getpid() } as u32, std::process::id());
    }
}
