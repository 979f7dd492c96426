//! Copies and atomics on memory that may vanish while they run.
//!
//! A program may unmap a registered region, truncate the file behind it or take its
//! rights away, at any moment and in any thread. The processor then raises SIGSEGV or
//! SIGBUS in the thread that happens to be copying. Asking the kernel before each copy
//! would cost a system call a packet and still come too early; so the accesses are a few
//! routines of known address, and a signal handler that finds the fault inside one of
//! them lets it return "gone" instead (as an operating system copies from its users).
//! As long as nothing vanishes this costs nothing: there is no branch and no flag.

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod displaced_tests;
#[cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
mod handler;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod tests;

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
#[path = "aarch64.rs"]
mod routines;
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_pointer_width = "64"
))]
#[path = "x86_64.rs"]
mod routines;
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
#[path = "elsewhere.rs"]
mod routines;
/// The kernel copies there: no fault comes to the process.
#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod handler {
    pub(super) fn install() {}
    pub(crate) fn before_fork() {}
    pub(crate) fn after_fork() {}
}

use core::sync::atomic::{AtomicU32, Ordering, fence};

/// The memory is not there, or its page does not permit the access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gone;

/// What a routine answers in two registers.
#[repr(C)]
struct Answer {
    value: u64,
    is_gone: u64,
}

impl Answer {
    #[inline]
    fn into_result(self) -> Result<u64, Gone> {
        check(self.is_gone).map(|()| self.value)
    }
}

#[inline]
fn check(is_gone: u64) -> Result<(), Gone> {
    if is_gone == 0 { Ok(()) } else { Err(Gone) }
}

/// Sees to it that faults are caught from now on. To be called when memory is
/// registered: it notices if the program has put its own handlers in front since.
pub(crate) fn protect() {
    routines::prepare();
    handler::install();
}

/// To be called by `fork` before it copies the process, and after that in both: what [`protect`] locks is free in
/// the child.
pub(super) use handler::{after_fork, before_fork};

/// Copies `len` bytes. If some of either side are gone, others may have been copied.
///
/// # Safety
/// Both sides are memory that may be read and written (or is not mapped at all), and
/// they do not overlap.
#[inline]
pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Gone> {
    // SAFETY: the caller's promise is what the routine asks for.
    check(unsafe { routines::copy(dst, src, len) })
}

/// Copies so that a program that polls on the end of the bytes finds the rest there: the last
/// aligned word is stored by itself, after everything else. (A plain copy may well
/// begin at the end.) So an aligned number of 8 or 4 bytes never tears, either.
///
/// # Safety
/// As for [`copy`], with `src.len()` bytes at `dst`.
#[inline]
pub(crate) unsafe fn copy_last_word_last(dst: *mut u8, src: &[u8]) -> Result<(), Gone> {
    let Some(last) = last_store(dst, src.len()) else {
        return Ok(());
    };
    let (bulk, word) = src.split_at(src.len() - last);
    // SAFETY: the caller's promise; `word` is behind `bulk`, and is what `last_store` said.
    unsafe {
        if !bulk.is_empty() {
            copy(dst, bulk.as_ptr(), bulk.len())?;
        }
        store_last(dst.wrapping_add(bulk.len()), word)
    }
}

/// The same of words that something else may change at any time. (The routines are no Rust: to them a race is no more than a mixture.)
///
/// # Safety
/// As for [`copy`], with the bytes of `src` at `dst`.
#[inline]
pub(crate) unsafe fn copy_words_last_word_last(
    dst: *mut u8,
    src: &[AtomicU32],
) -> Result<(), Gone> {
    let len = size_of_val(src);
    let Some(last) = last_store(dst, len) else {
        return Ok(());
    };
    let mut end = [0; 8];
    let kept = len.min(end.len());
    for (bytes, word) in end[8 - kept..]
        .chunks_exact_mut(4)
        .zip(&src[(len - kept) / 4..])
    {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    let bulk = len - last;
    // SAFETY: as above.
    unsafe {
        if bulk > 0 {
            copy(dst, src.as_ptr().cast(), bulk)?;
        }
        store_last(dst.wrapping_add(bulk), &end[8 - last..])
    }
}

/// Bytes of the last aligned word of `len` bytes at `dst`.
#[inline]
fn last_store(dst: *mut u8, len: usize) -> Option<usize> {
    let end = dst.addr() + len;
    let fits = |&n: &usize| len >= n && end.is_multiple_of(n);
    [8, 4, 2, 1].into_iter().find(fits)
}

/// Stores a word behind what was copied.
///
/// # Safety
/// As for [`copy`], with the word at `at`, where it is aligned.
#[inline]
unsafe fn store_last(at: *mut u8, word: &[u8]) -> Result<(), Gone> {
    fence(Ordering::Release);
    // SAFETY: within the caller's promise.
    let is_gone = unsafe {
        match *word {
            [a, b, c, d, e, f, g, h] => {
                routines::store_u64(at, u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
            }
            [a, b, c, d] => routines::store_u32(at, u32::from_ne_bytes([a, b, c, d])),
            [a, b] => routines::store_u16(at, u16::from_ne_bytes([a, b])),
            _ => routines::store_u8(at, word[0]),
        }
    };
    check(is_gone)
}

/// Atomically replaces 8 bytes by `swap` if they equal `compare`; returns what was there.
///
/// # Safety
/// `at` is a multiple of 8, and memory that may be written, if it is there.
#[inline]
pub(crate) unsafe fn compare_swap(at: *mut u8, compare: u64, swap: u64) -> Result<u64, Gone> {
    // SAFETY: the caller's promise.
    unsafe { routines::compare_swap(at, compare, swap) }.into_result()
}

/// Atomically adds to 8 bytes; returns what was there.
///
/// # Safety
/// As for [`compare_swap`].
#[inline]
pub(crate) unsafe fn fetch_add(at: *mut u8, add: u64) -> Result<u64, Gone> {
    // SAFETY: the caller's promise.
    unsafe { routines::fetch_add(at, add) }.into_result()
}
