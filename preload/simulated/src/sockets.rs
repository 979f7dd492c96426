//! Which descriptors are streams of the simulation.
//!
//! Each has a descriptor of its own, which leads to `/dev/null`: the number is what counts, and no file has it meanwhile.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::fail;

/// No stream has a number beyond.
const FDS: usize = 1024;
/// Beside a stream's number plus one.
const NON_BLOCKING: u64 = 1 << 62;
const IS_IPV6: u64 = 1 << 63;

static STREAMS: [AtomicU64; FDS] = [const { AtomicU64::new(0) }; FDS];

/// A stream, as its descriptor knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) is_non_blocking: bool,
    pub(crate) is_ipv6: bool,
}

impl Stream {
    fn to_word(self) -> u64 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        (self.id + 1) | flag(self.is_non_blocking, NON_BLOCKING) | flag(self.is_ipv6, IS_IPV6)
    }

    fn of_word(word: u64) -> Option<Stream> {
        let id = (word & !(NON_BLOCKING | IS_IPV6)).checked_sub(1)?;
        Some(Stream {
            id,
            is_non_blocking: word & NON_BLOCKING != 0,
            is_ipv6: word & IS_IPV6 != 0,
        })
    }
}

fn place(fd: c_int) -> Option<&'static AtomicU64> {
    STREAMS.get(usize::try_from(fd).ok()?)
}

/// The stream of a descriptor, if it is one.
#[inline]
pub(crate) fn of(fd: c_int) -> Option<Stream> {
    if !crate::is_on() {
        return None;
    }
    Stream::of_word(place(fd)?.load(Ordering::Relaxed))
}

/// A descriptor for a new stream; -1, with `errno`, if there is none.
pub(crate) fn give(stream: Stream) -> c_int {
    // SAFETY: a string and numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat,
            libc::AT_FDCWD,
            c"/dev/null".as_ptr(),
            libc::O_RDWR | libc::O_CLOEXEC,
        )
    } as c_int;
    let Some(place) = place(fd) else {
        if fd >= 0 {
            really_close(fd);
            fail(libc::EMFILE);
        }
        return -1;
    };
    place.store(stream.to_word(), Ordering::Relaxed);
    fd
}

pub(crate) fn change(fd: c_int, stream: Stream) {
    if let Some(place) = place(fd) {
        place.store(stream.to_word(), Ordering::Relaxed);
    }
}

/// The descriptor is free again; the stream that it was.
pub(crate) fn take(fd: c_int) -> Option<Stream> {
    let stream = of(fd)?;
    place(fd)?.store(0, Ordering::Relaxed);
    really_close(fd);
    Some(stream)
}

fn really_close(fd: c_int) {
    // SAFETY: ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

#[cfg(test)]
#[test]
fn a_word_has_all_of_a_stream() {
    for (id, is_non_blocking, is_ipv6) in
        [(0, false, true), (7, true, false), (1 << 40, true, true)]
    {
        let stream = Stream {
            id,
            is_non_blocking,
            is_ipv6,
        };
        assert_eq!(Stream::of_word(stream.to_word()), Some(stream));
    }
    assert_eq!(Stream::of_word(0), None);
    assert_eq!(of(0), None, "no simulation");
}
