//! `epoll`, over streams of the simulation and real descriptors at once.
//!
//! The system has the instance, and the real descriptors in it. Which streams are in it is known here. A change of a stream is told as
//! long as it lasts (level-triggered); what is to be told once for each change (`EPOLLET`) is refused.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{epoll_event, pollfd, sigset_t, timespec};

use crate::hooks::pass_on;
use crate::next::next;
use crate::refused::refuse;
use crate::wait::{FDS_MAX, FOR_EVER, ns, wait_among};
use crate::{fail, is_on, sockets};

/// A descriptor in an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    instance: c_int,
    fd: c_int,
    events: u32,
    data: u64,
    /// The system has it.
    is_real: bool,
}

/// Bits that say how is told, and not what.
const MODES: u32 = (libc::EPOLLONESHOT | libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The descriptor is closed: no instance has it any more, and it is none.
pub(crate) fn forget(fd: c_int) {
    if is_on() {
        entries().retain(|entry| entry.fd != fd && entry.instance != fd);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    instance: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if !is_on() || sockets::of(fd).is_none() {
        let done = pass_on!(epoll_ctl(
            instance: c_int, operation: c_int, fd: c_int, event: *mut epoll_event
        ) -> c_int);
        if done == 0 && is_on() {
            let real = Entry {
                instance,
                fd,
                events: 0,
                data: 0,
                is_real: true,
            };
            // It was there only if it is changed.
            let _ = change(&mut entries(), operation, real);
        }
        return done;
    }
    // SAFETY: an event or null, by the rules of the function.
    let event = unsafe { event.as_ref() }.copied();
    let (events, data) = match event {
        Some(event) => (event.events, event.u64),
        None if operation == libc::EPOLL_CTL_DEL => (0, 0),
        None => return fail(libc::EFAULT) as c_int,
    };
    if events & libc::EPOLLET as u32 != 0 {
        return fail(refuse("asks for edges of streams (EPOLLET)", libc::EINVAL)) as c_int;
    }
    let entry = Entry {
        instance,
        fd,
        events,
        data,
        is_real: false,
    };
    match change(&mut entries(), operation, entry) {
        Ok(()) => 0,
        Err(error) => fail(error) as c_int,
    }
}

fn change(entries: &mut Vec<Entry>, operation: c_int, new: Entry) -> Result<(), c_int> {
    let is_it = |entry: &Entry| (entry.instance, entry.fd) == (new.instance, new.fd);
    let place = entries.iter().position(is_it);
    match (operation, place) {
        (libc::EPOLL_CTL_ADD, Some(_)) => return Err(libc::EEXIST),
        (libc::EPOLL_CTL_ADD, None) => {
            let others = entries.iter().filter(|it| it.instance == new.instance);
            if others.count() == FDS_MAX {
                return Err(libc::ENOSPC);
            }
            entries.push(new);
        }
        (libc::EPOLL_CTL_MOD, Some(place)) => entries[place] = new,
        (libc::EPOLL_CTL_DEL, Some(place)) => drop(entries.remove(place)),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => return Err(libc::ENOENT),
        _ => return Err(libc::EINVAL),
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout_ms: c_int,
) -> c_int {
    if !is_on() {
        return pass_on!(epoll_wait(
            instance: c_int, events: *mut epoll_event, most: c_int, timeout_ms: c_int
        ) -> c_int);
    }
    let timeout = u64::try_from(timeout_ms).map_or(FOR_EVER, |ms| ms * 1_000_000);
    // SAFETY: room for so many, by the rules of the function.
    unsafe { wait(instance, events, most, timeout) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    if !is_on() {
        return pass_on!(epoll_pwait(
            instance: c_int, events: *mut epoll_event, most: c_int, timeout_ms: c_int, mask: *const sigset_t
        ) -> c_int);
    }
    // SAFETY: the caller's.
    unsafe { epoll_wait(instance, events, most, timeout_ms) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    instance: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    if !is_on() {
        return pass_on!(epoll_pwait2(
            instance: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec, mask: *const sigset_t
        ) -> c_int);
    }
    // SAFETY: a time or null, and room for so many, by the rules of the function.
    unsafe {
        let timeout = timeout.as_ref();
        let timeout = timeout.map_or(FOR_EVER, |time| ns(time.tv_sec, time.tv_nsec));
        wait(instance, events, most, timeout)
    }
}

/// # Safety
/// Room for so many events.
unsafe fn wait(instance: c_int, events: *mut epoll_event, most: c_int, timeout_ns: u64) -> c_int {
    let Some(most) = usize::try_from(most).ok().filter(|most| *most > 0) else {
        return fail(libc::EINVAL) as c_int;
    };
    if events.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    let here: Vec<Entry> = {
        let entries = entries();
        let here = entries.iter().filter(|it| it.instance == instance);
        here.copied().collect()
    };
    let has_real = here.iter().any(|entry| entry.is_real);
    // One that was told and is to be told once only has no events: no error of it is told either.
    let streams = here
        .iter()
        .filter(|it| !it.is_real && it.events & !MODES != 0);
    let streams: Vec<&Entry> = streams.collect();
    let mut polled: Vec<pollfd> = streams
        .iter()
        .map(|entry| pollfd {
            fd: entry.fd,
            events: (entry.events & !MODES) as i16,
            revents: 0,
        })
        .collect();
    let mut real = 0;
    if !has_real {
        // SAFETY: as below. It has nothing, and says whether it is an instance.
        let none = unsafe { really_wait(instance, events, most as c_int) };
        if none < 0 {
            return none;
        }
    }
    let look = |_: &mut [pollfd]| {
        // SAFETY: room for so many, by the caller's promise; no time passes.
        real = unsafe { really_wait(instance, events, most as c_int) };
        real
    };
    let found = wait_among(&mut polled, has_real, timeout_ns, look);
    if found < 0 {
        return found;
    }
    let mut count = usize::try_from(real).unwrap_or(0);
    let has_events = |(polled, _): &(&pollfd, &&Entry)| polled.revents != 0;
    for (polled, entry) in polled.iter().zip(&streams).filter(has_events) {
        if count == most {
            break;
        }
        let event = epoll_event {
            events: u32::from(polled.revents as u16),
            u64: entry.data,
        };
        // SAFETY: within the caller's room.
        unsafe { events.add(count).write_unaligned(event) };
        count += 1;
        if entry.events & libc::EPOLLONESHOT as u32 != 0 {
            let told = Entry {
                events: 0,
                ..**entry
            };
            // It is there.
            let _ = change(&mut entries(), libc::EPOLL_CTL_MOD, told);
        }
    }
    count as c_int
}

/// # Safety
/// Room for so many events.
unsafe fn really_wait(instance: c_int, events: *mut epoll_event, most: c_int) -> c_int {
    let none = ptr::null::<c_void>();
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_epoll_pwait, instance, events, most, 0, none, 8) as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_each_descriptor_once() {
        let entry = |instance, fd, data| Entry {
            instance,
            fd,
            events: libc::EPOLLIN as u32,
            data,
            is_real: false,
        };
        let mut all = Vec::new();
        let (add, modify, del) = (
            libc::EPOLL_CTL_ADD,
            libc::EPOLL_CTL_MOD,
            libc::EPOLL_CTL_DEL,
        );
        assert_eq!(change(&mut all, add, entry(5, 7, 1)), Ok(()));
        assert_eq!(change(&mut all, add, entry(5, 7, 2)), Err(libc::EEXIST));
        assert_eq!(change(&mut all, add, entry(6, 7, 3)), Ok(()));
        assert_eq!(change(&mut all, modify, entry(5, 7, 4)), Ok(()));
        assert_eq!(change(&mut all, modify, entry(5, 8, 4)), Err(libc::ENOENT));
        assert_eq!(all, [entry(5, 7, 4), entry(6, 7, 3)]);
        assert_eq!(change(&mut all, del, entry(5, 7, 0)), Ok(()));
        assert_eq!(change(&mut all, del, entry(5, 7, 0)), Err(libc::ENOENT));
        assert_eq!(change(&mut all, 9, entry(5, 7, 0)), Err(libc::EINVAL));
        assert_eq!(all, [entry(6, 7, 3)]);
    }
}
