//! Memory that is there, not there any more, or there but not permitted.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Instant;

use super::*;
use crate::testing::PATIENCE;

/// What other processors have, which works on this one too.
#[cfg(target_os = "linux")]
#[path = "elsewhere.rs"]
mod elsewhere;

const PAGE: usize = 4096;

/// Pages of which the second half is not accessible; both ends are given back.
struct HalfGone(*mut u8);

impl HalfGone {
    fn new() -> HalfGone {
        // SAFETY: a new mapping of our own; of its two pages the second loses its rights.
        unsafe {
            let at = libc::mmap(
                core::ptr::null_mut(),
                2 * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            let at = at.cast::<u8>();
            assert_eq!(
                libc::mprotect(at.add(PAGE).cast(), PAGE, libc::PROT_NONE),
                0
            );
            HalfGone(at)
        }
    }

    /// A place, counted from the border.
    fn at(&self, from_border: isize) -> *mut u8 {
        self.0.wrapping_add(PAGE).wrapping_offset(from_border)
    }

    fn protect(&self, rights: libc::c_int) {
        // SAFETY: our own first page.
        assert_eq!(unsafe { libc::mprotect(self.0.cast(), PAGE, rights) }, 0);
    }
}

impl Drop for HalfGone {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no longer used.
        unsafe { libc::munmap(self.0.cast(), 2 * PAGE) };
    }
}

/// Every way through the copy: each small length, and around each bound.
fn lengths() -> impl Iterator<Item = usize> {
    let around = |n: usize| -> Range<usize> { n - 2..n + 3 };
    (0..140)
        .chain(around(256))
        .chain(around(1024))
        .chain(around(2048))
        .chain(around(3000))
        .chain(around(4096))
}

#[test]
fn copies_every_length_at_every_alignment() {
    let src: Vec<u8> = (0..4200u32).map(|n| (n * 7 + n / 251) as u8 | 1).collect();
    for len in lengths() {
        for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 5), (8, 16), (15, 9), (31, 33)] {
            let mut dst = vec![0; 4200];
            // SAFETY: both have 100 bytes more than the longest length.
            unsafe { copy(dst.as_mut_ptr().add(to), src.as_ptr().add(from), len) }
                .expect("all is there");
            assert_eq!(dst[to..to + len], src[from..from + len], "{len} bytes");
            assert!(dst[..to].iter().all(|&b| b == 0), "{len} bytes: before");
            assert!(
                dst[to + len..].iter().all(|&b| b == 0),
                "{len} bytes: behind"
            );
        }
    }
}

#[test]
fn the_last_word_comes_last_whatever_the_alignment() {
    let src: Vec<u8> = (1..=64).collect();
    for offset in 0..8 {
        for len in 0..=40 {
            let mut dst = vec![0u64; 8];
            let base = dst.as_mut_ptr().cast::<u8>();
            // SAFETY: 64 bytes are there, and at most 7 + 40 are written.
            unsafe { copy_last_word_last(base.add(offset), &src[..len]) }.expect("there");
            let bytes: Vec<u8> = dst.iter().flat_map(|w| w.to_ne_bytes()).collect();
            let mut expected = vec![0; 64];
            expected[offset..offset + len].copy_from_slice(&src[..len]);
            assert_eq!(bytes, expected, "{len} bytes at offset {offset}");
        }
    }
}

/// Of words, too, and whatever is behind them.
#[test]
fn words_are_copied_whatever_the_alignment() {
    let src: Vec<AtomicU32> = (0..300u32)
        .map(|n| AtomicU32::new(n.wrapping_mul(0x0301_0507) + 1))
        .collect();
    let bytes: Vec<u8> = src
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
        .collect();
    for len in (0..40).chain([64, 255, 256, 257, 300]) {
        for offset in 0..16 {
            let mut dst = vec![0xa5u8; 1300];
            let base = dst.as_mut_ptr();
            // SAFETY: both are there, and longer than what is copied.
            unsafe { copy_words_last_word_last(base.add(offset), &src[..len]) }.expect("there");
            assert!(
                dst[offset..offset + 4 * len] == bytes[..4 * len],
                "{len} {offset}"
            );
            let rest = dst[..offset].iter().chain(&dst[offset + 4 * len..]);
            assert!(rest.copied().all(|byte| byte == 0xa5), "{len} {offset}");
        }
    }
}

#[test]
fn one_byte_too_many_is_noticed_at_every_length() {
    protect();
    let pages = HalfGone::new();
    let mut ours = vec![1u8; PAGE];
    for len in lengths().filter(|len| (1..=PAGE).contains(len)) {
        for missing in [1, len.div_ceil(2), len] {
            let place = pages.at(missing as isize - len as isize);
            // SAFETY: the first page is ours alone, the second is gone; `ours` is long
            // enough.
            unsafe {
                assert_eq!(copy(place, ours.as_ptr(), len), Err(Gone), "{len} bytes in");
                assert_eq!(
                    copy(ours.as_mut_ptr(), place, len),
                    Err(Gone),
                    "{len} bytes out"
                );
                let last = copy_last_word_last(place, &ours[..len]);
                assert_eq!(last, Err(Gone), "{len} bytes in, in order");
                let place = pages.at(-(len as isize));
                copy(place, ours.as_ptr(), len).expect("all is there");
                copy_last_word_last(place, &ours[..len]).expect("all is there");
            }
        }
    }
}

#[test]
fn words_and_atomics_notice_too() {
    protect();
    let pages = HalfGone::new();
    // SAFETY: the first page is ours alone, the second is gone.
    unsafe {
        assert_eq!(fetch_add(pages.at(-8), 5), Ok(0));
        assert_eq!(compare_swap(pages.at(-8), 5, 9), Ok(5));
        assert_eq!(compare_swap(pages.at(-8), 5, 1), Ok(9));
        assert_eq!(fetch_add(pages.at(-8), u64::MAX), Ok(9));
        assert_eq!(fetch_add(pages.at(0), 1), Err(Gone));
        assert_eq!(compare_swap(pages.at(0), 0, 1), Err(Gone));
        for len in [1, 2, 4, 8] {
            assert_eq!(copy_last_word_last(pages.at(0), &[0; 8][..len]), Err(Gone));
        }
        pages.protect(libc::PROT_READ);
        let mut back = [0; 8];
        copy(back.as_mut_ptr(), pages.at(-8), 8).expect("can be read");
        assert_eq!(u64::from_ne_bytes(back), 8);
        assert_eq!(fetch_add(pages.at(-8), 1), Err(Gone), "read-only");
        assert_eq!(compare_swap(pages.at(-8), 8, 1), Err(Gone), "read-only");
        assert_eq!(
            copy_last_word_last(pages.at(-8), &[1; 8]),
            Err(Gone),
            "read-only"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_notices_too_where_there_are_no_routines() {
    let (pages, mut ours) = (HalfGone::new(), [3u8; 64]);
    // SAFETY: the first page is ours alone, the second is gone.
    unsafe {
        elsewhere::prepare();
        assert_eq!(elsewhere::copy(pages.at(-64), ours.as_ptr(), 64), 0);
        assert_eq!(elsewhere::copy(pages.at(-63), ours.as_ptr(), 64), 1);
        assert_eq!(elsewhere::copy(ours.as_mut_ptr(), pages.at(-63), 64), 1);
        assert_eq!(elsewhere::copy(pages.at(0), ours.as_ptr(), 0), 0);
        assert_eq!(elsewhere::store_u64(pages.at(-8), 5), 0);
        assert_eq!(elsewhere::store_u32(pages.at(-12), 6), 0);
        assert_eq!(elsewhere::store_u16(pages.at(-14), 7), 0);
        assert_eq!(elsewhere::store_u8(pages.at(-15), 8), 0);
        let gone = [
            elsewhere::store_u64(pages.at(0), 0),
            elsewhere::store_u32(pages.at(0), 0),
            elsewhere::store_u16(pages.at(0), 0),
            elsewhere::store_u8(pages.at(0), 0),
        ];
        assert_eq!(gone, [1; 4]);
        assert_eq!(elsewhere::fetch_add(pages.at(-8), 2).into_result(), Ok(5));
        assert_eq!(
            elsewhere::compare_swap(pages.at(-8), 7, 9).into_result(),
            Ok(7)
        );
        assert_eq!(
            elsewhere::compare_swap(pages.at(-8), 7, 1).into_result(),
            Ok(9)
        );
        assert_eq!(
            elsewhere::fetch_add(pages.at(0), 2).into_result(),
            Err(Gone)
        );
        assert_eq!(
            elsewhere::compare_swap(pages.at(0), 0, 0).into_result(),
            Err(Gone)
        );
    }
}

#[test]
fn addresses_that_no_process_has() {
    protect();
    let mut ours = [0; 64];
    for addr in [0, 8, 1 << 47, 1 << 63, usize::MAX - 127] {
        let nowhere = core::ptr::without_provenance_mut::<u8>(addr);
        // SAFETY: nothing is mapped there, and nothing can be.
        unsafe {
            assert_eq!(copy(ours.as_mut_ptr(), nowhere, 64), Err(Gone), "{addr:#x}");
            assert_eq!(copy_last_word_last(nowhere, &ours), Err(Gone), "{addr:#x}");
            assert_eq!(fetch_add(nowhere, 1), Err(Gone), "{addr:#x}");
            assert_eq!(compare_swap(nowhere, 0, 0), Err(Gone), "{addr:#x}");
        }
    }
}

#[test]
fn memory_that_vanishes_in_the_middle_of_copies() {
    protect();
    let pages = HalfGone::new();
    let at = pages.0.expose_provenance();
    let done = AtomicBool::new(false);
    // Copies that succeeded, and that found it gone.
    let outcomes = [AtomicU32::new(0), AtomicU32::new(0)];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ours = vec![1u8; PAGE];
            while !done.load(Ordering::Relaxed) {
                let page = core::ptr::with_exposed_provenance(at);
                // SAFETY: the page is used by this thread only; its rights come and go.
                let outcome = unsafe { copy(ours.as_mut_ptr(), page, PAGE) };
                outcomes[usize::from(outcome.is_err())].fetch_add(1, Ordering::Relaxed);
            }
        });
        let start = Instant::now();
        let mut rights = [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE]
            .iter()
            .cycle();
        while outcomes
            .iter()
            .any(|count| count.load(Ordering::Relaxed) < 200)
        {
            assert!(start.elapsed() < PATIENCE, "{outcomes:?}");
            pages_protect(at, *rights.next().expect("a cycle has no end"));
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn pages_protect(at: usize, rights: libc::c_int) {
    let page = core::ptr::with_exposed_provenance_mut::<libc::c_void>(at);
    // SAFETY: the first page of a `HalfGone` that outlives the caller's thread.
    assert_eq!(unsafe { libc::mprotect(page, PAGE, rights) }, 0);
}
