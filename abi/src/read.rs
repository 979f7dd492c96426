//! Events that programs take by `read`, in place of `ibv_get_cq_event` and `ibv_get_async_event`, as the kernel gives them.
//!
//! The descriptors are eventfds: the events are in this library's memory. So the library for `LD_PRELOAD`
//! (`preload/src/channels.rs`) stands in front of the C library's `read`, and asks here for those descriptors that it is told
//! of. Where it is not loaded, nothing happens here.

use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, OnceLock};

use crate::lock::lock;

/// The function that tells the other library of a descriptor: the first one that is loaded, if there are copies of it.
const TELL: &CStr = c"urxe_read_by";
type Tell = unsafe extern "C" fn(c_int, Option<Read>) -> c_int;
/// What it calls then: the length of what was read, an error number as `-errno`, or [`NOT_OURS`].
type Read = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
const NOT_OURS: isize = isize::MIN;

/// Writes the next record to a place of that length, once there is one. Returns its length, or an error number.
type Source = dyn Fn(*mut u8, usize) -> Result<usize, c_int> + Send + Sync;

/// By descriptor.
static SOURCES: Mutex<BTreeMap<RawFd, Arc<Source>>> = Mutex::new(BTreeMap::new());
/// The process that made the latest of them. A child of a fork cannot know whether that lock is free, until it makes one.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// While it lives, events are read from a descriptor. It goes before the descriptor is closed.
pub(crate) struct Reading {
    fd: RawFd,
    source: Arc<Source>,
    tell: Tell,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reading").field(&self.fd).finish()
    }
}

/// Has records of `LEN` bytes read from a descriptor, which `take` waits for; its error is a number of `errno.h`. `None`:
/// there is nothing that would ask for them.
pub(crate) fn offer<const LEN: usize>(
    fd: RawFd,
    take: impl Fn() -> Result<[u8; LEN], c_int> + Send + Sync + 'static,
) -> Option<Reading> {
    offer_to(tell()?, fd, take)
}

fn offer_to<const LEN: usize>(
    tell: Tell,
    fd: RawFd,
    take: impl Fn() -> Result<[u8; LEN], c_int> + Send + Sync + 'static,
) -> Option<Reading> {
    let source: Arc<Source> = Arc::new(move |out: *mut u8, room| {
        if room < LEN {
            return Err(libc::EINVAL);
        }
        let record = take()?;
        // SAFETY: a place for so many bytes, by the rules of `read`.
        unsafe { out.copy_from_nonoverlapping(record.as_ptr(), LEN) };
        Ok(LEN)
    });
    lock(&SOURCES).insert(fd, source.clone());
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the function has these parameters; ours is of a library that is never unloaded.
    if unsafe { tell(fd, Some(read)) } != 0 {
        forget(fd, &source);
        return None;
    }
    Some(Reading { fd, source, tell })
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: the function has these parameters.
        unsafe { (self.tell)(self.fd, None) };
        forget(self.fd, &self.source);
    }
}

/// Unless a later one has the number: the program may close descriptors that are not its own.
fn forget(fd: RawFd, source: &Arc<Source>) {
    let mut sources = lock(&SOURCES);
    if sources.get(&fd).is_some_and(|at| Arc::ptr_eq(at, source)) {
        sources.remove(&fd);
    }
}

fn tell() -> Option<Tell> {
    static FOUND: OnceLock<Option<Tell>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: a string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, TELL.as_ptr()) };
        // SAFETY: the function of that name has these parameters; or there is none.
        unsafe { core::mem::transmute::<*mut c_void, Option<Tell>>(found) }
    })
}

/// What the other library calls for a descriptor that it was told of.
unsafe extern "C" fn read(fd: c_int, out: *mut c_void, len: usize) -> isize {
    if PROCESS.load(Ordering::Relaxed) != std::process::id() {
        // As `ibv_get_cq_event` says it in the child of a fork.
        return -libc::ENODEV as isize;
    }
    let source = lock(&SOURCES).get(&fd).cloned();
    match source.map(|source| source(out.cast(), len)) {
        None => NOT_OURS,
        Some(Ok(len)) => len as isize,
        Some(Err(errno)) => -errno as isize,
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicI32;

    use super::*;

    /// How many descriptors were told of, and not taken back.
    static TOLD: AtomicI32 = AtomicI32::new(0);

    unsafe extern "C" fn note(fd: c_int, read: Option<Read>) -> c_int {
        if fd < 0 {
            return -1;
        }
        TOLD.fetch_add(if read.is_some() { 1 } else { -1 }, Ordering::Relaxed);
        0
    }

    fn read_it<const ROOM: usize>(fd: RawFd) -> (isize, [u8; ROOM]) {
        let mut bytes = [0; ROOM];
        // SAFETY: a place of that length.
        let result = unsafe { read(fd, bytes.as_mut_ptr().cast(), ROOM) };
        (result, bytes)
    }

    #[test]
    fn a_descriptor_is_read_record_by_record_until_it_is_taken_back() {
        let of = |byte| move || Ok([byte; 2]);
        assert!(offer_to(note, -1, of(0)).is_none());
        // No file has such numbers here.
        let first = offer_to(note, 1 << 30, of(1));
        let empty = offer_to(note, 1 << 29, || Err::<[u8; 2], _>(libc::EAGAIN));
        assert_eq!(read_it(1 << 30), (2, [1, 1, 0]));
        assert_eq!(read_it(1 << 30), (-libc::EINVAL as isize, [0]));
        assert_eq!(read_it(1 << 29), (-libc::EAGAIN as isize, [0, 0]));
        assert_eq!(read_it(-1), (NOT_OURS, [0, 0]));
        // The program closed what was not its own, and another channel has the number.
        let second = offer_to(note, 1 << 30, of(2));
        drop(first);
        assert_eq!(read_it(1 << 30), (2, [2, 2]));
        drop((second, empty));
        assert_eq!(read_it(1 << 30), (NOT_OURS, [0, 0]));
        assert_eq!(TOLD.load(Ordering::Relaxed), 0);
    }
}
