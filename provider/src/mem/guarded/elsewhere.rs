//! Where there are no routines of our own for the processor: on Linux the kernel copies
//! (a system call each time, which is slow, but knows what is gone); on other systems
//! nothing is caught, and vanished memory is a crash.

use core::sync::atomic::{AtomicU64, Ordering};

use super::Answer;

/// Nothing depends on the processor.
pub(super) fn prepare() {}

/// Copies; returns 0, or 1 if something is gone.
///
/// # Safety
/// See [`super::copy`].
#[cfg(target_os = "linux")]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    if len == 0 {
        return 0;
    }
    let iovec = |base: *mut u8| libc::iovec {
        iov_base: base.cast(),
        iov_len: len,
    };
    let (local, remote) = (iovec(dst), iovec(src.cast_mut()));
    // SAFETY: the kernel reads two `iovec`s and copies what they name, both sides as the
    // caller promises; what is not mapped makes it fail. A local side that is gone is an
    // error too.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    u64::from(copied != len as isize)
}

/// Copies; returns 0.
///
/// # Safety
/// See [`super::copy`]; and everything is there.
#[cfg(not(target_os = "linux"))]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(src, dst, len) };
    0
}

macro_rules! store {
    ($name:ident, $type:ty) => {
        /// Stores a word; returns 0, or 1 if its place is gone.
        ///
        /// # Safety
        /// The place is aligned, and may be written if it is there.
        pub(super) unsafe fn $name(at: *mut u8, word: $type) -> u64 {
            let word = word.to_ne_bytes();
            // SAFETY: the caller's promise. (A kernel copies an aligned word at once.)
            unsafe { copy(at, word.as_ptr(), word.len()) }
        }
    };
}

store!(store_u64, u64);
store!(store_u32, u32);
store!(store_u16, u16);
store!(store_u8, u8);

/// Compare-and-swap of 8 bytes.
///
/// # Safety
/// See [`super::compare_swap`].
pub(super) unsafe fn compare_swap(at: *mut u8, compare: u64, swap: u64) -> Answer {
    // SAFETY: the caller's promise.
    unsafe {
        word(at, |word| {
            let old = word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire);
            old.unwrap_or_else(|found| found)
        })
    }
}

/// Fetch-and-add of 8 bytes.
///
/// # Safety
/// See [`super::fetch_add`].
pub(super) unsafe fn fetch_add(at: *mut u8, add: u64) -> Answer {
    // SAFETY: the caller's promise.
    unsafe { word(at, |word| word.fetch_add(add, Ordering::AcqRel)) }
}

/// # Safety
/// `at` is a multiple of 8 and may be written if it is there.
unsafe fn word(at: *mut u8, what: impl FnOnce(&AtomicU64) -> u64) -> Answer {
    let mut before = [0; 8];
    // SAFETY: the caller's promise, after a look whether it is there. Should it vanish
    // between, the process crashes: nothing better can be done without a routine.
    unsafe {
        if copy(before.as_mut_ptr(), at, 8) != 0 {
            return Answer {
                value: 0,
                is_gone: 1,
            };
        }
        let value = what(AtomicU64::from_ptr(at.cast()));
        Answer { value, is_gone: 0 }
    }
}
