//! Waiting for sockets, and for other descriptors beside them.

use core::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::table::Socket;
use super::{sys, table};
use crate::errno::{Errno, minus_one, or_minus_one};
use crate::layout::array_mut;

/// A socket among the descriptors; none of those that are not ours.
type Found = Option<Arc<Socket>>;

pub(crate) unsafe extern "C" fn rpoll(
    fds: *mut libc::pollfd,
    len: libc::nfds_t,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: a list with its length, by the rules of the function.
    let fds = unsafe { array_mut(fds, len as usize) };
    or_minus_one(poll(fds, timeout_ms).map(|count| count as c_int))
}

fn poll(fds: &mut [libc::pollfd], timeout_ms: c_int) -> Result<usize, Errno> {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let sockets: Vec<Found> = fds.iter().map(|fd| table::find(fd.fd).ok()).collect();
    // What the system is asked: descriptors of sockets are not theirs.
    let mut asked: Vec<libc::pollfd> = fds.to_vec();
    loop {
        if check(fds, &sockets) > 0 || timeout_ms == 0 {
            return look(fds, &sockets, &mut asked);
        }
        for (asked, socket) in asked.iter_mut().zip(&sockets) {
            if let Some(socket) = socket {
                asked.fd = socket.arm()?;
                asked.events = libc::POLLIN;
            }
        }
        // What happened before that raises no event; and a connection that was made is waited for elsewhere.
        if check(fds, &sockets) > 0 || is_elsewhere(&asked, &sockets)? {
            continue;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left_ms = left.map_or(-1, |left| left.as_micros().div_ceil(1000) as c_int);
        if sys::poll(&mut asked, left_ms)? == 0 {
            fds.iter_mut().for_each(|fd| fd.revents = 0);
            return Ok(0);
        }
        let mut others = 0;
        for ((fd, asked), socket) in fds.iter_mut().zip(&asked).zip(&sockets) {
            match socket {
                Some(socket) if asked.revents != 0 => socket.disarm(),
                Some(_) => {}
                None => {
                    fd.revents = asked.revents;
                    others += usize::from(asked.revents != 0);
                }
            }
        }
        if others > 0 {
            return Ok(others + check(fds, &sockets));
        }
    }
}

/// Whether what a socket waits for has another descriptor now than the one that was asked for.
fn is_elsewhere(asked: &[libc::pollfd], sockets: &[Found]) -> Result<bool, Errno> {
    for (asked, socket) in asked.iter().zip(sockets) {
        if let Some(socket) = socket
            && socket.arm()? != asked.fd
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What holds of the sockets; how many have something.
fn check(fds: &mut [libc::pollfd], sockets: &[Found]) -> usize {
    let mut count = 0;
    for (fd, socket) in fds.iter_mut().zip(sockets) {
        if let Some(socket) = socket {
            fd.revents = socket.ready(fd.events);
            count += usize::from(fd.revents != 0);
        }
    }
    count
}

/// The others too, without waiting; how many have something in all.
fn look(
    fds: &mut [libc::pollfd],
    sockets: &[Found],
    asked: &mut [libc::pollfd],
) -> Result<usize, Errno> {
    for (asked, socket) in asked.iter_mut().zip(sockets) {
        if socket.is_some() {
            // Skipped by the system.
            asked.fd = -1;
        }
    }
    sys::poll(asked, 0)?;
    for ((fd, asked), socket) in fds.iter_mut().zip(asked).zip(sockets) {
        if socket.is_none() {
            fd.revents = asked.revents;
        }
    }
    Ok(fds.iter().filter(|fd| fd.revents != 0).count())
}

pub(crate) unsafe extern "C" fn rselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    let sets = [
        (read, libc::POLLIN, libc::POLLIN | libc::POLLHUP),
        (write, libc::POLLOUT, libc::POLLOUT),
        (
            except,
            libc::POLLPRI,
            libc::POLLPRI | libc::POLLERR | libc::POLLNVAL,
        ),
    ];
    let mut fds: Vec<libc::pollfd> = Vec::new();
    for fd in 0..count {
        let mut events = 0;
        for (set, asks, _) in sets {
            // SAFETY: null, or a set, by the rules of the function; the number is one of its.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, set) } {
                events |= asks;
            }
        }
        if events != 0 {
            fds.push(libc::pollfd {
                events,
                ..sys::reading(fd)
            });
        }
    }
    // SAFETY: null, or a time, by the rules of the function.
    let timeout_ms = unsafe { timeout.as_ref() }.map_or(-1, |time| {
        let ms = time.tv_sec.saturating_mul(1000) + time.tv_usec.div_euclid(1000);
        c_int::try_from(ms).unwrap_or(c_int::MAX)
    });
    if let Err(errno) = poll(&mut fds, timeout_ms) {
        return minus_one(Err(errno));
    }
    let mut found = 0;
    for (set, asks, means) in sets {
        if set.is_null() {
            continue;
        }
        // SAFETY: a set.
        unsafe { libc::FD_ZERO(set) };
        for fd in fds
            .iter()
            .filter(|fd| fd.events & asks != 0 && fd.revents & means != 0)
        {
            // SAFETY: a set, and a number that was in it.
            unsafe { libc::FD_SET(fd.fd, set) };
            found += 1;
        }
    }
    found
}
