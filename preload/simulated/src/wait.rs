//! `poll` and `select`, over streams of the simulation and real descriptors at once.
//!
//! What makes a real descriptor readable is this process itself, while it serves the simulation: channels of events. So the system is asked
//! about them, without waiting, whenever the simulation has gone on for a while.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::hooks::pass_on;
use crate::next::next;
use crate::{Call, answer, call, fail, is_on, sockets};

/// Descriptors in one call.
pub(crate) const FDS_MAX: usize = 256;
/// Bytes of a stream and its events.
const ENTRY: usize = 16;
/// The first time that passes between two looks at real descriptors, and the longest.
const LOOK_NS: u64 = 1_000;
const LOOK_NS_MAX: u64 = 1_000_000;
pub(crate) const FOR_EVER: u64 = u64::MAX;

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    if !is_on() {
        return pass_on!(poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int);
    }
    let timeout = u64::try_from(timeout_ms).map_or(FOR_EVER, |ms| ms * 1_000_000);
    // SAFETY: so many, by the rules of the function.
    unsafe { wait(fds, count, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout_ms: c_int,
    room: usize,
) -> c_int {
    let count = count.min((room / size_of::<pollfd>()) as nfds_t);
    // SAFETY: the caller's, and no more than there are.
    unsafe { poll(fds, count, timeout_ms) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !is_on() {
        return pass_on!(ppoll(
            fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t
        ) -> c_int);
    }
    // SAFETY: a time or null, by the rules of the function.
    let timeout = unsafe { timeout.as_ref() };
    let timeout = timeout.map_or(FOR_EVER, |time| ns(time.tv_sec, time.tv_nsec));
    // SAFETY: so many, by the rules of the function.
    unsafe { wait(fds, count, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    if !is_on() {
        return pass_on!(select(
            count: c_int, readable: *mut fd_set, writable: *mut fd_set, except: *mut fd_set, timeout: *mut timeval
        ) -> c_int);
    }
    // SAFETY: sets and a time, or null, by the rules of the function.
    unsafe {
        let timeout = timeout.as_ref();
        let timeout = timeout.map_or(FOR_EVER, |time| ns(time.tv_sec, time.tv_usec * 1000));
        select_among(count, [readable, writable, except], timeout)
    }
}

/// # Safety
/// Sets, or null.
unsafe fn select_among(count: c_int, sets: [*mut fd_set; 3], timeout_ns: u64) -> c_int {
    const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    let mut list = [pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    }; FDS_MAX];
    let mut len = 0;
    for fd in 0..count.clamp(0, libc::FD_SETSIZE as c_int) {
        let mut events = 0;
        for (set, event) in sets.into_iter().zip(EVENTS) {
            // SAFETY: a set, and a number that it has.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, set) } {
                events |= event;
            }
        }
        if events != 0 {
            let Some(place) = list.get_mut(len) else {
                return fail(libc::EINVAL) as c_int;
            };
            *place = pollfd {
                fd,
                events,
                revents: 0,
            };
            len += 1;
        }
    }
    // SAFETY: so many.
    if unsafe { wait(list.as_mut_ptr(), len as nfds_t, timeout_ns) } < 0 {
        return -1;
    }
    let mut found = 0;
    for (set, event) in sets
        .into_iter()
        .zip(EVENTS)
        .filter(|(set, _)| !set.is_null())
    {
        // An end or an error is something to read, and to write.
        let also = if event == libc::POLLPRI {
            0
        } else {
            libc::POLLERR | libc::POLLHUP
        };
        // SAFETY: a set.
        unsafe { libc::FD_ZERO(set) };
        let asked = list[..len].iter().filter(|it| it.events & event != 0);
        for it in asked.filter(|it| it.revents & (event | also) != 0) {
            // SAFETY: a set, and a number that it has.
            unsafe { libc::FD_SET(it.fd, set) };
            found += 1;
        }
    }
    found
}

pub(crate) fn ns(s: i64, ns: i64) -> u64 {
    let (s, ns) = (s.max(0) as u64, ns.max(0) as u64);
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// # Safety
/// So many.
unsafe fn wait(fds: *mut pollfd, count: nfds_t, timeout_ns: u64) -> c_int {
    let count = count as usize;
    if count > FDS_MAX {
        return fail(libc::EINVAL) as c_int;
    }
    let fds = if count == 0 {
        &mut [][..]
    } else {
        // SAFETY: the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(fds, count) }
    };
    let has_real = fds
        .iter()
        .any(|it| it.fd >= 0 && sockets::of(it.fd).is_none());
    wait_among(fds, has_real, timeout_ns, look_at_real)
}

/// Waits for streams, and for what a look at real descriptors finds: how many of both, or -1.
pub(crate) fn wait_among(
    fds: &mut [pollfd],
    has_real: bool,
    timeout_ns: u64,
    mut look: impl FnMut(&mut [pollfd]) -> c_int,
) -> c_int {
    let (mut waited, mut step) = (0, 0);
    loop {
        let real = if has_real { look(fds) } else { 0 };
        if real < 0 {
            return real;
        }
        let left = timeout_ns - waited;
        let time = match (real, has_real) {
            (0, true) => step.min(left),
            (0, false) => left,
            _ => 0,
        };
        let simulated = wait_for_streams(fds, time);
        if simulated < 0 {
            return answer(simulated) as c_int;
        }
        if real + simulated as c_int != 0 || timeout_ns - waited == 0 {
            return real + simulated as c_int;
        }
        if !has_real {
            return 0;
        }
        if timeout_ns != FOR_EVER {
            waited += time;
        }
        step = (step * 2).clamp(LOOK_NS, LOOK_NS_MAX);
    }
}

/// How many real descriptors have events; those of streams are none then.
fn look_at_real(fds: &mut [pollfd]) -> c_int {
    let mut real = [pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    }; FDS_MAX];
    let real = &mut real[..fds.len()];
    for (to, from) in real.iter_mut().zip(fds.iter()) {
        *to = *from;
        if sockets::of(from.fd).is_some() {
            // It is left out.
            to.fd = -1;
        }
    }
    let now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: so many entries, and a time.
    let found = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            real.as_mut_ptr(),
            real.len(),
            &raw const now,
            ptr::null::<c_void>(),
            8,
        )
    };
    for (to, from) in fds.iter_mut().zip(real.iter()) {
        to.revents = if found > 0 && from.fd >= 0 {
            from.revents
        } else {
            0
        };
    }
    found.max(0) as c_int
}

/// How many streams have events, at the latest after that time.
fn wait_for_streams(fds: &mut [pollfd], time_ns: u64) -> i64 {
    let mut asked = [0; FDS_MAX * ENTRY];
    let mut len = 0;
    for it in fds.iter() {
        if let Some(stream) = sockets::of(it.fd) {
            asked[len..len + 8].copy_from_slice(&stream.id.to_le_bytes());
            let events = u64::from(it.events as u16);
            asked[len + 8..len + ENTRY].copy_from_slice(&events.to_le_bytes());
            len += ENTRY;
        }
    }
    if len == 0 && time_ns == 0 {
        return 0;
    }
    let mut found = [0; FDS_MAX * 8];
    let count = call(Call::Wait, [time_ns, 0, 0], &asked[..len], &mut found);
    let mut words = found.chunks_exact(8);
    for it in fds.iter_mut().filter(|it| sockets::of(it.fd).is_some()) {
        let word = words.next().and_then(|word| word.try_into().ok());
        it.revents = word.map_or(0, u64::from_le_bytes) as i16;
    }
    count
}
