//! Memory of very many QPs: prefetching it, and huge pages for it.
//!
//! Where ten thousand QPs take turns, each post and each packet finds the QP out of the caches, and its pages out of
//! the TLB, which costs as much as everything else that is done in user space. `urxe scale` measures it.

use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes of a huge page, as a power of two.
const HUGE_BITS: u32 = 21;

/// Asks for the cache lines of a range of addresses and goes on. Any address will do: nothing is read.
#[inline]
pub(crate) fn prefetch(addresses: Range<usize>) {
    let first = addresses.start - addresses.start % LINE;
    for line in (first..addresses.end).step_by(LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which has no effect but on caches, faults never, and needs nothing but SSE, which is
        // part of the architecture.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line as *const i8);
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a hint as well, which changes no register, no flag and no memory.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}

/// The addresses of a value.
#[inline]
pub(crate) fn range_of<T>(value: &T) -> Range<usize> {
    let at = core::ptr::from_ref(value).addr();
    at..at + size_of::<T>()
}

/// Asks for what comes later, if the thread goes in steps, else for this.
#[inline]
pub(crate) fn prefetch_ahead(steps: &Steps, addresses: Range<usize>) {
    let start = steps.on(addresses.start).unwrap_or(addresses.start);
    prefetch(start..start.wrapping_add(addresses.len()));
}

/// Addresses that a thread goes through in equal steps: a program that posts to very many QPs, one after the other in the order in which it made them, finds
/// what belongs to them at such. Then what the next post needs is fetched while this one is made: `urxe scale` has 1.2 times the rate so.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    last: Cell<usize>,
    step: Cell<usize>,
}

impl Steps {
    pub(crate) const fn new() -> Steps {
        Steps {
            last: Cell::new(0),
            step: Cell::new(0),
        }
    }

    /// The thread is at this address now. Returns that of the next step, if it has come by two equal ones.
    #[inline]
    pub(crate) fn on(&self, address: usize) -> Option<usize> {
        let step = address.wrapping_sub(self.last.replace(address));
        let is_equal = self.step.replace(step) == step;
        (is_equal && step != 0).then(|| address.wrapping_add(step))
    }
}

/// Puts the memory of QPs into huge pages, 2 MiB at a time, as it fills up.
#[derive(Debug, Default)]
pub(crate) struct HugePages {
    /// Number of the huge page that the last QP is in; 0 for none.
    current: AtomicUsize,
}

impl HugePages {
    /// A QP was made at this address.
    pub(crate) fn note(&self, address: usize) {
        let page = address >> HUGE_BITS;
        let before = self.current.swap(page, Ordering::Relaxed);
        if before != page && before != 0 {
            collapse(before << HUGE_BITS);
        }
    }
}

/// One huge page in place of the small ones from this address on, if the system can (Linux 6.1 and later) and if all
/// of it is of one mapping that may be so.
#[cfg(target_os = "linux")]
fn collapse(address: usize) {
    /// Linux's number; `libc` has it for glibc alone.
    const MADV_COLLAPSE: libc::c_int = 25;
    // SAFETY: the call moves pages and changes no byte, whatever the range holds; it refuses what it can't move.
    unsafe {
        libc::madvise(address as *mut _, 1 << HUGE_BITS, MADV_COLLAPSE);
    }
}

#[cfg(not(target_os = "linux"))]
fn collapse(_address: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_about_any_address_are_harmless() {
        let value = [7_u8; 200];
        let at = value.as_ptr().addr();
        prefetch(at..at + value.len());
        prefetch(0..1000);
        prefetch(usize::MAX - 100..usize::MAX);
        assert_eq!(value, [7; 200]);
    }

    #[test]
    fn steps_are_told_once_there_were_two_equal_ones() {
        let steps = Steps::default();
        let at = |address| steps.on(address);
        assert_eq!(
            [at(1000), at(1100), at(1200), at(1300)],
            [None, None, Some(1300), Some(1400)]
        );
        // In another order, and backwards, also over the end of all addresses.
        assert_eq!(
            [at(700), at(400), at(100)],
            [None, None, Some(100_usize.wrapping_sub(300))]
        );
        assert_eq!(
            at(100_usize.wrapping_sub(300)),
            Some(100_usize.wrapping_sub(600))
        );
        // One QP again and again is no step.
        assert_eq!([at(50), at(50), at(50), at(50)], [None; 4]);
    }

    #[test]
    fn memory_that_is_collapsed_keeps_its_bytes() {
        let bytes: Vec<u8> = (0..6_usize << HUGE_BITS).map(|i| (i % 251) as u8).collect();
        let pages = HugePages::default();
        for at in (0..bytes.len()).step_by(4096) {
            pages.note(bytes.as_ptr().addr() + at);
        }
        // Includes addresses that belong to no region.
        pages.note(1 << HUGE_BITS);
        pages.note(0);
        let mut wrong = bytes.iter().enumerate();
        assert!(wrong.all(|(i, &byte)| byte == (i % 251) as u8));
    }
}
